#!/bin/sh
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

# A run that lasts until it is told to end.
endless="--data synthetic:1x14x14:10:160 --batch 48 --epochs 1000000"

worker_is_there() {
    [ -n "$(worker "$1")" ]
}

it "starts as many workers as asked for and ends with them"
lockstep bench --workers 3 --batch 48 --threads 1 --steps 1 --repeat 1 --data synthetic:1x14x14:10:160
expect_code 0
expect "$(grep -c 'samples/s' out)" = 1

it "deals the cores to the workers"
if [ "$(nproc)" -lt 2 ]; then
    skip "needs two cores"
else
    # shellcheck disable=SC2086
    begin 2 $endless
    expect "$(taskset -p "$(worker 0)" | sed 's/.*: //')" != "$(taskset -p "$(worker 1)" | sed 's/.*: //')"
    kill "$parent"
    end
    expect_code 75
fi

it "says a mistake that all workers meet once"
lockstep train --workers 3 --batch 48 --model lenett
expect_code 2
expect_error 'lenett.*lenet'

it "names a worker that was killed and ends the others"
# shellcheck disable=SC2086
begin 3 $endless --deadline 20
victim=$(worker 1)
kill -9 "$victim"
end
expect_code 4
expect_err "worker 1 \(pid $victim\) was killed by signal 9 \(Killed\)"
gone "$victim" || miss "worker 1 is still there"

it "ends a worker that does not end by itself"
# shellcheck disable=SC2086
begin 2 $endless --deadline 10
kill -STOP "$(worker 0)"
kill -9 "$(worker 1)"
end
expect_code 4
expect_err 'worker 1 .*killed by signal 9'

# Rank 0 has something to do that takes longer, here to say what nobody reads.
it "gives a worker that is asked to end the time that it needs"
# shellcheck disable=SC2086
hold train $small $endless --workers 3 --no-evaluate --log-every 1 --deadline 6
within 60 grep -q 'sending SIGTERM, and SIGKILL in 11 s' err || miss "nobody is asked to end, and given the deadline and more"
let_go
expect_code 4
expect_err 'rank 0 .*did not'
expect "$(grep -c 'sending SIGKILL' err)" = 0

it "passes a signal on, and all save and end with 75"
# shellcheck disable=SC2086
begin 2 $endless
kill -USR1 "$parent"
end
expect_code 75


it "reports a signal that ends workers which do not save"
"$program" bench --workers 2 --batch 48 --threads 1 --steps 1000000 --repeat 1 --data synthetic:1x14x14:10:160 >out 2>err &
parent=$!
mark
within 60 worker_is_there 1 || miss "the workers do not start"
kill "$parent"
end
expect_code 143
expect_error 'stopped by signal 15 \(Terminated\); nothing was saved'

it "leaves no worker behind when the parent is killed"
# shellcheck disable=SC2086
begin 2 $endless
pids="$(worker 0) $(worker 1)"
kill -9 "$parent"
for pid in $pids; do
    within 60 gone "$pid" || miss "worker $pid lives on"
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
