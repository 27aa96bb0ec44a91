#!/bin/sh
# Large dense layers divided among workers (--parallel dense:N): the bits of one process on 2 to 4 workers, with replicas that
# are no multiple of the workers, passes without samples, dropout, averages and evaluations; resumed on other layouts.
# shellcheck disable=SC2086 # lists of words
. tests/cli/harness.sh
. "$source_root/tests/cli/wide.sh"

wide_model 4100 >wide.yaml
evaluated="--model wide.yaml --data synthetic:1x14x14:10:19 --threads 1 --lr 0.05 --batch 16 --replicas 5"
# A checkpoint takes 100 MB: one, at the end.
common="$evaluated --no-evaluate --checkpoint-every 1000"

# same_bits A B STEP: the weights and the state of two runs' last step. B is then removed.
same_bits() {
    step=checkpoints/step-0000000$3
    for file in model state; do
        cmp -s "$1/$step/$file.safetensors" "$2/$step/$file.safetensors" || miss "$1 and $2 differ in $file.safetensors"
    done
    rm -rf "$2"
}

evaluated_as_one() {
    grep 'evaluation: loss' out | sed 's/ in .*//' >evaluation.split
    sed 's/ in .*//' evaluation.one | cmp -s - evaluation.split || miss "evaluations differ"
}

it "gives the bits of one process on 2, 3 and 4 workers"
lockstep train $evaluated --epochs 2 --ema 0.9 --run one
expect_code 0
grep 'evaluation: loss' out >evaluation.one
for n in 2 3 4; do
    lockstep train $evaluated --epochs 2 --ema 0.9 --workers $n --parallel dense:$n --run split$n
    expect_code 0
    same_bits one split$n 4
    evaluated_as_one
done

it "evaluates several views of a sample as one process does"
lockstep train $evaluated --steps 1 --tta mirror,shift:1 --run views
expect_code 0
grep 'evaluation: loss' out >evaluation.one
for layout in 3:dense:3 4:data:2,dense:2; do
    lockstep train $evaluated --steps 1 --tta mirror,shift:1 --workers ${layout%%:*} --parallel ${layout#*:} --run views-$layout
    expect_code 0
    evaluated_as_one
done

it "gives them with adamw, accumulated passes and a frozen layer, in plain C too"
lockstep train $common --steps 2 --optimizer adamw --accumulate 2 --freeze 'f1[.]' --run frozen
lockstep train $common --steps 2 --optimizer adamw --accumulate 2 --freeze 'f1[.]' --workers 3 --parallel dense:3 --run frozen3
expect_code 0
same_bits frozen frozen3 2
lockstep train $common --steps 1 --backend ref --batch 2 --replicas 2 --run plain
lockstep train $common --steps 1 --backend ref --batch 2 --replicas 2 --workers 2 --parallel dense:2 --run plain2
expect_code 0
same_bits plain plain2 1

it "clips by the norm of all rows"
lockstep train $common --epochs 1 --run unclipped
lockstep train $common --epochs 1 --clip-norm 0.1 --run clipped
expect_different unclipped/checkpoints/step-00000002/model.safetensors clipped/checkpoints/step-00000002/model.safetensors
for n in 2 3; do
    lockstep train $common --epochs 1 --clip-norm 0.1 --workers $n --parallel dense:$n --run clipped$n
    expect_code 0
    same_bits clipped clipped$n 2
done
lockstep train $common --steps 1 --backend ref --batch 2 --replicas 2 --clip-norm 0.1 --run clip-plain
lockstep train $common --steps 1 --backend ref --batch 2 --replicas 2 --clip-norm 0.1 --workers 2 \
    --parallel dense:2 --run clip-plain2
expect_code 0
same_bits clip-plain clip-plain2 1

it "gives them in groups of workers, whose gradients of rows are summed between groups"
lockstep train $common --replicas 9 --epochs 2 --clip-norm 0.5 --run nine
expect_code 0
for layout in "4 data:2,dense:2" "6 dense:3" "6 data:3,dense:2" "8 data:2,dense:4"; do
    run="groups-${layout#* }"
    lockstep train $common --replicas 9 --epochs 2 --clip-norm 0.5 --workers "${layout%% *}" \
        --parallel "${layout#* }" --run "$run"
    expect_code 0
    same_bits nine "$run" 4
done
lockstep train $common --replicas 9 --epochs 2 --clip-norm 0.5 --workers 4 --parallel dense:2 --sync allreduce \
    --run groups-after
expect_code 0
same_bits nine groups-after 4
lockstep train $common --steps 1 --backend ref --batch 4 --replicas 4 --accumulate 1 --run plain-four
lockstep train $common --steps 1 --backend ref --batch 4 --replicas 4 --accumulate 1 --workers 4 \
    --parallel dense:2 --run plain-groups
expect_code 0
same_bits plain-four plain-groups 1

it "gives them across machines, over TCP"
for rank in 0 1 2 3; do
    LOCKSTEP_NODE=node-$((rank / 2)) "$program" train $common --replicas 9 --epochs 2 --clip-norm 0.5 \
        --parallel dense:2 --run machines --transport tcp --rendezvous "file://$scratch/meet" --num-nodes 4 --rank $rank \
        >out-$rank 2>err-$rank </dev/null &
    eval "rank_$rank=$!"
done
for rank in 0 1 2 3; do
    eval "wait \$rank_$rank" || miss "rank $rank: $(cat err-$rank)"
done
same_bits nine machines 4

it "resumes on other layouts"
lockstep train $common --epochs 3 --run whole --workers 2
lockstep train $common --epochs 3 --run parts --workers 3 --parallel dense:3 --stop-after 1
expect_code 75
lockstep train --resume --run parts --workers 4 --parallel data:2,dense:2 --stop-after 2
expect_code 75
lockstep train --resume --run parts
expect_code 0
same_bits whole parts 6

# Where the processor lacks bf16, test-bench.sh has the message.
if lockstep bench $common --dtype bf16 --steps 1 --repeat 1; then
    it "gives them in bf16, clipped and accumulated, and resumes on other layouts"
    half="--dtype bf16 --epochs 3 --batch 18 --accumulate 2 --clip-norm 0.5 --ema 0.9"
    lockstep train $common $half --run half --workers 2
    for layout in "3 dense:3" "4 data:2,dense:2"; do
        lockstep train $common $half --workers "${layout%% *}" --parallel "${layout#* }" --run "half-${layout#* }"
        expect_code 0
        same_bits half "half-${layout#* }" 6
    done
    lockstep train $common $half --run half-parts --workers 2 --parallel dense:2 --stop-after 1
    expect_code 75
    lockstep train --resume --run half-parts
    expect_code 0
    same_bits half half-parts 6
fi

it "refuses what does not go with it, with the reason"
for more in "--sync gather" "--compress fp16" "--optimizer lars"; do
    lockstep train $common --workers 2 --parallel dense:2 $more
    expect_code 2
    grep -q 'dense:2 with' err || miss "$more: no reason"
done
lockstep train $common --workers 4 --parallel pipeline:2,dense:2
expect_code 2
expect_error 'dense does not go with pipeline'
lockstep train --model lenet --data synthetic:1x28x28:10:20 --batch 4 --workers 2 --parallel dense:2
expect_code 2
expect_error 'no dense layer with 4000000 weights'

it "names a worker that is lost"
"$program" train $common --steps 100000 --workers 3 --parallel dense:3 --run lost --deadline 10 >out 2>err &
parent=$!
for _ in $(seq 600); do
    grep -q '"kind": "step"' lost/metrics.jsonl 2>/dev/null && break
    sleep 0.1
done
victim=$(pgrep -P "$parent" | tail -1)
kill -9 "$victim"
wait "$parent"
code=$?
expect_code 4
expect_err "$victim"

finish
