#!/bin/sh
# How many threads a run computes with: by what its processes were told, and by the CPU time they may have.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"

options="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:64 --batch 32 --steps 2 --no-evaluate"

# two FIRST SECOND: options of the ranks of a run of two; what rank 0 says is in out and err, its exit code in $code.
# shellcheck disable=SC2086
two() {
    rm -rf meet run
    "$program" train $options --rendezvous "file://$scratch/meet" --num-nodes 2 --rank 1 --run run $2 >out1 2>err1 </dev/null &
    second=$!
    lockstep train $options --rendezvous "file://$scratch/meet" --num-nodes 2 --rank 0 --run run $1
    wait $second
    second_code=$?
}

[ -e "$(dirname "$program")/lockstep-tcp.so" ] || no_tcp="built without libcrypto"

it "says which ranks were given another number of threads"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    two "--threads 1" "--threads 3"
    expect_code 2
    expect_error "--threads 1 on rank 0 \([^)]*\), 3 on rank 1 \([^)]*\)"
    expect $second_code = 2
    # Each rank may have a terminal of its own.
    expect "$(grep -c 'error: --threads 1 on rank 0 ([^)]*), 3 on rank 1 ([^)]*)' err1)" = 1
    expect_no_file run
fi

it "says so where one was given none"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    two "--threads 2" ""
    expect_code 2
    expect_error "--threads 2 on rank 0 \([^)]*\), 0 on rank 1 \([^)]*\)"
fi

it "trains where all have the same"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    two "--threads 1" "--threads 1"
    expect_code 0
    expect $second_code = 0
    expect_out ' 1 thread,'
fi

# A control group of half a core, of either version; "" where none can be made.
group=
make_group() {
    for group in /sys/fs/cgroup/cpu/lockstep-$$ /sys/fs/cgroup/lockstep-$$; do
        mkdir "$group" 2>/dev/null || continue
        if echo 50000 2>/dev/null >"$group/cpu.cfs_quota_us" || echo "50000 100000" 2>/dev/null >"$group/cpu.max"; then
            sh -c "echo \$\$ >$group/cgroup.procs" 2>/dev/null && return
        fi
        rmdir "$group"
    done
    group=
}
release_scratch() {
    [ -z "$group" ] || within 10 rmdir "$group"
}
# In the group.
limited() {
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$program" "$@" >out 2>err </dev/null
    code=$?
}

it "computes with as many threads as a CPU quota pays for"
make_group
if [ -z "$group" ]; then
    skip "no control group can be made here"
elif [ "$(nproc)" = 1 ]; then
    skip "one core is what there is anyway"
else
    # shellcheck disable=SC2086
    limited train $options --run quota
    expect_code 0
    expect_out ' 1 thread,'
    # shellcheck disable=SC2086
    limited train $options --threads 2 --run told
    expect_out ' 2 threads,'
fi

it "says in doctor that there is one"
if [ -z "$group" ]; then
    skip "no control group can be made here"
else
    limited doctor
    expect_out 'quota +a control group gives the time of 0.5 cores'
fi

finish
