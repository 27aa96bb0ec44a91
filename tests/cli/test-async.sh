#!/bin/sh
# Strategies with servers of their own: async, cutoff, and server with --servers.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"

# Five steps an epoch, the last one uneven.
small() {
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:110 --batch 24 --epochs 2 \
        --threads 1 --momentum 0.9 --lr 0.05 "$@"
}

digits() {
    lockstep train --model mlp --data mnist --epoch-size 6000 --batch 60 --epochs 1 --threads 1 --momentum 0.9 \
        --lr 0.05 "$@"
}

# expect_bits RUN: the weights and momenta of run $1 are those of run $2.
expect_bits() {
    expect_code 0
    expect_same "$1/checkpoints/step-00000010/model.safetensors" "$2/checkpoints/step-00000010/model.safetensors"
    expect_same "$1/checkpoints/step-00000010/state.safetensors" "$2/checkpoints/step-00000010/state.safetensors"
}

# The number after some words of the output.
number_after() {
    grep -oE "$1 [0-9.]+" out | head -n 1 | grep -oE '[0-9.]+$'
}

# A run of one long epoch in the background that lasts until it is told to end; it trains when this returns.
begin() {
    "$program" train --workers "$@" --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:9000000 \
        --batch 36 --threads 1 --no-evaluate --log-every 1 >out 2>err </dev/null &
    parent=$!
    goes_on 3
}

steps() {
    grep -c samples/s out
}

has_steps() {
    [ "$(steps)" -ge "$1" ]
}

# So many steps more are made.
goes_on() {
    more=$(($(steps) + $1))
    within 60 has_steps $more || miss "there are never $more steps"
}

worker() {
    for pid in $(pgrep -P "$parent"); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "LOCKSTEP_WORKER_RANK=$1" && echo "$pid"
    done
}

end() {
    wait "$parent"
    code=$?
}

it "gives the serial run's bits with one worker: async"
small --run serial1
expect_code 0
small --run async1 --workers 2 --sync async
expect_bits async1 serial1
expect_out 'Staleness: 0.00 updates on average, 0 at most, over 10 gradients'
expect_file async1/metrics.jsonl
expect "$(grep -c '"staleness": 0' async1/metrics.jsonl)" -ge 10

it "gives the serial run's bits with one worker: cutoff"
small --run cutoff1 --workers 2 --sync cutoff
expect_bits cutoff1 serial1

it "gives the serial run's bits with servers of their own"
small --run serial3 --replicas 3
expect_code 0
small --run server3 --workers 4 --sync server --servers 1
expect_bits server3 serial3
small --run server32 --workers 5 --sync server --servers 2
expect_bits server32 serial3

it "gives the serial run's bits when the cut-off waits for all"
small --run cutoff3 --workers 4 --sync cutoff --cutoff-k 3
expect_bits cutoff3 serial3
expect_no_out 'too late'

it "trains asynchronously, within the bound"
digits --run async3 --workers 4 --sync async --staleness 1
expect_code 0
expect "$(number_after 'Final evaluation: top-1' | cut -d. -f1)" -ge 85
expect "$(grep -oE 'average, [0-9]+' out | grep -oE '[0-9]+')" -le 6 # the other two, 2 x 1 + 1 steps each
expect "$(number_after 'fastest worker was')" -le 1
expect_out 'over 300 gradients'

it "trains asynchronously over two servers"
digits --run async32 --workers 5 --sync async --servers 2
expect_code 0
expect "$(number_after 'Final evaluation: top-1' | cut -d. -f1)" -ge 85

it "trains with the first two of three gradients"
digits --run cutoff32 --workers 4 --sync cutoff
expect_code 0
expect "$(number_after 'Final evaluation: top-1' | cut -d. -f1)" -ge 85

it "waits for as many as pay, and says for how many"
digits --run auto --workers 5 --sync cutoff --cutoff-k auto:2 --stragglers 0.005,1*8
expect_code 0
expect_out 'Cut-off: [234][.0-9]* of 4 gradients on average over 100 steps; .*[234] in [0-9.]+% of the steps'
expect_out 'rank 1 .*came too late with [0-9]+ of [0-9]+ gradients'
expect "$(grep '"kind": "step"' auto/metrics.jsonl | grep -c '"cutoff_k": [234],')" -ge 50
expect "$(grep '"kind": "step"' auto/metrics.jsonl | grep -vc '"cutoff_k": [234],')" = 0
expect "$(grep -c 'cutoff.k: "*auto:2' auto/config.yaml)" = 1

it "goes on with a run that chooses, and reads its configuration"
lockstep train --resume --run auto --workers 5 --epochs 2
expect_code 0
expect_out 'Cut-off: .* of 4 gradients on average over 100 steps'

it "ends where workers sleep for very different times"
small --run sleepy --workers 6 --sync cutoff --cutoff-k auto:1 --stragglers 0.001,p0.3*20
expect_code 0
small --run sleepy2 --workers 3 --sync cutoff --cutoff-k auto --stragglers 0.001,0*30@1-5,1*30@6-10
expect_code 0
small --run sleepy1 --workers 2 --sync cutoff --cutoff-k auto
expect_bits sleepy1 serial1

it "goes on without a worker that is stopped while it chooses"
begin 5 --sync cutoff --cutoff-k auto --run stands
goes_on 10
for _ in 1 2 3 4 5 6 7 8; do # wherever it is, and whoever rests then
    kill -STOP "$(worker 1)"
    goes_on 20
    kill -CONT "$(worker 1)"
    goes_on 20
done
kill -USR1 "$parent"
end
expect_code 75
expect_out 'rank 1 .*came too late with [0-9]+ of [0-9]+ gradients'

it "cuts off a worker that is slow, and names it"
begin 4 --sync cutoff --run slow
for _ in 1 2 3 4 5 6 7 8; do # wherever it is
    kill -STOP "$(worker 1)"
    goes_on 20
    kill -CONT "$(worker 1)"
    goes_on 20
done
kill -USR1 "$parent"
end
expect_code 75
expect_out 'rank 1 .*came too late with [0-9]+ of [0-9]+ gradients.*left out [0-9]{2,} steps'
expect_no_out 'rank 3 .*too late'

it "saves when told to stop, and goes on to the same bits"
hold train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:900 --batch 36 --epochs 60 \
    --threads 1 --no-evaluate --run stopped --workers 2 --sync async --log-every 1
within 60 grep -q '"kind": "step"' stopped/metrics.jsonl || miss "the run does not begin"
kill -USR1 "$child"
let_go
expect_code 75
expect_out 'Stopped by .* after step [0-9]+ of 1500'
lockstep train --resume --run stopped --workers 2
expect_code 0
lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:900 --batch 36 --epochs 60 \
    --threads 1 --no-evaluate --run whole
expect_code 0
expect_same stopped/checkpoints/step-00001500/model.safetensors whole/checkpoints/step-00001500/model.safetensors
expect_same stopped/checkpoints/step-00001500/state.safetensors whole/checkpoints/step-00001500/state.safetensors

for sync in async cutoff; do
    it "stops at one step on all ranks: $sync"
    begin 5 --sync $sync --servers 2 --run "stop-$sync"
    kill -USR1 "$(worker 2)"
    end
    expect_code 75
    expect_out 'Stopped by .* after step'
    lockstep train --resume --run "stop-$sync" --workers 5 --steps 1
    expect_code 0
done

it "names a server that was killed"
begin 4 --sync async --run killed
victim=$(worker 3)
kill -9 "$victim"
end
expect_code 4
expect_err "(worker|rank) 3 \(pid $victim"

it "names a worker that everyone waits for"
begin 4 --sync async --deadline 10 --run hung
kill -STOP "$(worker 1)"
end
expect_code 4
expect_err 'rank 1 \(host [^)]*\) did not'

for sync in async cutoff server; do
    it "says that training diverged, and ends all: $sync"
    mark=$(date +%s)
    small --run "diverged-$sync" --workers 4 --sync $sync --servers 1 --lr 1e30 --deadline 200
    expect_code 5
    expect_err 'step [0-9]+: the loss is .*diverged'
    expect "$(grep -vc diverged err)" = 0
    expect $(($(date +%s) - mark)) -lt 200 # nobody waits for the deadline
done

it "refuses what cannot be"
small --run no --workers 2 --sync async --servers 2
expect_code 2
expect_err '--servers 2: none of the 2 processes would be left'
small --run no --workers 3 --sync cutoff --cutoff-k 3
expect_code 2
expect_err '--cutoff-k 3: there are only 2 workers'
small --run no --workers 3 --sync cutoff --cutoff-k auto:3
expect_code 2
expect_err '--cutoff-k auto:3: there are only 2 workers'
small --run no --workers 4 --sync cutoff --cutoff-k auto --servers 2
expect_code 2
expect_err '--cutoff-k auto: 2 servers would choose different numbers; use --servers 1'
for bad in automatic auto: auto:0 auto:x auto:-1 auto:70000 half; do
    small --run no --workers 3 --sync cutoff --cutoff-k $bad
    expect_code 2
    expect_err "cutoff-k: "
done
for bad in x 1,9*2 1,p2*3 1,1*2@0-3 1,1*2@5-3 1,1*2@5 1,1 1, 4000; do
    small --run no --workers 3 --sync cutoff --stragglers "$bad"
    expect_code 2
    expect_err '--stragglers .*: expected SECONDS'
done
small --run no --workers 3 --sync async --compress fp16
expect_code 2
expect_err '--compress fp16: servers take gradients as they are'
small --run no --workers 3 --sync server --servers 1 --compress powersgd
expect_code 2
expect_err '--compress powersgd: servers take gradients as they are'
small --run no --workers 3 --sync async --replicas 3
expect_code 2
expect_err 'needs as many replicas as workers: leave --replicas out, or give 2'

finish
