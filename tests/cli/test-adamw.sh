#!/bin/sh
# AdamW trains like any optimizer: resumed, on several workers, with servers.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

many="$small --data synthetic:1x14x14:10:195 --batch 48 --replicas 6 --optimizer adamw --lr 0.002 --schedule constant"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many --no-evaluate "$@"
}
expect_bits() {
    expect_file "$1/checkpoints/step-$(printf %08d "$3")/state.safetensors"
    [ "$(record "$1" "$3")" = "$(record "$2" "$3")" ] || miss "$1 and $2 differ after step $3"
}

it "announces its hyperparameters and saves both averages"
train --steps 12 --run one
expect_code 0
expect_out 'optimizer  adamw, betas 0.9 and 0.999, eps 1e-08, weight decay 0.0005'
expect "$(grep -ac 'weight.exp_avg_sq"' one/checkpoints/step-00000012/state.safetensors)" = 1
expect "$(grep -ac 'exp_avg' one/checkpoints/step-00000012/model.safetensors)" = 0

it "goes on in the middle of a run to the same bits"
train --steps 5 --run halves
expect_code 0
train --steps 12 --run halves --resume
expect_code 0
expect_out 'Going on after step 5'
expect_bits one halves 12

for sync in overlap server; do
    it "gives the bits of one process on three workers with --sync $sync"
    train --steps 12 --workers 3 --sync $sync --run on-3-$sync
    expect_code 0
    expect_bits one on-3-$sync 12
done

it "averages both of its averages with --sync local"
train --steps 8 --workers 2 --sync local --local-steps 4 --replicas 2 --run local
expect_code 0

it "refuses the momentum of sgd"
train --steps 1 --momentum 0.8 --run refused
expect_code 2
expect_err '--optimizer adamw: --momentum is an option of sgd; leave it out, or set --beta1 \(now 0.9\)'
train --steps 1 --nesterov --run refused
expect_code 2
expect_err '--optimizer adamw: --nesterov is an option of sgd'
finish
