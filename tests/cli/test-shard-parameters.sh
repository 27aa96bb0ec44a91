#!/bin/sh
# Parameters in shards: the bits of one process on any number of workers, over shared memory and TCP, whole checkpoints, and the
# memory of a few layers.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/sharded.sh"

# Five steps are an epoch. Its last batch has three samples: a rank has none.
steps=6
task="--data synthetic:1x14x14:10:195 --batch 48 --schedule constant"
sharded="--shard parameters --bucket-mb 0.001" # groups of one layer

# train RUN ARGUMENTS
# $small, $task and $sharded are lists of words.
# shellcheck disable=SC2086
train() {
    run=$1
    shift
    lockstep train $small $task --steps $steps --run "$run" "$@"
    expect_code 0
}

# same A B: the runs end with the same weights and state, and the same evaluations.
same() {
    expect_bits "$1" "$2" $steps
    cmp -s "$1/confusion.json" "$2/confusion.json" || miss "confusion.json of $1 and $2 differ"
}

number_of=0
# The options of optimizers are lists of words.
# shellcheck disable=SC2086
for optimizer in "--nesterov" "--optimizer adamw --weight-decay 0.1 --ema 0.9" "--optimizer lars --clip-norm 0.5" \
    "--optimizer lamb" "--optimizer adamw --clip-norm 0.05 --accumulate 2 --ema 0.9" "--optimizer muon"; do
    it "gives the bits of one process with $optimizer, with more replicas than workers and as many"
    number_of=$((number_of + 1))
    train one-$number_of --replicas 4 $optimizer
    train three-$number_of --replicas 4 $optimizer --workers 3 $sharded
    expect_out '  shards     0\.[0-9] MiB of optimizer state, of which a worker holds at most 0\.[0-9] MiB'
    expect_out '             0\.[0-9] MiB of parameters, of which a worker holds at most 0\.[0-9] MiB, and 0\.[0-9] MiB gathered'
    same one-$number_of three-$number_of
    train four-$number_of --replicas 4 $optimizer --workers 4 $sharded
    same one-$number_of four-$number_of
done

it "gives them on 1, 2, 6 and 8 workers, summed after the pass, in one group, and on plain C"
train eight-one --replicas 8 --ema 0.9
for workers in 1 2 6 8; do
    # shellcheck disable=SC2086
    train eight-$workers --replicas 8 --ema 0.9 --workers $workers $sharded
    same eight-one eight-$workers
done
train eight-after --replicas 8 --ema 0.9 --workers 3 --shard parameters --sync allreduce
same eight-one eight-after
train ref --replicas 2 --backend ref
# shellcheck disable=SC2086
train ref-two --replicas 2 --backend ref --workers 2 $sharded
same ref ref-two

# bn RUN ARGUMENTS
bn() {
    run=$1
    shift
    lockstep train --model "$source_root/tests/cli/small-bn.yaml" --threads 1 --data synthetic:1x28x28:10:160 \
        --epoch-size 70 --batch 32 --replicas 4 --steps $steps --run "$run" "$@"
}

it "gives them with BN, frozen layers, mixed samples and evaluations within an epoch, and in bf16"
for options in "--ema 0.9 --eval-every 2" "--freeze ^conv1|fc1.weight|bn.bias --mixup 0.2" "--dtype bf16"; do
    rm -rf bn-one bn-three
    # shellcheck disable=SC2086
    bn bn-one $options
    [ "$code" = 0 ] || continue # no bf16 on this processor
    # shellcheck disable=SC2086
    bn bn-three $options --workers 3 $sharded
    expect_code 0
    same bn-one bn-three
done

it "gives them across nodes, over TCP"
for rank in 0 1 2; do
    # shellcheck disable=SC2086
    LOCKSTEP_NODE=node-$rank "$program" train $small $task --replicas 4 --steps $steps --optimizer adamw --weight-decay 0.1 \
        --ema 0.9 $sharded --run nodes --rendezvous "file://$scratch/meet" --num-nodes 3 --rank $rank \
        >out-$rank 2>err-$rank </dev/null &
    eval "rank_$rank=$!"
done
for rank in 0 1 2; do
    eval "wait \$rank_$rank" || miss "rank $rank: $(cat err-$rank)"
done
grep -q '3 on 3 hosts over tcp' out-0 || miss "the ranks are not on three hosts"
same one-2 nodes

it "resumes on any number of workers, in shards or not"
# shellcheck disable=SC2086
train part --replicas 4 --optimizer adamw --weight-decay 0.1 --ema 0.9 --workers 3 $sharded --checkpoint-every 2 --no-evaluate
rm -r part/checkpoints/step-00000006
for resumed in "--workers 1 --shard none" "--workers 2 --shard state" "--workers 4 $sharded"; do
    rm -rf again
    cp -r part again
    # shellcheck disable=SC2086
    lockstep train --resume --run again $resumed
    expect_code 0
    expect_out 'Going on after step 4'
    expect_no_out 'differ'
    expect_bits one-2 again $steps
done

it "starts from given weights, and shows the parameters to observers"
# shellcheck disable=SC2086
for workers in "" "--workers 3 $sharded"; do
    rm -rf init
    train init --replicas 4 --init one-1 --nesterov --tensorboard $workers
    cp init/checkpoints/step-0000000$steps/model.safetensors "init-${workers:+three}"
done
cmp -s init- init-three || miss "the weights differ"

it "refuses what it cannot keep its promise with"
for refused in "--sync server:--sync overlap or allreduce" "--compress fp16:round parameters" "--collective ring:--collective tree" \
    "--bn-samples 10:passes that only measure" "--tta mirror,least&0.5:passes over one view" "--parallel pipeline:3:part of the model already"; do
    # shellcheck disable=SC2086
    lockstep train $small $task --steps 1 --workers 3 --shard parameters $(echo "${refused%:*}" | tr '&' ':')
    expect_code 2
    expect_error "error: --shard parameters: .*${refused##*:}"
done

# shellcheck disable=SC2086
names_killed $sharded

it "shows the memory of a worker beforehand"
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --json
whole=$(bytes parameter_bytes)
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --shard parameters --json
expect "$(bytes parameter_bytes)" -ge $((whole / 4))
expect "$(bytes parameter_bytes)" -le $((whole / 4 + 8192))
expect "$(bytes gathered_bytes)" -le $((whole / 5))
expect "$(bytes gradient_bytes)" -le $((whole / 5))
planned=$(bytes bytes)
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --shard parameters
expect_out '^Each of 4 workers: .* MiB = .* MiB parameters \(sharded\) \+ .* MiB gathered \+ .* MiB optimizer state \(sharded\) \+'
lockstep plan --model deep.yaml --optimizer adamw --batch 8 --workers 4 --shard parameters --clip-norm 1 --json
expect "$(bytes gradient_bytes)" -eq "$whole"

is_sanitized() {
    grep -q '__[at]san_init' "$program"
}

# make_group BYTES: a cgroup whose processes have so much memory; its path.
make_group() {
    for group in /sys/fs/cgroup/memory/lockstep-$$ /sys/fs/cgroup/lockstep-$$; do
        mkdir "$group" 2>/dev/null || continue
        for limit in memory.limit_in_bytes memory.memsw.limit_in_bytes memory.max; do
            [ ! -e "$group/$limit" ] || echo "$1" >"$group/$limit"
        done 2>/dev/null
        [ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
        if grep -qx "$1" "$group"/memory.limit_in_bytes "$group"/memory.max 2>/dev/null; then
            echo "$group"
            return
        fi
        rmdir "$group"
    done
}

limited() {
    # shellcheck disable=SC2016 # of the inner shell
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$program" train --model deep.yaml --data synthetic:1x14x14:10 \
        --optimizer adamw --lr 0.001 --schedule constant --batch 8 --steps 2 --replicas 4 --threads 1 --loader-threads 1 \
        --no-evaluate --workers 4 --deadline 5 "$@" >out 2>err </dev/null
    code=$?
}

it "trains a model in shards that does not fit with its state alone in shards"
group=$(make_group $((600 * 1048576)))
if [ -z "$group" ] || is_sanitized; then
    [ -z "$group" ] || rmdir "$group"
    skip "no cgroup can be made here, or a sanitizer takes memory"
else
    limited --shard state --run in-state
    expect "$code" -ne 0
    limited --shard parameters --run in-shards
    expect_code 0
    expect_file in-shards/checkpoints/step-00000002/state.safetensors
    within 20 rmdir "$group" || miss "the cgroup stays"
fi

# resident ARGUMENTS: the MiB that the largest process had resident.
resident() {
    "${PYTHON:-python3}" - "$program" "$@" <<'END'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "train", "--data", "synthetic:1x14x14:10", "--optimizer", "adamw", "--batch", "8", "--steps", "3",
                "--threads", "1", "--loader-threads", "1", "--no-evaluate", "--workers", "4", *sys.argv[2:]],
               check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
END
}

it "has resident what the plan says, beside the program"
if is_sanitized; then
    skip "a sanitizer takes memory"
else
    program_alone=$(resident --model mlp --run alone)
    taken=$(resident --model deep.yaml --shard parameters --run resident)
    expect "$((taken - program_alone))" -ge $((planned / 1048576 * 8 / 10))
    expect "$((taken - program_alone))" -le $((planned / 1048576 * 13 / 10))
fi

finish
