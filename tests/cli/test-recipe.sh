#!/bin/sh
# Each part of a training recipe: to the same bits on one, two and three workers, and resumed in the middle of an epoch.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

# Five steps an epoch; 12 steps end within the third.
many="$small --data synthetic:1x14x14:10:195 --batch 48 --replicas 6 --schedule constant --steps 12"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many "$@"
}

expect_bits() {
    expect_file "$1/checkpoints/step-$(printf %08d "$3")/state.safetensors"
    [ "$(record "$1" "$3")" = "$(record "$2" "$3")" ] || miss "$1 and $2 differ after step $3"
}
expect_figures() {
    figures "$1" >figures-1
    figures "$2" >figures-2
    cmp -s figures-1 figures-2 || miss "the metrics of $1 and $2 differ"
}

# keeps NAME OPTIONS...: the bits of NAME on one process are those on two and three workers, and of a run in two parts.
keeps() {
    kept=$1
    shift
    it "$kept: gives the same bits on two and three workers"
    train "$@" --run "$kept-1"
    expect_code 0
    for workers in 2 3; do
        train "$@" --workers $workers --run "$kept-$workers"
        expect_code 0
        expect_bits "$kept-1" "$kept-$workers" 12
        expect_figures "$kept-1" "$kept-$workers"
    done
    it "$kept: goes on in the middle of an epoch to the same bits"
    train "$@" --steps 7 --run "$kept-parts" --workers 2
    expect_code 0
    train "$@" --run "$kept-parts" --resume
    expect_code 0
    expect_out 'Going on after step 7'
    expect_bits "$kept-1" "$kept-parts" 12
}

refuses() {
    it "refuses $1"
    shift
    pattern=$1
    shift
    train "$@" --run refused
    expect_code 2
    expect_error "$pattern"
}

keeps plateau --schedule plateau:0:0.5 --lr 0.5
it "plateau: says when the rate falls, and keeps what it has seen in checkpoints"
expect "$(grep -c 'plateau: evaluations in a row without a lower loss: 1; rate 0.25 from now on, was 0.5' plateau-1/log.txt)" = 1
expect "$(grep -A2 plateau plateau-1/checkpoints/step-00000012/state.json | grep -c '"rate": 0.25')" = 1
keeps eval-every --schedule plateau:0:0.5 --lr 0.5 --eval-every 3
it "eval-every: evaluates within epochs, every N steps, and at the end"
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' eval-every-1/metrics.jsonl | tr '\n' ' ')" = '3 6 9 12 '
train --steps 7 --eval-every 3 --run ends --tensorboard --mllog
expect_code 0
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' ends/metrics.jsonl | tr '\n' ' ')" = '3 6 7 '
train --steps 0 --epochs 2 --eval-every 4 --run ends-with-an-epoch
expect_code 0
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' ends-with-an-epoch/metrics.jsonl | tr '\n' ' ')" = '4 8 10 '
refuses "to evaluate in mid-epoch where workers go on without each other" \
    '--eval-every: with --sync async workers go on without each other' --eval-every 3 --sync async --workers 2 --replicas 1
refuses "--eval-every without evaluations" '--eval-every needs evaluations, and there are none: leave out --no-evaluate' \
    --eval-every 3 --no-evaluate

# 71 samples an epoch, two steps: the third epoch ends in the second time through 195 samples.
keeps epoch-size --epoch-size 71 --augment crop:2,flip
it "epoch-size: a run of a version that began each epoch anew goes on as it began"
train --epoch-size 71 --steps 5 --run old
expect "$(grep -c '"goes_on": true' old/checkpoints/step-00000005/state.json)" = 1
rm -rf older
cp -r old older
# An older version wrote neither this key nor a checksum of state.json.
sed -i -e '/"goes_on"/d' -e '/"state.json"/d' -e 's/\("state.safetensors": "[0-9a-f]*"\),/\1/' \
    -e '/"config.yaml"/d' -e '/"data.json"/d' older/checkpoints/step-00000005/state.json
train --epoch-size 71 --run old --resume
expect_code 0
train --epoch-size 71 --run older --resume
expect_code 0
expect "$(grep -c 'begun by an older version: each uses the first samples' older/log.txt)" = 1
[ "$(record old 12)" != "$(record older 12)" ] || miss "the old order is the new one"

it "early-stop: ends after evaluations without a gain, on two workers too, and only a larger number goes on"
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early
expect_code 0
expect_out 'early stop: evaluations in a row without a higher top-1 than .*: 2'
expect_file early/checkpoints/step-00000009/state.json
expect_file early/confusion.json
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early-2 --workers 2
expect_code 0
expect_bits early early-2 9
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early --resume
expect_code 0
expect_out 'Nothing is left to do: the run stopped early after step 9'
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 3 --run early --resume
expect_code 0
expect_out 'Going on after step 9'
expect_file early/checkpoints/step-00000012/state.json
train --model mlp --lr 1e-12 --early-stop 1 --steps 0 --epochs 4 --run early-epochs
expect_code 0
expect_file early-epochs/checkpoints/step-00000010/state.json
refuses "--early-stop without evaluations" '--early-stop needs evaluations' --early-stop 3 --no-evaluate
refuses "plateau without evaluations" '--schedule plateau follows the loss of evaluations, and there are none' \
    --schedule plateau --no-evaluate
refuses "a schedule that is not there" 'plateux' --schedule plateux

it "a gradual warm-up begins at its base"
train --lr 0.4 --warmup gradual:2:0.1 --run gradual
expect_code 0
expect "$(sed -n 's/.*"kind": "step".*"lr": \([0-9.]*\).*/\1/p' gradual/metrics.jsonl | uniq | tr '\n' ' ')" = '0.1 0.25 0.4 '
it "a gradual warm-up of one replica says that it is flat"
train --replicas 1 --steps 1 --warmup gradual:2 --run flat
expect_code 0
expect_err 'warning: --warmup gradual:2 changes nothing: with one replica it begins at the full rate; give .*gradual:2:0.005'
refuses "a warm-up that falls" 'gradual:2:0.2: the rate would fall from 0.2 to the full rate 0.05' --warmup gradual:2:0.2
finish
