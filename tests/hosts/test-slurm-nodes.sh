#!/bin/sh
# A real Slurm of two nodes: slurmd on two hosts of netns.sh. Every way to start on both of them gives the bits of one process.
. tests/cli/harness.sh
. "$source_root/tests/hosts/netns.sh"
. "$source_root/tests/hosts/slurm.sh"
modules=$(dirname "$program")
recipes=$source_root/recipes/slurm
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
export LOCKSTEP_TOKEN=a-secret-of-this-test
small="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:320 --batch 48 --replicas 12 --threads 1
    --schedule constant --no-evaluate"

release_scratch() {
    slurm_down
    hosts_down
}

missing=$(slurm_missing)
missing=${missing:-$(hosts_missing)}
[ -e "$modules/lockstep-tcp.so" ] || missing=${missing:-built without tcp}
it "runs tasks on two nodes"
if [ -n "$missing" ]; then
    skip "$missing"
    finish
fi
mkdir bin
ln -s "$program" bin/lockstep
export PATH="$scratch/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
hosts_up 2 || miss "the hosts do not come up"
slurm_up_on 2 || miss "Slurm does not start: $(tail -n 3 "$slurm"/*.log)"
on 0 srun -N 2 --ntasks-per-node=2 hostname >out 2>err
expect $? = 0
expect "$(sort out | tr '\n' ' ')" = "host0 host0 host1 host1 "

# under_srun WORDS: srun on both nodes, from the first.
under_srun() {
    timeout -k 5 100 nsenter --target "$hosts_pid0" --net --uts --ipc --mount --wdns="$PWD" -- srun -N 2 "$@" >out 2>err </dev/null
    code=$?
}

expect_bits() {
    expect_same one/checkpoints/step-00000020/model.safetensors "$1/checkpoints/step-00000020/model.safetensors"
}

# $small is a list of words.
# shellcheck disable=SC2086
{
    it "trains in two tasks on each node, without PMI"
    lockstep train $small --steps 20 --run one
    expect_code 0
    under_srun --ntasks-per-node=2 --mpi=none lockstep train $small --steps 20 --run plain
    expect_code 0
    expect_out 'workers +4 on 2 hosts over tcp'
    expect_bits plain

    it "trains in two tasks on each node, with PMIx"
    if [ ! -e "$modules/lockstep-mpi-openmpi.so" ] || ! srun --mpi=list 2>&1 | grep -q pmix; then
        skip "needs Open MPI and Slurm's PMIx plugin"
    else
        under_srun --ntasks-per-node=2 --mpi=pmix lockstep train $small --steps 20 --run pmix
        expect_code 0
        expect_out 'workers +4 on 2 hosts over mpi'
        expect_bits pmix
    fi

    for mpi in pmix pmi2 none; do
        it "starts three workers from one task on each node (--mpi=$mpi)"
        if ! srun --mpi=list 2>&1 | grep -q "$mpi"; then
            skip "no $mpi"
            continue
        fi
        under_srun --ntasks-per-node=1 --mpi=$mpi lockstep train $small --steps 20 --run "one-$mpi" --workers 3
        expect_code 0
        expect_out 'workers +6 on 2 hosts over tcp'
        expect "$(grep -c '^Training' out)" = 1
        expect_bits "one-$mpi"
    done

    it "takes --master-ip, --num-nodes and --rank from srun's variables"
    under_srun --ntasks-per-node=1 sh -c 'exec lockstep train --workers 2 --master-ip host0 --num-nodes $SLURM_NNODES \
        --rank $SLURM_NODEID "$@"' sh $small --steps 20 --run by-hand
    expect_code 0
    expect_out 'workers +4 on 2 hosts over tcp'
    expect_bits by-hand

    it "trains by train-nodes.sbatch"
    job=$(WORKERS=2 on 0 sbatch --parsable --nodes=2 --cpus-per-task=2 --output=out --error=err "$recipes/train-nodes.sbatch" \
        $small --steps 20 --run batch)
    job_ended() {
        on 0 scontrol --oneliner show job "$job" | grep -qE ' JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL) '
    }
    within 60 job_ended || miss "the job does not end"
    expect_out 'workers +4 on 2 hosts over tcp'
    expect_bits batch

    it "saves in all workers when Slurm sends the signal before the limit"
    job=$(WORKERS=2 on 0 sbatch --parsable --nodes=2 --cpus-per-task=2 --output=out --error=err "$recipes/train-nodes.sbatch" \
        $small --epochs 1000000 --run limit)
    within 60 grep -q '"kind": "step"' limit/metrics.jsonl || miss "the run does not begin"
    on 0 scancel --signal=USR1 "$job"
    within 60 job_ended || miss "the job does not end"
    expect_err 'Exited with exit code 75'
    step=$(ls limit/checkpoints | grep -c step-)
    expect "$step" -ge 1

    it "measures 1, 2 and 4 workers in one launch of srun"
    bench="bench --model mlp --data synthetic:1x8x8:4:64 --batch 8 --threads 1 --steps 2 --warmup-steps 1 --repeat 2"
    under_srun --ntasks-per-node=2 --mpi=none lockstep $bench --scale 1,2,4
    expect_code 0
    expect_out 'over tcp between 2 nodes and shared memory within a node'
    expect_out '^ +4 +8 '
    under_srun --ntasks-per-node=1 lockstep $bench --scale 1,2,4 --workers 2
    expect_code 0
    expect_out '^ +4 +8 '

    it "names the worker that was killed, on the other node"
    job=$(WORKERS=2 on 0 sbatch --parsable --nodes=2 --cpus-per-task=2 --output=out --error=err "$recipes/train-nodes.sbatch" \
        $small --epochs 1000000 --deadline 5 --run killed)
    within 60 grep -q '"kind": "step"' killed/metrics.jsonl || miss "the run does not begin"
    for pid in $(ip netns pids "$hosts_prefix-1"); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx LOCKSTEP_LAUNCH_RANK=3 && kill -9 "$pid"
    done
    within 60 job_ended || miss "the job does not end"
    expect_err 'worker 3 \(pid [0-9]+\) was killed by signal 9'
    expect_err 'rank 3 \((pid [0-9]+ on )?host host1\)'

    it "says that srun has placed the processes already"
    under_srun --ntasks-per-node=2 lockstep train $small --workers 3
    expect "$code" != 0
    expect_err '--workers 3 starts processes, but srun .* has done that already; leave it out'
    under_srun --ntasks-per-node=1 lockstep train $small --workers 2 --rank 5
    expect_err 'two launchers at once: srun .* made this rank [01], --rank says 5; leave it out'

    # Without Slurm: the same command on each host.
    for names in "host0 slots=2
host1:1" "$(address 0):2
$(address 1)"; do
        it "finds this host in a hostfile: $(echo "$names" | tr '\n' ' ')"
        echo "$names" >hosts.txt
        rm -rf by-file
        on 1 timeout 60 "$program" train $small --steps 20 --run by-file --hostfile hosts.txt >other 2>&1 &
        other=$!
        on 0 timeout 60 "$program" train $small --steps 20 --run by-file --hostfile hosts.txt >out 2>err
        expect $? = 0
        wait $other
        expect "$?$(cat other)" = 0
        expect_out 'workers +3 on 2 hosts over tcp'
        expect_bits by-file
    done

    it "waits for the name of a pod that is not known yet"
    on 1 env JOB_COMPLETION_INDEX=1 timeout 60 "$program" train $small --steps 20 --run pods --workers 2 --num-nodes 2 \
        --master-ip train-0.train >other 2>&1 &
    other=$!
    begun() {
        ip netns pids "$hosts_prefix-1" | while read -r pid; do cat "/proc/$pid/comm"; done | grep -qx lockstep
    }
    within 30 begun || miss "the pod does not start"
    echo "$(address 0) train-0.train" >>"$scratch/hosts/names"
    on 0 env JOB_COMPLETION_INDEX=0 timeout 60 "$program" train $small --steps 20 --run pods --workers 2 --num-nodes 2 \
        --master-ip train-0.train >out 2>err
    expect $? = 0
    wait $other
    expect "$?$(cat other)" = 0
    expect_out 'workers +4 on 2 hosts over tcp'
    expect_bits pods
}

finish
