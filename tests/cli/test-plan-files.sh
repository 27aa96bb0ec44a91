#!/bin/sh
# Plans that cannot be read: the run's own is an error when it is resumed, the cache's is a warning.
. tests/cli/harness.sh

small="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:64 --batch 32 --threads 1 --replicas 2
    --no-evaluate"
# $small is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $small "$@"
}

it "does not resume without the run's plan, and says what to do"
train --steps 2 --run run
expect_code 0
mv run/plan.txt kept
for kind in empty folder binary; do
    rm -rf run/plan.txt
    case $kind in
    empty) : >run/plan.txt ;;
    folder) mkdir run/plan.txt ;;
    binary) head -c 3000 /dev/zero >run/plan.txt ;;
    esac
    train --steps 4 --run run --resume
    expect_code 3
    expect_error 'run/plan.txt.*: .*; restore that file, or remove it to choose kernels anew'
    expect_no_file run/checkpoints/step-00000004
done

it "says so once, and to all, with several workers"
train --steps 4 --run run --resume --workers 2
expect_code 3
expect_error 'run/plan.txt.*: .*; restore that file'

it "resumes with the plan, and where it was removed"
rm -rf run/plan.txt
cp kept run/plan.txt
train --steps 4 --run run --resume
expect_code 0
rm run/plan.txt
train --steps 6 --run run --resume
expect_code 0
expect_file run/plan.txt

it "warns of a damaged plan cache, measures again and mends it"
train --tune --steps 1 --plan-cache cache --run measured
expect_code 0
expect_file cache
cp cache good
{
    head -n 2 good
    echo 'nonsense'
    echo 'another machine|conv|kernel|1.0000|0000000000000001'
    tail -n +3 good | sed 's/|[0-9.]*|\([0-9a-f]*\)$/|x.5|\1/'
} >cache
train --tune --steps 1 --plan-cache cache --run damaged
expect_code 0
expect_err 'warning: the plan cache cache is damaged: .*measured again'
expect "$(grep -c 'nonsense' cache)" = 0
expect "$(grep -c '^another machine|' cache)" = 1
train --tune --steps 1 --plan-cache cache --run mended
expect_code 0
expect "$(wc -l <err)" = 0

it "warns of a plan cache that cannot be read, and leaves it"
mkdir folder
train --tune --steps 1 --plan-cache folder --run unreadable
expect_code 0
expect_err 'warning: the plan cache cannot be used: folder: .*measured again'
expect "$(grep -c 'error' err)" = 0

finish
