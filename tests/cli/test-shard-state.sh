#!/bin/sh
# Optimizer state in shards: the bits of one process on any number of workers, whole checkpoints, less memory.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/sharded.sh"

# Five steps are an epoch. Its last batch has three samples: a rank has none.
steps=6
task="--data synthetic:1x14x14:10:195 --batch 48 --replicas 4 --schedule constant --no-evaluate"

# train RUN ARGUMENTS
# $small and $task are lists of words.
# shellcheck disable=SC2086
train() {
    run=$1
    shift
    lockstep train $small $task --steps $steps --run "$run" "$@"
    expect_code 0
}

# same A B: the runs end with the same weights and state.
same() {
    expect_file "$2/checkpoints/step-0000000$steps/state.safetensors"
    expect "$(record "$1" $steps)" = "$(record "$2" $steps)"
}

number_of=0
# The optimizer's options are lists of words.
# shellcheck disable=SC2086
for optimizer in "--nesterov" "--optimizer adamw --weight-decay 0.1 --ema 0.9" "--optimizer lars --clip-norm 0.5" \
    "--optimizer lamb --bucket-mb 0.001" "--optimizer adamw --clip-norm 0.05 --accumulate 2" \
    "--optimizer muon --bucket-mb 0.001" "--optimizer muon --clip-norm 0.1"; do
    it "gives the bits of one process with $optimizer"
    number_of=$((number_of + 1))
    train one-$number_of $optimizer
    train three-$number_of $optimizer --workers 3 --shard state
    expect_out '  shards     0\.[0-9] MiB of optimizer state, of which a worker holds at most 0\.[0-9] MiB'
    same one-$number_of three-$number_of
done

it "gives them on 2 and 4 workers, summed after the pass, and on plain C"
train two --workers 2 --shard state --nesterov
same one-1 two
train four --workers 4 --shard state --nesterov --sync allreduce
same one-1 four
train ref --backend ref
train ref-two --backend ref --workers 2 --shard state
same ref ref-two

it "gives them across nodes"
for rank in 0 1 2; do
    # shellcheck disable=SC2086
    LOCKSTEP_NODE=node-$rank "$program" train $small $task --steps $steps --nesterov --shard state --run nodes \
        --rendezvous "file://$scratch/meet" --num-nodes 3 --rank $rank >out-$rank 2>err-$rank </dev/null &
    eval "rank_$rank=$!"
done
for rank in 0 1 2; do
    eval "wait \$rank_$rank" || miss "rank $rank: $(cat err-$rank)"
done
grep -q '3 on 3 hosts' out-0 || miss "the ranks are not on three hosts"
same one-1 nodes

it "resumes what 3 workers saved in shards on any number of workers, in shards or not"
train part --optimizer adamw --weight-decay 0.1 --ema 0.9 --workers 3 --shard state --checkpoint-every 2
rm -r part/checkpoints/step-00000006
for resumed in "--workers 1 --shard none" "--workers 4 --shard none" "--workers 2 --shard state"; do
    rm -rf again
    cp -r part again
    # shellcheck disable=SC2086
    lockstep train --resume --run again $resumed
    expect_code 0
    expect_out 'Going on after step 4'
    expect_no_out 'differ'
    same one-2 again
done

it "updates with scratch memory while the pass runs, without shards"
train muon-two --optimizer muon --bucket-mb 0.001 --workers 2
same one-6 muon-two

it "keeps the state whole on one worker"
train alone --shard state --nesterov
same one-1 alone

it "refuses what it cannot keep its promise with"
for refused in "--sync server:--sync overlap or allreduce" "--sync gather:every worker all sums" \
    "--sync local:by its own gradients" "--sync async:servers hold the state" "--compress fp16:round parameters" \
    "--collective ring:--collective tree"; do
    # shellcheck disable=SC2086
    lockstep train $small $task --steps 1 --workers 3 --shard state ${refused%%:*}
    expect_code 2
    expect_error "error: --shard state: .*${refused#*:}"
done

names_killed --shard state

it "shows the memory of a worker beforehand"
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --json
whole=$(bytes state_bytes)
parameters=$(bytes parameter_bytes)
expect "$whole" -eq $((2 * parameters))
expect "$(bytes gradient_bytes)" -eq "$parameters"
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --shard state --json
expect "$(bytes state_bytes)" -ge $((whole / 4))
expect "$(bytes state_bytes)" -le $((whole / 4 + 4096))
lockstep plan --model deep.yaml --optimizer lamb --batch 8 --workers 4 --shard state --json
expect "$(bytes state_bytes)" -ge $((whole / 4))
expect "$(bytes state_bytes)" -le $((whole / 3))
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --shard state
expect_out '^Each of 4 workers: .* MiB = .* MiB parameters \+ .* MiB optimizer state \(sharded\) \+ .* MiB gradients'

# limited ARGUMENTS: at most 325 MiB of private memory for each process.
limited() {
    (
        # shellcheck disable=SC3045 # dash has it
        ulimit -d $((325 * 1024)) || exit 9
        exec "$program" train --data synthetic:1x14x14:10 --optimizer adamw --lr 0.001 --schedule constant --batch 8 \
            --steps 2 --replicas 4 --threads 1 --loader-threads 1 --no-evaluate "$@"
    ) >out 2>err </dev/null
    code=$?
}

it "trains a model in shards that fits no worker's memory as a whole"
limited --model mlp --workers 4 --run fits
if [ $code != 0 ]; then
    skip "the program alone does not run within the limit here"
else
    # It is out of memory; where that meets oneDNN, it crashes.
    limited --model deep.yaml --workers 4 --run four-whole
    expect "$code" -ne 0
    limited --model deep.yaml --run one-whole
    expect "$code" -ne 0
    limited --model deep.yaml --workers 4 --shard state --run in-shards
    expect_code 0
    expect_file in-shards/checkpoints/step-00000002/state.safetensors
fi

finish
