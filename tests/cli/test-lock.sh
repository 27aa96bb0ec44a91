#!/bin/sh
# Two runs in one directory: the second one is refused, and the first goes on as if nothing had happened.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"

options="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:200 --batch 32 --threads 1 --no-evaluate"
options="$options --schedule constant --replicas 2"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
weights() {
    sha256sum <"$1/checkpoints/step-$(printf %08d "$2")/model.safetensors"
}
# One that stays until it is told, because nobody reads what it says.
# shellcheck disable=SC2086
hold_run() {
    hold train $options --steps 3000 --log-every 1 --checkpoint-every 50 --keep 1000 "$@"
    within 60 test -e "$run/checkpoints/step-00000050" || miss "no checkpoint is saved"
}

it "refuses a second run in the same directory, and names the first"
run=one
hold_run --run one
train --steps 4000 --run one --resume
expect_code 1
expect_error "^lockstep: error: one: in use by another run on host $(hostname) \(pid $child, user $(id -un), since "
expect_err 'another --run'

it "refuses it by any other name of the directory"
ln -s one link
mkdir side
for other in ./one/ "$scratch/one" side/../one link; do
    train --steps 4000 --run "$other" --resume
    expect_code 1
    expect_error "in use .*pid $child"
done
lockstep train --resume one
expect_code 1
expect_error "in use .*pid $child"
lockstep train --resume one/checkpoints/step-00000050
expect_code 1
expect_error "in use .*pid $child"

it "refuses workers too, which end together"
train --steps 4000 --run one --resume --workers 2
expect_code 1
expect_error "in use .*pid $child"

it "lets others read the run meanwhile"
lockstep eval one
expect_code 0

it "lets the first run end with the weights of one that was alone, and no lock"
let_go
expect_code 0
expect_no_file one/lock
train --steps 3000 --run alone
expect "$(weights one 3000)" = "$(weights alone 3000)"

it "leaves no lock when it is told to stop"
for signal in INT TERM USR1; do
    run=stopped-$signal
    hold_run --run "$run"
    expect_file "$run/lock"
    kill -$signal "$child"
    let_go
    expect_code 75
    expect_no_file "$run/lock"
done

it "leaves no lock, nor a directory, when it fails before the first step"
train --steps 5 --init missing.safetensors --run failed
expect_code 3
expect_no_file failed

it "takes over at once from a run that was killed"
run=killed
hold_run --run killed
kill -9 "$child"
let_go
expect_file killed/lock
train --steps 3000 --run killed --resume
expect_code 0
expect_err "killed: the lock of an ended run on .*pid $child.* is taken over"
expect_no_file killed/lock
expect "$(weights killed 3000)" = "$(weights alone 3000)"

it "lets one of many that start at once go on from a killed one"
run=many
hold_run --run many
kill -9 "$child"
let_go
jobs=
for i in 1 2 3 4 5 6; do
    # shellcheck disable=SC2086
    "$program" train $options --steps 3000 --run many --resume >"many.out$i" 2>"many.err$i" </dev/null &
    jobs="$jobs $!"
done
won=0
for job in $jobs; do
    wait "$job" && won=$((won + 1))
done
# One that comes when the first is done finds nothing left to do.
late=$(cat many.out? | grep -c 'Nothing is left')
expect $won = $((1 + late))
expect "$(cat many.err? | grep -c 'in use by another run')" = $((5 - late))
expect "$(weights many 3000)" = "$(weights alone 3000)"

it "ends without saving when another one took its directory over"
run=lost
hold_run --run lost
kill -STOP "$child"
last=$(ls lost/checkpoints | grep -v tmp | tail -n 1)
printf 'host: elsewhere\npid: 7\nuser: somebody\nid: 1\n' >other
mv other lost/lock
kill -CONT "$child"
let_go
expect_code 1
expect_error 'error: lost: .*another run took over the directory, on host elsewhere \(pid 7, user somebody\)'
expect "$(ls lost/checkpoints | grep -v tmp | tail -n 1)" = "$last"
expect "$(sed -n 1p lost/lock)" = 'host: elsewhere'

it "gives a run without --run a lock, too"
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --checkpoint-every 50
within 60 test -s runs/small-synthetic-001/lock || miss "there is no lock"
lockstep train --run runs/small-synthetic-001 --resume
expect_code 1
expect_error "in use .*pid $child"
kill -9 "$child"
let_go

finish
