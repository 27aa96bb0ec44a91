#!/bin/sh
# Layouts on the card: processes that share the one card here compute what one process does, in the memory that was planned.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"

# 70 samples an epoch: the last step of each has six, fewer than passes.
run="--backend $backend --model $source_root/tests/cli/small-bn.yaml --threads 1 --data synthetic:1x28x28:10:160 --epoch-size 70
    --batch 32 --epochs 3 --replicas 8 --quiet"
# $run is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $run "$@"
    expect_code 0
}

# layouts_of DTYPE: PROCESSES:LAYOUT each; "shard" is data parallel with the optimizer's state in shards, "parameters" with the
# parameters, too
layouts_of() {
    case $1 in
        f32)
            echo 2:data 3:data 4:data 6:data 8:data 2:pipeline:2 3:pipeline:3 4:pipeline:4 2:pipeline:2@layer1.1.bn
            echo 4:data:2,pipeline:2 6:data:3,pipeline:2 8:data:2,pipeline:4 2:shard 3:shard 4:shard 6:shard 8:shard 3:auto
            echo 2:parameters 3:parameters 4:parameters 8:parameters
            ;;
        bf16) echo 4:data 3:pipeline:3 6:data:2,pipeline:3 4:shard 3:parameters 4:parameters ;;
        fp16) echo 3:data 2:pipeline:2 4:pipeline:4 8:data:4,pipeline:2 2:shard 6:shard 4:parameters ;;
    esac
}

# layout_of PROCESSES:LAYOUT: the options
layout_of() {
    case ${1#*:} in
        shard) echo "--workers ${1%%:*} --shard state" ;;
        shards) echo "--workers ${1%%:*} --shard parameters" ;;
        parameters) echo "--workers ${1%%:*} --shard parameters --bucket-mb 0.01" ;;
        *) echo "--workers ${1%%:*} --parallel ${1#*:}" ;;
    esac
}

for dtype in f32 bf16 fp16; do
    [ $dtype != fp16 ] || [ "$backend" = cuda ] || continue
    clip="--clip-norm 0.5"
    [ $dtype != bf16 ] || clip="--optimizer adamw --lr 0.001"
    # $clip and what layout_of prints are lists of words.
    # shellcheck disable=SC2086
    train --dtype $dtype $clip --run one-$dtype
    for layout in $(layouts_of $dtype); do
        it "gives the bits of one process in $dtype on ${layout%%:*} processes with ${layout#*:}"
        # shellcheck disable=SC2046,SC2086
        train --dtype $dtype $clip $(layout_of "$layout") --run staged
        as_one one-$dtype staged 9 confusion.json plan.txt
        rm -rf staged
    done
done

it "goes on with any other layout, and alone"
# shellcheck disable=SC2086
lockstep train $run --clip-norm 0.5 --workers 4 --parallel data:2,pipeline:2 --stop-after 1 --run moved
expect_code 75
lockstep train --resume --run moved --threads 1 --workers 8 --shard state --stop-after 2 --quiet
expect_code 75
lockstep train --resume --run moved --workers 3 --shard none --parallel pipeline:3 --quiet
expect_code 0
expect_bits one-f32 moved 9

it "goes on from stages with parameters in shards, and from there alone"
# shellcheck disable=SC2086
lockstep train $run --clip-norm 0.5 --workers 2 --parallel pipeline:2 --stop-after 1 --run sharded
expect_code 75
lockstep train --resume --run sharded --threads 1 --workers 3 --parallel data --shard parameters --stop-after 2 --quiet
expect_code 75
lockstep train --resume --run sharded --threads 1 --workers 1 --shard none --quiet
expect_code 0
expect_bits one-f32 sharded 9

if [ "$backend" = cuda ]; then
    it "takes the loss scale along, from shards to stages and alone"
    # shellcheck disable=SC2086
    lockstep train $run --clip-norm 0.5 --dtype fp16 --workers 4 --shard state --stop-after 1 --run scaled
    expect_code 75
    lockstep train --resume --run scaled --workers 3 --shard none --parallel pipeline:3 --stop-after 2 --quiet
    expect_code 75
    lockstep train --resume --run scaled --threads 1 --quiet
    expect_code 0
    expect_bits one-fp16 scaled 9
fi

it "gives averages, LAMB, mixed samples and frozen layers the same bits"
special="--ema 0.9 --optimizer lamb --lr 0.01 --mixup 0.2 --freeze ^conv1 --init one-f32 --accumulate 2 --replicas 3"
# shellcheck disable=SC2086
train $special --run plain
# shellcheck disable=SC2086
train $special --run special --workers 3 --parallel pipeline:3
expect_bits plain special 9

it "gives them the same bits with parameters in shards"
# shellcheck disable=SC2086
train $special --run special-shards --workers 3 --shard parameters --bucket-mb 0.01
expect_bits plain special-shards 9

# Measured kernels: products that are computed with a normalisation, sparse gradients, weights' gradients aside.
tuned="--backend $backend --data synthetic:3x64x64:10:64 --batch 32 --replicas 4 --steps 3 --classes 10 --tune --quiet"
[ "$backend" = cuda ] || tuned="--backend $backend --data synthetic:3x64x64:10:64 --batch 8 --replicas 4 --steps 3 --threads 1 --quiet"
for model in resnet18 resnet50 mobilenet_v2; do
    it "trains $model with measured kernels"
    # shellcheck disable=SC2086
    lockstep train $tuned --model $model --dtype bf16 --run whole
    if [ "$code" = 2 ]; then
        skip "no bf16 here"
    else
        expect_code 0
        for layout in 2:pipeline:2 4:pipeline:4 4:data:2,pipeline:2 3:shards; do
            it "gives its bits on ${layout%%:*} processes with ${layout#*:}"
            # shellcheck disable=SC2046,SC2086
            lockstep train $tuned --model $model --dtype bf16 $(layout_of "$layout") --run parts
            expect_code 0
            expect_bits whole parts 3
            rm -rf parts
        done
    fi
    rm -rf whole
done

it "records what the card does in every stage"
train --clip-norm 0.5 --workers 2 --parallel pipeline:2 --trace 2:3 --run traced
expect_bits one-f32 traced 9
expect_file traced/trace.json

# figures_of FILE: the memory of each stage that a plan predicts, in MiB
figures_of() {
    awk '$1 ~ /^[0-9]+$/ && $8 == "x" { print $12 }' "$1" | paste -sd' '
}

it "takes about the memory of each stage that was planned"
stages="--backend $backend --threads 1 --model vgg11 --input 3x64x64 --classes 100 --batch 64 --replicas 4 --optimizer adamw
    --parallel pipeline:3@features.11+classifier.3"
# shellcheck disable=SC2086
lockstep plan $stages
expect_code 0
planned=$(figures_of out)
# shellcheck disable=SC2086
lockstep bench $stages --workers 3 --data synthetic:3x64x64:100 --steps 3 --repeat 1
expect_code 0
taken=$(sed -n 's/.*MiB at most: //p' out)
# The program, its batches and buffers come on top; memory for parameters is taken 32 MiB at a time.
echo "$planned $taken" | awk 'NF != 6 { exit 1 } { for (i = 1; i <= 3; i++) if ($(i+3) < 0.9 * $i || $(i+3) > 1.15 * $i + 96) exit 1 }' ||
    miss "planned were $planned MiB, taken $taken"

it "chooses a layout by what the card measures"
# shellcheck disable=SC2086
lockstep plan --backend "$backend" --model "$source_root/tests/cli/small-bn.yaml" --input 1x28x28 --classes 10 --batch 32 \
    --replicas 8 --threads 1 --workers 4 --parallel auto
expect_code 0
expect_out 'auto: [a-z0-9:,]+'
expect_out 'pipeline:4 +[0-9.]+'
expect_out 'Measured: a pass [0-9.]+ ms'
[ "$backend" != cuda ] || expect_out '4 processes on [0-9]+ card'

if [ "$backend" = cuda ]; then
    it "skips a step in all processes where one of them sees an overflow"
    # shellcheck disable=SC2086
    overflow wild $run
    wild="--dtype fp16 --lr $rate"
    for layout in 2:pipeline:2 3:pipeline:3 4:shard; do
        # shellcheck disable=SC2046,SC2086
        train $wild $(layout_of "$layout") --run wild-too
        expect_bits wild wild-too 9
        rm -rf wild-too
    done
fi

it "names a stage that was killed and ends the others"
begin 3 --backend "$backend" --data synthetic:1x14x14:10:160 --batch 48 --replicas 4 --epochs 1000000 --deadline 5 \
    --parallel pipeline:3 --run killed
kill_one
expect_err 'rank 1 .*, stage 1 of 3'

finish
