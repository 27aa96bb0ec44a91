#!/bin/sh
. tests/cli/harness.sh
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN
modules=$(dirname "$program")
python=${PYTHON:-python3}
small="--model lenet --data synthetic:1x28x28:10 --batch 16 --steps 3 --warmup-steps 1"

# check TEXT: a condition in Python over d, the JSON the program wrote.
check() {
    "$python" - out "$1" <<'END' 2>>err || miss "not so: $1"
import json, statistics, sys
d = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))
END
}

# $small is a list of words.
# shellcheck disable=SC2086
{
    it "compares numbers of workers"
    lockstep bench --scale 1,2,3 --repeat 2 $small --batch 18
    expect_code 0
    expect_out '^lenet, strong scaling: batch 18, [0-9]+ threads? a worker, 2 repetitions'
    expect_out '^workers +batch +#1 +#2 +median +mean +sd +CV +speed-up +efficiency$'
    for workers in 1 2 3; do
        expect_out "^ *$workers +18 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+%$"
    done
    expect_out '^ *1 .* 1\.00 +100%$'

    it "gives it as JSON"
    lockstep bench --scale 2,1 --repeat 3 $small --json
    expect_code 0
    check 'd["kind"] == "scale" and d["scaling"] == "strong" and [e["workers"] for e in d["entries"]] == [2, 1]'
    check 'all(e["batch"] == 16 and len(e["samples_per_s_repeats"]) == 3 for e in d["entries"])'
    check 'all(abs(e["median"] / statistics.median(e["samples_per_s_repeats"]) - 1) < 1e-6 for e in d["entries"])'
    check 'all(abs(e["cv"] * statistics.mean(e["samples_per_s_repeats"]) / statistics.stdev(e["samples_per_s_repeats"]) - 1) < 1e-6 for e in d["entries"])'
    check 'abs(d["entries"][1]["speedup"] / (d["entries"][1]["median"] / d["entries"][0]["median"]) - 1) < 1e-6'
    check 'abs(d["entries"][1]["efficiency"] / (2 * d["entries"][1]["speedup"]) - 1) < 1e-6'

    it "grows the batch with the workers where asked to"
    lockstep bench --scale 1,2 --weak --repeat 1 $small --json
    expect_code 0
    check 'd["scaling"] == "weak" and [e["batch"] for e in d["entries"]] == [16, 32]'

    it "takes options from a file and the environment too"
    printf 'model: lenet\ndata: synthetic:1x28x28:10\nbatch: 8\nsteps: 2\nrepeat: 1\nscale: 1,2\nthreads: 1\n' >scale.yaml
    LOCKSTEP_WARMUP_STEPS=1 lockstep bench --json -- scale.yaml
    expect_code 0
    check '[e["workers"] for e in d["entries"]] == [1, 2] and d["threads"] == 1 and d["batch"] == 8'

    it "ends with what a bench ends with"
    lockstep bench --scale 1,2 --model lenett
    expect_code 2
    expect_error 'lenett.*lenet'

    for list in 0 '1,' 1,,2 one 1,2x -1 5000 1:2; do
        it "refuses --scale $list"
        lockstep bench "--scale=$list" $small
        expect_code 2
        expect_error 'scale'
    done

    it "refuses workers of others"
    lockstep bench --scale 1,2 --workers 2 $small
    expect_code 2
    expect_error '--workers has asked'

    it "measures sums"
    lockstep bench --collective --workers 2 --largest-mb 1
    expect_code 0
    expect_out '^# 2 ranks on 1 host, transport shm, collective auto'
    expect_out '^ *size +count +type +redop +algorithm +time +algbw +busbw +#wrong'
    expect "$(grep -cE '^ *[0-9]+ +[0-9]+ +float +sum +tree +[0-9.]+ +[0-9.]+ +[0-9.]+ +0$' out)" = 6
    expect_out '^# Avg bus bandwidth'

    it "gives them as JSON, for each way to make them"
    for way in tree hier ring; do
        lockstep bench --collective $way --workers 3 --largest-mb 1 --json
        expect_code 0
        check 'd["kind"] == "collective" and d["ranks"] == 3 and d["nodes"] == 1'
        check '[s["size"] for s in d["sizes"]] == [1024 << 2 * i for i in range(6)]'
        check 'all(s["wrong"] == 0 and s["count"] * 4 == s["size"] for s in d["sizes"])'
        check 'all(abs(s["busbw"] / s["algbw"] - 4 / 3) < 1e-6 for s in d["sizes"])'
        check 'all(abs(s["size"] / s["time_us"] / 1000 / s["algbw"] - 1) < 1e-6 for s in d["sizes"])'
    done
    check 'all(s["algorithm"] == "ring" and not s["exact"] for s in d["sizes"])'
}

for kind in openmpi mpich; do
    it "measures the sums of $kind"
    if [ ! -e "$modules/lockstep-mpi-$kind.so" ]; then
        skip "built without $kind"
    else
        set -- -np 2 "$program" bench --collective=mpi --largest-mb 1 --json
        [ "$kind" = mpich ] || set -- --oversubscribe "$@"
        [ "$kind" = mpich ] || [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
        timeout -k 5 120 "mpirun.$kind" "$@" >out 2>err </dev/null
        code=$?
        expect_code 0
        check 'd["transport"] == "mpi" and all(s["algorithm"] == "mpi" and s["wrong"] == 0 for s in d["sizes"])'
    fi
done

it "needs an MPI launcher for the sums of MPI"
lockstep bench --collective mpi --workers 2
expect_code 2
expect_err 'needs a run started by mpirun'

it "needs several processes for sums"
lockstep bench --collective
expect_code 2
expect_error '--workers 2'

it "takes a collective of a file for the steps"
printf 'collective: ring\nmodel: lenet\ndata: synthetic:1x28x28:10\nsteps: 2\nrepeat: 1\n' >ring.yaml
lockstep bench ring.yaml --workers 2 --json
expect_code 0
check 'd["kind"] == "bench" and d["workers"] == 2'

finish
