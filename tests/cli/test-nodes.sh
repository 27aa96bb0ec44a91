#!/bin/sh
# One start on each node, several workers a node: every way to say so, on one machine. The bits are those of one process.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"
modules=$(dirname "$program")
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCKSTEP_TOKEN
small="train --model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:320 --batch 48 --replicas 12 --threads 1
    --schedule constant --no-evaluate"
started=

release_scratch() {
    for pid in $started; do
        kill -9 "$pid" 2>/dev/null
    done
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# node WORDS...: a start in the background, with the variables in $with. `collect` waits for all of them: $codes. Their
# output is in out and err.
with=
node() {
    # shellcheck disable=SC2086
    env $with timeout -k 5 100 "$program" "$@" >>out 2>>err </dev/null &
    started="$started $!"
}

collect() {
    codes=
    for pid in $started; do
        { wait "$pid"; } 2>/dev/null
        codes="$codes $?"
    done
    started=
    codes=${codes# }
}

# expect_bits RUN: the weights after 20 steps are those of one process.
expect_bits() {
    expect_same one/checkpoints/step-00000020/model.safetensors "$1/checkpoints/step-00000020/model.safetensors"
    expect_same one/checkpoints/step-00000020/state.safetensors "$1/checkpoints/step-00000020/state.safetensors"
}

if [ ! -e "$modules/lockstep-tcp.so" ]; then
    it "starts workers on several nodes"
    skip "built without tcp"
    finish
fi

# $small is a list of words.
# shellcheck disable=SC2086
{
    it "starts three workers on each of two nodes, by address"
    lockstep $small --steps 20 --run one
    expect_code 0
    : >out
    port=$(free_port)
    for rank in 1 0; do
        node $small --steps 20 --run address --workers 3 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank $rank
    done
    collect
    expect "$codes" = "0 0"
    expect_out 'workers +6 on 1 host'
    expect "$(grep -c '^Training' out)" = 1
    expect "$(cat err)" = ""
    expect_bits address

    it "starts two on each of three, which meet in a folder, in the order of arrival"
    for rank in 0 1 2; do
        node $small --steps 20 --run folder --npernode 2 --rendezvous "file://$scratch/a folder" --num-nodes 3
    done
    collect
    expect "$codes" = "0 0 0"
    expect_out 'workers +6 on 1 host'
    expect "$(grep -c '^Training' out)" = 1
    expect_bits folder

    it "starts as many as each host of a hostfile has slots"
    printf '# two hosts\n127.0.0.1 slots=3\nlocalhost:1\n' >"the hosts"
    port=$(free_port)
    for rank in 1 0; do
        node $small --steps 20 --run hosts --hostfile "the hosts" --master-port "$port" --rank $rank
    done
    collect
    expect "$codes" = "0 0"
    expect_out 'workers +4 on 1 host'
    expect_bits hosts

    it "takes what torchrun sets, two processes on each of two nodes"
    port=$(free_port)
    for rank in 3 2 1 0; do
        with="RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"
        node $small --steps 20 --run variables --npernode 2
    done
    with=
    collect
    expect "$codes" = "0 0 0 0"
    expect_bits variables

    it "trains under the real torchrun, two agents with two processes each"
    if ! command -v torchrun >/dev/null; then
        skip "no torchrun"
    else
        port=$(free_port)
        for rank in 1 0; do
            OMP_NUM_THREADS=1 timeout -k 5 100 torchrun --no-python --nnodes 2 --node-rank $rank --nproc-per-node 2 --master-addr 127.0.0.1 \
                --master-port "$port" -- "$program" $small --steps 20 --run torchrun >>out 2>>err </dev/null &
            started="$started $!"
        done
        collect
        expect "$codes" = "0 0"
        expect_out 'workers +4 on 1 host'
        expect_bits torchrun
    fi

    it "takes the index of a pod of Kubernetes as the rank of its node"
    port=$(free_port)
    for index in 1 0; do
        with=JOB_COMPLETION_INDEX=$index
        node $small --steps 20 --run pods --workers 2 --num-nodes 2 --master-ip localhost --master-port "$port"
    done
    with=
    collect
    expect "$codes" = "0 0"
    expect_bits pods

    it "takes the index at the end of a pod's host name"
    if ! unshare --uts true 2>/dev/null; then
        skip "needs root"
    else
        port=$(free_port)
        for index in 1 0; do
            KUBERNETES_SERVICE_HOST=10.0.0.1 timeout -k 5 100 unshare --uts sh -c \
                'hostname "train-$0"; exec "$@"' $index "$program" $small --steps 20 --run named --num-nodes 2 \
                --master-ip 127.0.0.1 --master-port "$port" >>out 2>>err </dev/null &
            started="$started $!"
        done
        collect
        expect "$codes" = "0 0"
        expect_bits named
    fi

    it "goes on with another number of nodes and workers"
    port=$(free_port)
    for rank in 1 0; do
        node $small --steps 10 --run part --workers 2 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank $rank
    done
    collect
    expect "$codes" = "0 0"
    lockstep train --run part --resume --steps 20 --workers 3
    expect_code 0
    expect_bits part

    # The parent of a node of an endless run, and its workers.
    begin_nodes() {
        run=$1 port=$(free_port)
        for rank in 1 0; do
            node $small --epochs 1000000 --run "$run" --workers 2 --deadline 5 --master-ip 127.0.0.1 --master-port "$port" \
                --num-nodes 2 --rank $rank
        done
        within 60 grep -q '"kind": "step"' "$run/metrics.jsonl" || miss "the run does not begin"
    }

    parent_of_node() {
        pgrep -f "^[^ ]*lockstep train .*--master-port $port --num-nodes 2 --rank $1\$" | head -n 1
    }

    worker_of_rank() {
        for pid in $(pgrep -f "^[^ ]*lockstep train .*--master-port $port "); do
            tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "LOCKSTEP_LAUNCH_RANK=$1" && echo "$pid"
        done
    }

    none_left() {
        ! pgrep -f "^[^ ]*lockstep train .*--master-port $port " >/dev/null
    }

    it "names the rank of a worker that was killed, on both nodes"
    begin_nodes killed
    kill -9 "$(worker_of_rank 3)"
    collect
    expect "$codes" = "4 4"
    expect_err 'worker 3 \(pid [0-9]+\) was killed by signal 9'
    expect_err 'rank 3 \(pid [0-9]+ on host .*\) is gone'
    within 10 none_left || miss "processes are left"

    it "leaves no process when the parent of a node is killed"
    begin_nodes orphans
    kill -9 "$(parent_of_node 1)"
    collect
    within 20 none_left || miss "processes are left"

    it "saves on all nodes when one of them gets SIGTERM"
    begin_nodes saved
    kill -TERM "$(parent_of_node 1)"
    collect
    expect "$codes" = "75 75"
    expect_out 'Stopped by .* after step [0-9]+; saved saved/checkpoints|Stopped by .*saved saved/checkpoints'

    it "says that nodes were started for different numbers of workers"
    port=$(free_port)
    node $small --steps 1 --run differ --deadline 10 --workers 3 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank 1
    node $small --steps 1 --run differ --deadline 10 --workers 2 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank 0
    collect
    expect "$codes" = "2 2"
    expect_err 'was started for 6 processes, rank 0 for 4; give all the same number'

    it "names the workers of a node that did not come, in one line"
    lockstep $small --workers 2 --deadline 1 --master-ip 127.0.0.1 --master-port "$(free_port)" --num-nodes 2 --rank 0
    expect_code 4
    expect_error 'ranks 2 and 3 did not come to 127.0.0.1:[0-9]+ within 1 s'

    it "refuses a layout on all nodes with the same reason and exit code"
    for layout in "pipeline:2 --compress bf16" "dense:2" "pipeline:2 --replicas 1"; do
        port=$(free_port)
        : >err
        for rank in 1 0; do
            node $small --steps 1 --run never --workers 2 --parallel $layout --master-ip 127.0.0.1 --master-port "$port" \
                --num-nodes 2 --rank $rank
        done
        collect
        expect "$codes" = "2 2"
        expect "$(sort -u err | wc -l)" = 1
    done

    it "computes the given replicas with a pipeline of one stage"
    lockstep $small --steps 20 --run one-stage --workers 3 --parallel data:3,pipeline:1
    expect_code 0
    expect_bits one-stage

    it "says which settings contradict each other, in one line"
    lockstep $small --workers 2 --npernode 3
    expect_code 2
    expect_error '--workers 2 and --npernode 3 both say how many a node has; leave one out'
    SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b lockstep $small \
        --workers 2 --rank 0
    expect_code 2
    expect_error 'two launchers at once: srun without PMI made this rank 1, --rank says 0; leave it out'
    RANK=1 WORLD_SIZE=6 LOCAL_RANK=1 MASTER_ADDR=h lockstep $small --npernode 4
    expect_code 2
    expect_error 'the 6 processes of RANK and WORLD_SIZE are not a multiple'
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 lockstep $small --workers 4
    expect_code 2
    expect_error 'let it start the workers \(mpirun -npernode 4\), or give --master-ip'
    JOB_COMPLETION_INDEX=1 lockstep $small --num-nodes 2 --master-ip no-such-host.invalid --deadline 1
    expect_code 2
    expect_error 'no-such-host.invalid: the host of rank 0 is not known here'
    printf 'a slots=2\nb:two\n' >wrong
    lockstep $small --hostfile wrong
    expect_code 3
    expect_error "wrong:2: 'b:two'; expected HOST, HOST:N or HOST slots=N"
    lockstep $small --hostfile missing
    expect_code 3
    expect_error 'missing: '
    printf '10.255.255.1\n10.255.255.2 slots=2\n' >others
    lockstep $small --hostfile others
    expect_code 2
    expect_error 'others: this host, .*, is not one of its 2 hosts; add it, or give --rank, 0 to 1'
    lockstep $small --master-ip 192.0.2.1 --num-nodes 2 --rank 1 --workers 2
    expect_code 2
    expect_error '192.0.2.1: .* set LOCKSTEP_TOKEN'
}

finish
