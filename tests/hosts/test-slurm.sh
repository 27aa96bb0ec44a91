#!/bin/sh
# The recipes of recipes/slurm/ under a real Slurm of one node (slurm.sh). Needs root, slurm-wlm and munge.
. tests/cli/harness.sh
. "$source_root/tests/hosts/slurm.sh"

release_scratch() {
    slurm_down
}

missing=$(slurm_missing)
# Does this program know how to train in several processes? One that does not run at all is no reason to skip.
lockstep train --help
[ "$code" = 0 ] || {
    echo "Bail out! $program does not run"
    exit 1
}
grep -q -e '--master-ip' out || alone="this program trains in one process"
alone=${missing:-${alone:-}}
command -v mpirun.openmpi >/dev/null && command -v mpicc.openmpi >/dev/null || no_mpi="needs Open MPI"
no_mpi=${missing:-${no_mpi:-}}

# Recipes say `lockstep` and mean the one under test. mpirun wants to be asked twice before it runs as root.
mkdir bin
ln -s "$program" bin/lockstep
export PATH="$scratch/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
recipes=$source_root/recipes/slurm

# submit PROCESSES RECIPE ARGUMENTS: a small run; its number in job. Arguments that begin with + are sbatch's.
submit() {
    processes=$1 recipe=$2
    shift 2
    options=
    while [ $# -gt 0 ] && [ "${1#+}" != "$1" ]; do
        options="$options ${1#+}"
        shift
    done
    # $options is a list of words.
    # shellcheck disable=SC2086
    job=$(sbatch --parsable --nodes=1 --ntasks-per-node="$processes" --cpus-per-task=1 --output=out --error=err \
        $options "$recipes/$recipe" --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:320 \
        --batch 32 --replicas 2 --threads 1 "$@" 2>err)
}

# Waits for the job, and for all jobs where it is an array; the largest exit code. sbatch --wait would
# look every two seconds only, and then less often.
wait_for_job() {
    within 120 job_ended || miss "job $job does not end: $(scontrol --oneliner show job "$job")"
    code=$(scontrol --oneliner show job "$job" | sed 's/.* ExitCode=\([0-9]*\):.*/\1/' | sort -n | tail -n 1)
}

job_ended() {
    scontrol --oneliner show job "$job" >job.state &&
        ! grep -vqE ' JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL) ' job.state
}

weights() {
    sha256sum <"$1/checkpoints/step-$2/model.safetensors"
}

it "runs a command under srun"
if [ -n "$missing" ]; then
    skip "$missing"
else
    slurm_up || miss "Slurm does not start: $(tail -n 3 "$slurm"/*.log)"
    srun -n 2 hostname >out 2>err
    expect $? = 0
    expect "$(grep -cx "$(hostname)" out)" = 2
fi

it "measures under srun: every number of workers in one launch, or a table of several launches"
if [ -n "$missing" ]; then
    skip "$missing"
else
    small="--model mlp --data synthetic:1x8x8:4:64 --batch 8 --threads 1 --steps 2 --warmup-steps 1 --repeat 2"
    # shellcheck disable=SC2086
    {
        timeout 120 srun --mpi=none -n 1 "$program" bench $small -o bench-1.json >out 2>err </dev/null
        expect $? = 0
        timeout 120 srun --mpi=none -n 2 "$program" bench $small -o bench-2.json >out 2>err </dev/null
        expect $? = 0
        timeout 120 srun --mpi=none -n 2 "$program" bench $small --scale 1,2 >out 2>err </dev/null
        expect $? = 0
    }
    expect_out '^ +1 .* 1\.00 +100%'
    expect_out '^ +2 '
    lockstep bench --merge bench-1.json bench-2.json
    expect_code 0
    expect_out '^ +1 .* 1\.00 +100%'
    expect_out '^ +2 '
fi

it "starts an MPI program under srun with PMIx"
if [ -n "$no_mpi" ]; then
    skip "$no_mpi"
elif ! srun --mpi=list 2>&1 | grep -q pmix; then
    skip "Slurm has no PMIx plugin"
else
    mpicc.openmpi -o mpi_sum "$source_root/tests/hosts/mpi_sum.c" 2>err || miss "mpicc fails"
    timeout 120 srun --mpi=pmix -n 4 ./mpi_sum >out 2>err
    expect $? = 0
    expect "$(grep -c 'rank [0-3] of 4, sum 10$' out)" = 4
fi

it "trains by train.sbatch"
if [ -n "$missing" ]; then
    skip "$missing"
else
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:320 --batch 32 --replicas 2 \
        --threads 1 --schedule constant --steps 20 --run plain
    expect_code 0
    submit 1 train.sbatch --schedule constant --steps 20 --run batch
    wait_for_job
    expect_code 0
    expect "$(weights plain 00000020)" = "$(weights batch 00000020)"
fi

it "hands the program's exit code on"
if [ -n "$missing" ]; then
    skip "$missing"
else
    submit 1 train.sbatch --steps 1 --augment nonsense --run none
    wait_for_job
    expect_code 2
    expect_err nonsense
fi

it "trains by train-mpirun.sbatch"
if [ -n "$no_mpi" ]; then
    skip "$no_mpi"
else
    submit 1 train-mpirun.sbatch --schedule constant --steps 20 --run under-mpirun
    wait_for_job
    expect_code 0
    expect "$(weights plain 00000020)" = "$(weights under-mpirun 00000020)"
fi

it "goes on in the next job of train-array.sbatch"
if [ -n "$missing" ]; then
    skip "$missing"
else
    EPOCHS=1 RUN=array submit 1 train-array.sbatch +--array=1-2%1 +--open-mode=append --schedule constant
    wait_for_job
    expect_code 0
    expect_file array/checkpoints/step-00000010/model.safetensors
    expect "$(weights plain 00000020)" = "$(weights array 00000020)"
fi

it "stages the data of the nodes and goes on in the next job by thesis/train.sbatch"
if [ -n "$missing" ]; then
    skip "$missing"
else
    for class in a b; do
        mkdir -p "photos/train/$class" "photos/val/$class" local
        for part in train val; do
            for image in 1 2 3 4; do
                { printf 'P5 14 14 255\n' && head -c 196 /dev/zero | tr '\0' "$image"; } >"photos/$part/$class/$image.pgm"
            done
        done
    done
    DATA=$PWD/photos LOCAL=$PWD/local EPOCHS=2 RUN=staged submit 1 ../thesis/train.sbatch +--gres=none +--array=1-2%1 \
        +--open-mode=append --schedule constant --batch 4
    wait_for_job
    expect_code 0
    expect_file local/lockstep-photos/.lockstep-staged
    expect_file staged/checkpoints/step-00000008/model.safetensors
    expect_out 'Going on after step 4'
fi

it "measures several numbers of workers by thesis/throughput.sbatch"
if [ -n "$missing" ]; then
    skip "$missing"
else
    BATCHES="4 8" SCALE=1,2 submit 2 ../thesis/throughput.sbatch +--gres=none --input 1x14x14 --steps 2 --warmup-steps 1 \
        --repeat 2
    wait_for_job
    expect_code 0
    expect_file throughput-4.json
    expect_file throughput-8.json
    expect_file throughput.html
    expect_out 'Report: throughput.html'
fi

# --- several processes ------------------------------------------------------------------------------------

for way in train train-plain train-mpirun; do
    it "trains in two processes by $way.sbatch, to the bits of one"
    if [ -n "$alone" ]; then
        skip "$alone"
    elif [ $way != train-plain ] && [ -n "$no_mpi" ]; then
        skip "$no_mpi"
    else
        submit 2 $way.sbatch --schedule constant --steps 20 --run "two-$way"
        wait_for_job
        expect_code 0
        case $way in
            train-plain) expect_out '2 on 1 host over tcp' ;;
            *) expect_out '2 on 1 host over mpi' ;;
        esac
        expect "$(weights plain 00000020)" = "$(weights "two-$way" 00000020)"
    fi
done

# chain PROCESSES ARGUMENTS: an endless run that is told to save, as Slurm does it before the limit, and goes on.
chain() {
    processes=$1
    shift
    RUN=$run submit "$processes" train-chain.sbatch --schedule constant --epochs 1000000 --no-evaluate \
        --checkpoint-every 100000000 "$@"
    within 60 grep -q '"kind": "step"' "$run/metrics.jsonl" || miss "the run does not begin"
    scancel --signal=USR1 "$job"
    within 60 grep -q 'Going on after step' out || miss "the job does not go on"
    expect_err 'Exited with exit code 75'
    expect_no_out 'Terminated|Killed'
    step=$(sed -n 's/.*Going on after step \([0-9]*\) .*/\1/p' out | head -n 1)
    expect_file "$run/checkpoints/step-$(printf %08d "${step:-0}")/model.safetensors"
    scancel "$job"
    within 120 job_ended || miss "the job does not end"
}

it "saves at the signal before the limit and queues itself again by train-chain.sbatch"
if [ -n "$missing" ]; then
    skip "$missing"
else
    run=chain
    chain 1
fi

it "starts again by train-chain.sbatch where a job died before it saved"
if [ -n "$missing" ]; then
    skip "$missing"
else
    run=chain-early
    mkdir $run
    cp batch/plan.txt batch/log.txt $run
    sed 's/^steps:.*/steps: 0/' batch/config.yaml >$run/config.yaml
    chain 1
    expect_out 'chain-early has no checkpoint yet'
fi

it "saves at the signal in two processes, and goes on in both"
if [ -n "$no_mpi" ]; then
    skip "$no_mpi"
else
    run=chain-2
    chain 2
    expect_out '2 on 1 host over mpi'
fi

it "saves at the signal in workers that the program started, which get it twice"
if [ -n "$missing" ]; then
    skip "$missing"
else
    run=chain-workers
    chain 1 --workers 2
    expect_out '2 on 1 host over shm'
fi

# The process of a rank of the job.
# The first is the rank itself; a child that tries instructions may be beside it for a moment.
process_of() {
    for pid in $(pgrep -x lockstep); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" >environ
        ! grep -qx "SLURM_JOB_ID=$job" environ || ! grep -qx "SLURM_PROCID=$1" environ || echo "$pid"
    done | head -n 1
}

it "ends the job, with the rank named, when a process dies"
if [ -n "$alone" ]; then
    skip "$alone"
else
    submit 2 train-plain.sbatch --epochs 1000000 --no-evaluate --deadline 10 --run dies
    within 60 grep -q '"kind": "step"' dies/metrics.jsonl || miss "the run does not begin"
    kill -9 "$(process_of 1)"
    wait_for_job
    expect "$code" -ne 0
    expect_err 'rank 1 |task 1: Killed'
fi

finish
