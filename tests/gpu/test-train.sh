#!/bin/sh
# Training on the card: it learns in every precision, goes on where it stopped, and agrees with the CPU.
. tests/cli/harness.sh
. "$source_root/tests/gpu/gpu.sh"
types="f32 tf32 bf16 fp16"
[ "$backend" = cuda ] || types="f32 bf16"

for dtype in $types; do
    it "learns MNIST in $dtype"
    lockstep train --backend "$backend" --model lenet --data mnist --steps 400 --dtype "$dtype" --run "mnist-$dtype"
    expect_code 0
    expect_out "backend $backend, $dtype"
    top1=$(sed -n 's/^Final evaluation: top-1 \([0-9]*\)\..*/\1/p' out)
    expect "${top1:-0}" -ge 95
done

it "says how busy the card is"
if [ "$backend" != cuda ] || ! ldconfig -p | grep -q libnvidia-ml.so.1; then
    skip "needs a card and libnvidia-ml.so.1"
else
    grep '"kind": "step"' mnist-bf16/metrics.jsonl >steps
    expect "$(grep -c '"gpu_utilisation": [0-9].*"gpu_memory_bytes": [0-9].*"gpu_clock_mhz": [0-9]' steps)" = 400
    # Long enough for samples of its own.
    lockstep train --backend cuda --model resnet18 --data synthetic:3x64x64:10:512 --batch 256 --epochs 100 --no-evaluate \
        --checkpoint-every 1000000 --dtype bf16 --run busy
    expect_code 0
    expect_out '^GPU: [0-9]+% busy on average, [0-9]+ W, [0-9]+ MHz, [0-9.]+ GiB'
fi

it "evaluates as the CPU does"
lockstep eval mnist-f32 --backend "$backend" --json
expect_code 0
cp out on-card
lockstep eval mnist-f32 --backend onednn --json
expect_code 0
expect "$(share_apart "$(json loss <out)" "$(json loss <on-card)")" -le 100
expect "$(share_apart "$(json top1 <out)" "$(json top1 <on-card)")" -le 500

small="--backend $backend --model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:200 --batch 32 --threads 1"
# $small is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $small --schedule constant "$@"
}

# scale RUN STEP: the loss scale that the checkpoint has, and for how many steps it has been that.
scale() {
    tr -d ' \n' <"$1/checkpoints/step-$(printf %08d "$2")/state.json" |
        sed -n 's/.*"loss_scale":{"scale":\([0-9.]*\),"steady":\([0-9]*\)}.*/\1 \2/p'
}

for dtype in $types; do
    it "goes on in the middle of an epoch to the bits of the uninterrupted run, in $dtype"
    train --dtype "$dtype" --steps 20 --run "straight-$dtype"
    expect_code 0
    train --dtype "$dtype" --steps 10 --run "halves-$dtype"
    expect_code 0
    train --dtype "$dtype" --steps 20 --run "halves-$dtype" --resume
    expect_code 0
    expect_bits "straight-$dtype" "halves-$dtype" 20
done

# BN's statistics (--bn-samples): as the CPU measures them with the same weights, and to the bits of the uninterrupted run.
for dtype in $types; do
    it "measures BN's statistics anew, in $dtype"
    train --dtype "$dtype" --steps 20 --replicas 2 --bn-samples 100 --eval-every 8 --run "bn-$dtype"
    expect_code 0
    expect_out 'BN .*before each evaluation, from 96 training samples in batches of 16'
    train --dtype "$dtype" --steps 13 --replicas 2 --bn-samples 100 --eval-every 8 --run "bn-parts-$dtype"
    train --dtype "$dtype" --steps 20 --replicas 2 --bn-samples 100 --eval-every 8 --run "bn-parts-$dtype" --resume
    expect_code 0
    train --dtype "$dtype" --steps 20 --replicas 2 --run "bn-none-$dtype"
    cmp -s "bn-$dtype/checkpoints/step-00000020/state.safetensors" "bn-none-$dtype/checkpoints/step-00000020/state.safetensors" ||
        miss "training went another way"
done

it "goes on with the loss scale, too"
if [ "$backend" != cuda ]; then
    skip "fp16 is for cards"
else
    expect "$(scale straight-fp16 20)" = "65536.0 20"
    expect "$(scale halves-fp16 20)" = "65536.0 20"
    train --dtype fp16 --steps 10 --run scaled
    sed -i 's/65536\.0/1024.0/' scaled/checkpoints/step-00000010/state.json
    "$(dirname "$program")/tests/state_checksum" scaled/checkpoints/step-00000010/state.json || miss "no checksum"
    train --dtype fp16 --steps 20 --run scaled --resume
    expect_code 0
    expect "$(scale scaled 20)" = "1024.0 20"
fi

it "computes the same bits again"
train --dtype f32 --steps 20 --run again
expect_code 0
expect_bits straight-f32 again 20

it "goes on with replicas and passes, too"
train --replicas 4 --accumulate 2 --steps 20 --run straight-parts
expect_code 0
train --replicas 4 --accumulate 2 --steps 9 --run halves-parts
train --replicas 4 --accumulate 2 --steps 20 --run halves-parts --resume
expect_code 0
expect_bits straight-parts halves-parts 20

it "accumulates to the gradient of the whole batch"
for passes in 1 4; do
    lockstep train --backend "$backend" --model lenet --data mnist --epoch-size 640 --steps 10 --batch 64 --no-evaluate \
        --schedule constant --lr 0.01 --accumulate $passes --run passes-$passes
    expect_code 0
done
expect_near passes-1 passes-4 1e-4

it "saves memory by reusing it, to the same bits"
train --no-reuse --steps 20 --run apart
expect_code 0
expect_bits straight-f32 apart 20

it "says that a batch does not fit the card, and what to do"
if [ "$backend" != cuda ]; then
    skip "needs a card"
else
    lockstep train --backend cuda --model resnet50 --data synthetic:3x224x224:1000:2048 --batch 2048 --steps 1 --no-reuse \
        --no-evaluate --run large
    expect_code 1
    expect_error 'GiB.* smaller --batch, or --accumulate'
fi

finish
