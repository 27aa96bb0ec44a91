#!/bin/sh
. tests/cli/harness.sh

# Do all workers of the parent train by now, that is, watch for SIGUSR1?
all_train() {
    ready=0
    for pid in $(pgrep -P "$parent"); do
        caught=$(sed -n 's/^SigCgt:.*\(...\)$/0x\1/p' "/proc/$pid/status")
        [ $((${caught:-0} & 0x200)) = 0 ] || ready=$((ready + 1))
    done
    [ $ready = "$workers" ]
}

# A run that lasts until it is told to end.
begin() {
    workers=$1
    shift
    "$program" train --workers "$workers" --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:160 \
        --batch 32 --threads 1 --epochs 1000000 --no-evaluate --log-every 1 "$@" >out 2>err </dev/null &
    parent=$!
    until_true all_train
}

# Waits for a condition, at most half a minute.
until_true() {
    tries=0
    until eval "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { miss "never came true: $1"; return; }
        sleep 0.05
    done
}

end() {
    wait "$parent"
    code=$?
}

# The process of a rank.
worker() {
    for pid in $(pgrep -P "$parent"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "LOCKSTEP_WORKER_RANK=$1" && echo "$pid"
    done
}

it "starts as many workers as asked for and ends with them"
lockstep bench --workers 3 --threads 1 --steps 1 --repeat 1 --data synthetic:1x14x14:10:160
expect_code 0
expect "$(grep -c 'samples/s' out)" = 1

it "deals the cores to the workers"
if [ "$(nproc)" -lt 2 ]; then
    skip "needs two cores"
else
    begin 2
    expect "$(taskset -p "$(worker 0)" | sed 's/.*: //')" != "$(taskset -p "$(worker 1)" | sed 's/.*: //')"
    kill "$parent"
    end
    expect_code 75
fi

it "says a mistake that all workers meet once"
lockstep train --workers 3 --model lenett
expect_code 2
expect_error 'lenett.*lenet'

it "names a worker that was killed and ends the others"
begin 3 --deadline 0.1
victim=$(worker 1)
kill -9 "$victim"
end
expect_code 4
expect_err "worker 1 \(pid $victim\) was killed by signal 9 \(Killed\)"
expect "$(pgrep -c -P "$parent")" = 0

it "ends a worker that does not end by itself"
begin 2 --deadline 0.1
kill -STOP "$(worker 0)"
kill -9 "$(worker 1)"
end
expect_code 4
expect_err 'worker 1 .*killed by signal 9'

it "passes a signal on, and all save and end with 75"
begin 2
kill -USR1 "$parent"
end
expect_code 75

it "leaves no worker behind when the parent is killed"
begin 2
pids="$(worker 0) $(worker 1)"
kill -9 "$parent"
for pid in $pids; do
    until_true "! kill -0 $pid 2>/dev/null"
done
end

it "does not start workers where a launcher did"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 lockstep train --workers 3
expect_code 2
expect_error 'mpirun \(Open MPI\) has done that already'

it "refuses to be a worker without a parent"
LOCKSTEP_WORKER_RANK=1 lockstep train --workers 2
expect_code 2
expect_error 'LOCKSTEP_WORKER_SIZE'

finish
