#!/bin/sh
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/photos.sh"

model="--model $source_root/tests/cli/small-bn.yaml --threads 1"
# 70 samples an epoch: the last step of each has six, fewer than passes.
run="$model --data synthetic:1x28x28:10:160 --epoch-size 70 --batch 32 --epochs 3 --replicas 8 --quiet"

# same RUN...: the weights, the state of the optimizer and the confusion matrix are those of the run `one`.
same() {
    for same_run in "$@"; do
        for file in model state; do
            cmp -s "one/checkpoints/step-00000009/$file.safetensors" "$same_run/checkpoints/step-00000009/$file.safetensors" ||
                miss "$file.safetensors of $same_run has other bits"
        done
        cmp -s one/confusion.json "$same_run/confusion.json" || miss "confusion.json of $same_run differs"
    done
}

it "trains to the bits of one process, on two, three and four stages"
# shellcheck disable=SC2086
lockstep train $run --run one
expect_code 0
for stages in 2 3 4; do
    # shellcheck disable=SC2086
    lockstep train $run --run "stages-$stages" --workers $stages --parallel pipeline:$stages
    expect_code 0
    same "stages-$stages"
done

it "reports the losses of one process"
losses() {
    grep -o '"kind": *"step".*' "$1/metrics.jsonl" | grep -o '"\(loss\|top1\|top5\)": *[0-9.e+-]*'
}
losses one >one.txt
losses stages-3 >three.txt
expect "$(grep -c loss one.txt)" = 9
cmp -s one.txt three.txt || miss "the losses differ"

it "says what each stage has, and how long it was idle"
# shellcheck disable=SC2086
lockstep train $run --run said --workers 2 --parallel pipeline:2@fc1 --no-quiet
expect_code 0
expect_out 'pipeline +2 stages, 8 passes a step: at least 11.1% of the time is idle'
expect_out 'stage 1 +from fc1'
expect_out 'Pipeline: idle [0-9.]+% of the time, 11.1% with stages of equal work; stages were busy'
same said

it "trains groups of pipelines to the same bits"
# shellcheck disable=SC2086
lockstep train $run --run groups-4 --workers 4 --parallel data:2,pipeline:2 --no-quiet
expect_code 0
expect_out 'pipeline +2 groups of 2 stages, 4 passes a step'
# shellcheck disable=SC2086
lockstep train $run --run groups-6 --workers 6 --parallel data:3,pipeline:2
expect_code 0
# shellcheck disable=SC2086
lockstep train $run --run groups-8 --workers 8 --parallel pipeline:2
expect_code 0
same groups-4 groups-6 groups-8

it "resumes on any layout"
# shellcheck disable=SC2086
lockstep train $run --run moved --workers 2 --parallel pipeline:2 --stop-after 1
expect_code 75
lockstep train --resume --run moved --workers 6 --parallel data:2,pipeline:3 --stop-after 2 --quiet
expect_code 75
lockstep train --resume --run moved --threads 1 --quiet
expect_code 0
same moved
# shellcheck disable=SC2086
lockstep train $run --run back --stop-after 1
expect_code 75
lockstep train --resume --run back --workers 2 --threads 1 --stop-after 2 --quiet
expect_code 75
lockstep train --resume --run back --workers 3 --parallel pipeline:3 --quiet
expect_code 0
same back

it "gives averages, LAMB, mixed samples and frozen layers the same bits"
special="--ema 0.9 --optimizer lamb --lr 0.01 --mixup 0.2 --freeze ^conv1 --init one --accumulate 2 --replicas 3"
# shellcheck disable=SC2086
lockstep train $run $special --run plain
expect_code 0
# shellcheck disable=SC2086
lockstep train $run $special --run staged --workers 3 --parallel pipeline:3
expect_code 0
cmp -s plain/checkpoints/step-00000009/model.safetensors staged/checkpoints/step-00000009/model.safetensors ||
    miss "the weights differ"
cmp -s plain/checkpoints/step-00000009/state.safetensors staged/checkpoints/step-00000009/state.safetensors ||
    miss "the state differs"

it "clips by the norm of all stages"
# shellcheck disable=SC2086
lockstep train $run --clip-norm 0.2 --freeze ^conv1 --run clipped
expect_code 0
for layout in "3 pipeline:3" "4 data:2,pipeline:2"; do
    # shellcheck disable=SC2086
    lockstep train $run --clip-norm 0.2 --freeze ^conv1 --run "clipped-${layout%% *}" --workers "${layout%% *}" \
        --parallel "${layout#* }"
    expect_code 0
    expect_bits clipped "clipped-${layout%% *}" 9
done
cmp -s clipped/checkpoints/step-00000009/model.safetensors one/checkpoints/step-00000009/model.safetensors &&
    miss "clipping changes nothing"

it "computes in bf16 as one process does"
# shellcheck disable=SC2086
lockstep train $run --dtype bf16 --run half --steps 2
if [ "$code" = 2 ]; then
    skip "no bf16 on this processor"
else
    # shellcheck disable=SC2086
    lockstep train $run --dtype bf16 --run half-staged --steps 2 --workers 2 --parallel pipeline:2
    expect_code 0
    cmp -s half/checkpoints/step-00000002/model.safetensors half-staged/checkpoints/step-00000002/model.safetensors ||
        miss "the weights differ"
fi

it "plans the memory that a run then has"
# shellcheck disable=SC2086
lockstep plan $model --batch 32 --replicas 8 --parallel pipeline:2@fc1 --json
expect_code 0
planned=$(sed -n 's/.*"bytes": \([0-9]*\).*/\1/p' out | awk '{ printf "%.1f MiB\n", $1 / 1048576 }')
# shellcheck disable=SC2086
lockstep train $run --run planned --steps 1 --workers 2 --parallel pipeline:2@fc1 --no-quiet
expect "$(sed -n 's/.*of the work; \([0-9.]* MiB\):.*/\1/p' out)" = "$planned"
# shellcheck disable=SC2086
lockstep plan $model --batch 32 --replicas 8 --parallel pipeline:2
expect_out 'from layer +ms +work'

it "measures its bubble"
lockstep bench --model lenet --input 1x28x28 --batch 32 --replicas 4 --threads 1 --workers 2 --parallel pipeline:2 --steps 2 --repeat 1
expect_code 0
expect_out 'pipeline: 2 stages, idle [0-9.]+% of the time, 20.0% with stages of equal work'

it "refuses what does not go with it, and says why"
refused() {
    # shellcheck disable=SC2086
    lockstep train $run --run never --workers 2 --parallel pipeline:2 $2
    expect_code 2
    expect_error "$1"
}
refused 'every stage has the only copy of its parameters' '--sync async'
refused 'no gradients are summed' '--compress bf16'
refused 'no process has the whole model' '--bn-samples 10'
refused 'layout of 3 processes, and there are 2' '--parallel pipeline:3'
refused "no place before .nowhere.; possible are: .*fc1" '--parallel pipeline:2@nowhere'
refused "is no axis" '--parallel rows:2'
refused "say how many" '--parallel pipeline'
[ ! -e never ] || miss "a refused run left its directory"

it "ends together when a sample cannot be read, and goes on once it is mended"
classes photos/train 12 ash birch
classes photos/val 4 ash birch
photos="--model $source_root/tests/cli/small.yaml --data photos --batch 8 --threads 1 --replicas 2 --epochs 2 --quiet"
# shellcheck disable=SC2086
lockstep train $photos --run whole
expect_code 0
for image in val/ash/3 train/birch/7; do
    cp photos/$image.ppm kept
    head -c 100 kept >photos/$image.ppm
    rm -rf broken
    # shellcheck disable=SC2086
    lockstep train $photos --run broken --workers 2 --parallel pipeline:2 --deadline 20
    expect_code 3
    expect_error "photos/$image.ppm: truncated PPM"
    cp kept photos/$image.ppm
    lockstep train --resume --run broken --workers 2 --parallel pipeline:2 --quiet
    expect_code 0
    cmp -s whole/checkpoints/step-00000006/model.safetensors broken/checkpoints/step-00000006/model.safetensors ||
        miss "the weights differ after $image"
done

it "stops at a signal and goes on with another layout"
# shellcheck disable=SC2086
begin 2 $model --data synthetic:1x28x28:10:160 --batch 32 --steps 40 --replicas 4 --parallel pipeline:2 --run signalled
kill "$parent"
end
[ "$code" = 0 ] || expect_code 75
lockstep train --resume --run signalled --workers 3 --parallel pipeline:3 --quiet
expect_code 0
# shellcheck disable=SC2086
lockstep train $model --data synthetic:1x28x28:10:160 --batch 32 --steps 40 --replicas 4 --run straight --no-evaluate --quiet
cmp -s straight/checkpoints/step-00000040/model.safetensors signalled/checkpoints/step-00000040/model.safetensors ||
    miss "the weights differ"

it "names the stage that was killed"
# shellcheck disable=SC2086
begin 3 $model --data synthetic:1x28x28:10:160 --batch 32 --epochs 1000000 --deadline 20 --parallel pipeline:3
victim=$(worker 1)
kill -9 "$victim"
end
expect_code 4
expect_err "worker 1 \(pid $victim\) was killed by signal 9"
expect_err "rank 1 .*, stage 1 of 3\)"

it "records the kernels of the whole model"
cmp -s one/plan.txt stages-4/plan.txt || miss "the plan is not that of one process"

finish
