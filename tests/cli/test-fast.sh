#!/bin/sh
# The parts of fast recipes for small images: whitening, identity starts, BN without scale, muon, groups of momentum and decay,
# reflected crops, alternating flips, several views in evaluation.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
model=$source_root/tests/cli/fast.yaml
check=$source_root/tests/cli/whiten_check.py
muon="--optimizer muon --nesterov --muon-steps 3 --lr 0.1 --momentum-groups conv[12]=0.6 --lr-groups ^head=500,bias\$=40"
fast="--model $model --threads 1 --batch 48 --schedule polynomial --label-smoothing 0.2 --steps 9 --decay-groups ^head=0.1
    --augment reflect:2,altflip --tta mirror,shift:1 $muon"
data=synthetic:3x32x32:10:195
command -v python3 >/dev/null && python3 "$check" make images && data=images

# $fast is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $fast --data "$data" "$@"
}
tensors() {
    python3 "$source_root/tests/cli/tensors.py" list "$1/model.safetensors"
}

it "gives the same bits on one, two and three workers"
train --replicas 6 --run one
expect_code 0
expect_out 'optimizer  muon, 3 iterations, momentum 0.9 \(Nesterov\)'
expect_out 'evaluated .*; the mean of several views: mirror,shift:1'
expect_out 'random crops after padding by 2, reflected, flips in turns'
for workers in 2 3; do
    train --replicas 6 --workers $workers --run "on-$workers"
    expect_code 0
    [ "$(record one 9)" = "$(record "on-$workers" 9)" ] || miss "$workers workers differ"
done
it "goes on in the middle of an epoch to the same bits"
train --replicas 6 --stop-after 7 --run parts
train --replicas 6 --run parts --resume
expect_code 0
[ "$(record one 9)" = "$(record parts 9)" ] || miss "the resumed run differs"

if command -v python3 >/dev/null; then
    it "whitening filters are the principal components of training patches, and stay as they are"
    python3 "$check" check one/checkpoints/step-00000009/model.safetensors >out 2>err || miss "$(tail -n 1 err)"
    it "BN without scale keeps scales of 1; filters move"
    train --steps 1 --lr 1e-30 --run still
    tensors still/checkpoints/step-00000001 >still.txt
    tensors one/checkpoints/step-00000009 >one.txt
    for tensor in whiten.weight norm1.weight norm2.weight; do
        expect "$(grep -F "$tensor " still.txt)" = "$(grep -F "$tensor " one.txt)"
    done
    for tensor in whiten.bias conv1.weight norm1.bias head.weight; do
        [ "$(grep -F "$tensor " still.txt)" != "$(grep -F "$tensor " one.txt)" ] || miss "$tensor did not move"
    done
fi

it "eval: views as the run had them, others, or none"
lockstep eval one --data "$data" --json
expect_code 0
own=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)
lockstep eval one --data "$data" --tta mirror,shift:1 --json
expect "$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)" != ''
lockstep eval one --data "$data" --tta mirror --json
expect_code 0
[ "$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)" != "$own" ] || miss "two views have the loss of the others"

it "views of the least certain images: the same on any number of workers"
least() { grep -h '"kind": "eval"' "$1/metrics.jsonl" | sed 's/"samples_per_s.*//; s/.*"loss"/loss/'; }
train --replicas 6 --tta mirror,shift:1,least:0.3 --run least
expect_code 0
for workers in 2 3; do
    train --replicas 6 --tta mirror,shift:1,least:0.3 --workers $workers --run "least-$workers"
    expect_code 0
    expect "$(least least)" = "$(least "least-$workers")"
done
[ "$(least least)" != "$(least one)" ] || miss "a share of the images has the loss of all"
lockstep eval least --data "$data" --json
expect_code 0

it "a model file is written as it was read"
lockstep models show "$model" --yaml
expect_code 0
expect_out 'name: whiten, op: conv, out: 24, kernel: 2, stride: 2, init: whiten 0.0005'
expect_out 'name: conv1, .*init: identity 0.07'
expect_out 'name: norm1, op: bn, eps: 1e-12, momentum: 0.4, scale: false'
expect_out 'name: logits, op: scale, factor: 0.03125'

data=synthetic:3x32x32:10:195 # without remarks on its files
it "a run of 1.5 epochs ends within the second, and goes on from there"
train --steps 0 --epochs 1.5 --schedule constant --batch 40 --run half
expect_code 0
expect_out 'length     8 steps, 5 an epoch'
[ -e half/checkpoints/step-00000008 ] || miss "there is no checkpoint of step 8"
train --steps 0 --epochs 1.5 --schedule constant --batch 40 --run half --resume
expect_out 'Nothing is left to do: 8 of 8 steps are done'
train --steps 0 --epochs 2 --schedule constant --batch 40 --run half --resume
expect_code 0
train --steps 0 --epochs 2 --schedule constant --batch 40 --run two
[ "$(record half 10)" = "$(record two 10)" ] || miss "the longer run differs"

refuses() {
    it "refuses $1"
    pattern=$2
    shift 2
    train "$@" --run refused
    expect_code 2
    expect_error "$pattern"
    [ ! -e refused ] || miss "a run directory was made"
}
refuses "views that are not known" '--tta turn: expected mirror, shift:PIXELS \(1 to 1024\), or mirror,shift:PIXELS' --tta turn
refuses "a share that is none" '--tta mirror,least:1: expected mirror, .* least:SHARE \(above 0, below 1\)' --tta mirror,least:1
refuses "a share of no views" '--tta least:0.5: which views the least certain images get is missing' --tta least:0.5
refuses "a share of images where a process has a part of the model" '--tta least: each process needs the whole model' \
    --tta mirror,least:0.5 --parallel pipeline:2 --workers 2
refuses "views moved beyond the image" '--tta shift:40: the images are only 32x32' --tta shift:40
refuses "half an iteration" '--muon-steps 2.5: expected a whole number from 1 to 20' --muon-steps 2.5
refuses "a momentum of 1" '--momentum-groups conv=1: 1 is not from 0 to below 1' --momentum-groups conv=1
refuses "a group without a parameter" "--decay-groups 'fc': no parameter of the model matches" --decay-groups fc=1
refuses "a word of --augment without its number" "--augment reflect: 'reflect': a number is expected after it" --augment reflect

it "refuses filters that cannot whiten"
sed 's/out: 24/out: 26/' "$model" >many.yaml
train --model many.yaml --run refused
expect_code 3
expect_error 'layer whiten: init: whiten makes an even number of filters, at most twice the 12 values of a patch'
sed 's/init: identity 0.07/init: whiten 0.1/' "$model" >deep.yaml
train --model deep.yaml --run refused
expect_code 3
expect_error 'layer conv1: init: whiten is for a convolution that reads the images'
sed 's/init: normal 1/init: identity 1/' "$model" >dense.yaml
train --model dense.yaml --run refused
expect_code 3
expect_error 'dense.yaml:13: layer head: init is identity, which is for the filters of conv'
it "refuses a start of single layers for all of a kind"
sed 's/^layers:/init: {dense: identity 1}\nlayers:/' "$model" >head.yaml
train --model head.yaml --run refused
expect_code 3
expect_error 'head.yaml:4: init of dense is identity, which is the init of a single layer'
finish
