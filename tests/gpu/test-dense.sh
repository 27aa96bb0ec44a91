#!/bin/sh
# Large dense layers divided among processes that share the card (--parallel dense:N): the bits of one process, with replicas
# that are no multiple of the workers, dropout, averages and evaluations; resumed on other layouts.
# shellcheck disable=SC2086 # lists of words
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/wide.sh"
. "$source_root/tests/gpu/gpu.sh"

# Two layers of 8 million weights. The last chunk of each has fewer rows than the others.
wide_model 8200 >wide.yaml
# 70 samples an epoch: the second step has 34.
run="--backend $backend --model wide.yaml --threads 1 --data synthetic:1x14x14:10:70 --lr 0.05 --batch 36 --replicas 9
    --plan-cache plans --quiet"
types="f32 tf32 bf16"
[ "$backend" = cuda ] || types="f32"

train() {
    lockstep train $run "$@"
    expect_code 0
}

for dtype in $types; do
    train --dtype $dtype --epochs 2 --ema 0.9 --run one-$dtype
    layouts="2:dense:2 4:data:2,dense:2"
    [ $dtype = tf32 ] || layouts="2:data 2:dense:2 3:dense:3 4:dense:4 4:data:2,dense:2 6:data:3,dense:2 6:data:2,dense:3 8:data:2,dense:4"
    for layout in $layouts; do
        it "gives the bits of one process in $dtype on ${layout%%:*} with --parallel ${layout#*:}"
        train --dtype $dtype --epochs 2 --ema 0.9 --workers "${layout%%:*}" --parallel "${layout#*:}" --run split
        as_one one-$dtype split 4 plan.txt
        rm -rf split
    done
done

it "gives them with measured kernels, accumulated passes and adamw"
special="--dtype ${types##* } --tune --accumulate 2 --optimizer adamw --lr 0.001 --steps 3"
train $special --run plain
for layout in 2:dense:2 3:dense:3 4:data:2,dense:2; do
    train $special --workers "${layout%%:*}" --parallel "${layout#*:}" --run special
    as_one plain special 3 plan.txt
    rm -rf special
done

for exchanged in "--dtype f32 --clip-norm 0.05" "--dtype bf16 --clip-norm 0.05" "--dtype fp16" "--dtype fp16 --clip-norm 0.05" \
    overflows; do
    [ "$backend" = cuda ] || [ "${exchanged#--dtype f32}" != "$exchanged" ] || continue
    if [ "$exchanged" = overflows ]; then
        overflow exchanged $run --epochs 2
        exchanged="--dtype fp16 --lr $rate"
    else
        train $exchanged --epochs 2 --run exchanged
    fi
    for layout in 2:dense:2 3:dense:3 4:data:2,dense:2; do
        it "gives them on ${layout%%:*} processes with --parallel ${layout#*:} $exchanged"
        train $exchanged --epochs 2 --workers "${layout%%:*}" --parallel "${layout#*:}" --run split
        as_one exchanged split 4 plan.txt
        rm -rf split
    done
    rm -rf exchanged
done

it "gives them with layers whose weights are frozen"
train --freeze '^f1[.]weight' --steps 2 --run frozen
train --freeze '^f1[.]weight' --steps 2 --workers 2 --parallel dense:2 --run frozen-split
as_one frozen frozen-split 2 plan.txt

it "goes on with any other layout, and alone"
train --epochs 3 --run whole
lockstep train $run --epochs 3 --workers 4 --parallel data:2,dense:2 --stop-after 1 --run moved
expect_code 75
lockstep train --resume --run moved --workers 3 --parallel dense:3 --threads 1 --stop-after 2 --quiet
expect_code 75
lockstep train --resume --run moved --threads 1 --quiet
expect_code 0
expect_bits whole moved 6

it "refuses what does not go with it, and says why"
if [ "$backend" = cuda ]; then
    lockstep train $run --workers 2 --parallel dense:2 --collective nccl --run never
    expect_code 2
    expect_error 'leave --collective out'
    lockstep train $run --workers 8 --parallel dense:8 --run never
    expect_code 2
    expect_err 'at most 4 workers share a layer .* data:2,dense:4'
else
    skip "these are for cards"
fi

it "names a worker that was killed and ends the others"
small="--model wide.yaml --threads 1"
begin 3 --backend "$backend" --data synthetic:1x14x14:10:160 --batch 48 --replicas 4 --epochs 1000000 --deadline 5 \
    --parallel dense:3 --run killed
kill_one

finish
