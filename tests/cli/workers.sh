# shellcheck shell=sh
# Runs on many workers in the background, for tests of what becomes of them. Sourced after harness.sh.
#
#   begin N ARGUMENTS...    a small run on N workers; returns when all of them train
#   worker RANK             the process of a rank
#   end                     waits for the parent: $code, and $took, the seconds since begin or mark
#   mark                    now is when something happens to them
#   is_stopped              is the parent?
#   gone PID                is there no such process any more?
#   within SECONDS COMMAND  tries until it succeeds
#   record RUN STEP         what must be equal: a checkpoint's files as one text of checksums
#   expect_bits A B STEP    the runs A and B have the same record of that step
#   figures RUN             metrics.jsonl without what time it took and without lines about ranks
. "$source_root/tests/hosts/wait.sh"
parent=
small="--model $source_root/tests/cli/small.yaml --threads 1"

# Those who are stopped, too; the parent is in nobody's way.
end_workers() {
    [ -n "$parent" ] || return 0
    for worker_pid in $(pgrep -P "$parent") "$parent"; do
        kill -9 "$worker_pid" 2>/dev/null
    done
    wait "$parent" 2>/dev/null
    parent=
}

release_scratch() {
    end_workers
}

# Do all workers of the parent train by now, that is, leave SIGUSR1 to the thread that watches for it?
all_train() {
    kill -0 "$parent" 2>/dev/null || return 0
    ready=0
    for worker_pid in $(pgrep -P "$parent"); do
        blocked=$(sed -n 's/^SigBlk:.*\(...\)$/0x\1/p' "/proc/$worker_pid/status" 2>/dev/null)
        [ $((${blocked:-0} & 0x200)) = 0 ] || ready=$((ready + 1))
    done
    [ $ready = "$workers" ]
}

begin() {
    workers=$1
    shift
    # $small is a list of words.
    # shellcheck disable=SC2086
    "$program" train $small --workers "$workers" --no-evaluate --log-every 1 "$@" >out 2>err </dev/null &
    parent=$!
    within 300 all_train || miss "the workers do not train"
    mark
}

mark() {
    since=$(date +%s%N)
}

end() {
    { wait "$parent"; } 2>/dev/null
    code=$?
    parent=
    took=$((($(date +%s%N) - since + 999999999) / 1000000000))
}

worker() {
    for worker_pid in $(pgrep -P "$parent"); do
        tr '\0' '\n' <"/proc/$worker_pid/environ" | grep -qx "LOCKSTEP_WORKER_RANK=$1" && echo "$worker_pid"
    done
}

record() {
    (cd "$1/checkpoints/step-$(printf %08d "$2")" && sha256sum model.safetensors state.safetensors) 2>&1
}

expect_bits() {
    expect_file "$1/checkpoints/step-$(printf %08d "$3")/state.safetensors"
    [ "$(record "$1" "$3")" = "$(record "$2" "$3")" ] || miss "$1 and $2 differ after step $3"
}

figures() {
    sed '/"kind": "rank"/d; s/, "samples_per_s".*//' "$1/metrics.jsonl"
}

is_stopped() {
    grep -q '^State:.T' "/proc/$parent/status"
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}
