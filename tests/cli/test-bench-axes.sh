#!/bin/sh
# bench over lists of options: every combination is measured, in processes of their own.
. tests/cli/harness.sh
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN
modules=$(dirname "$program")
python=${PYTHON:-python3}
small="--model mlp --data synthetic:1x8x8:4:64 --batch 8 --threads 1 --steps 2 --warmup-steps 1 --repeat 2"

# check TEXT [FILE]: a condition in Python over r, the rows that the program wrote as JSON, and d, all of it.
check() {
    "$python" - "${2:-out}" "$1" <<'END' 2>>err || miss "not so: $1"
import itertools, json, statistics, sys
d = json.load(open(sys.argv[1]))
r = d["results"]
near = lambda a, b: abs(a - b) <= 1e-6 * abs(b)
sys.exit(not eval(sys.argv[2]))
END
}

# $small is a list of words.
# shellcheck disable=SC2086
{
    it "measures the product of the lists, the last option of the help first"
    lockstep bench $small --batch 8,4 --model mlp,lenet --data synthetic:1x28x28:4:64 --compress none,fp16 --json
    expect_code 0
    check '[(x["model"], x["batch"], x["compress"]) for x in r] == list(itertools.product(["mlp", "lenet"], [8, 4], ["none", "fp16"]))'
    check 'all(len(x["repetitions"]) == 2 for x in r)'
    check 'all(x["nodes"] == 1 and x["workers"] == 1 and x["workers_per_node"] == 1 and x["threads"] == 1 for x in r)'
    check 'all(x["dtype"] == "f32" and x["sync"] == "overlap" and x["backend"] == "onednn" for x in r)'
    check 'all(near(x["median"], statistics.median(x["repetitions"])) for x in r)'
    check 'all(near(x["mean"], statistics.mean(x["repetitions"])) for x in r)'
    check 'all(near(x["deviation"], statistics.stdev(x["repetitions"])) for x in r)'
    check 'all(near(x["variation"], statistics.stdev(x["repetitions"]) / statistics.mean(x["repetitions"])) for x in r)'
    check 'all(x["best"] == (x["median"] == max(y["median"] for y in r if y["model"] == x["model"])) for x in r)'
    check '"--batch 8,4" in d["bench"]["command"] and d["bench"]["time"].endswith("Z") and d["bench"]["machine"] == r[0]["machine"]'

    it "compares numbers of workers"
    lockstep bench $small --workers 2,1 --sync overlap,gather --repeat 1 --json
    expect_code 0
    check '[(x["workers"], x["sync"]) for x in r] == [(2, "overlap"), (2, "gather"), (1, "overlap"), (1, "gather")]'
    check 'all(near(x["speedup"], x["median"] / y["median"]) and near(x["efficiency"], x["speedup"] / x["workers"]) for x in r for y in r if y["workers"] == 1 and x["sync"] == y["sync"])'
    check 'all(x["deviation"] == 0 and x["variation"] == 0 and x["batch"] == 8 for x in r)'

    it "grows the batch with the workers where asked to"
    lockstep bench $small --workers 1,2 --weak --repeat 1 --json
    expect_code 0
    check '[(x["workers"], x["batch"], x["scaling"]) for x in r] == [(1, 8, "weak"), (2, 16, "weak")]'
    check 'near(r[1]["efficiency"], r[1]["median"] / r[0]["median"] / 2)'

    it "does so without lists too"
    lockstep bench $small --workers 2 --weak --repeat 1 --json
    check 'r[0]["batch"] == 16 and d["batch"] == 16 and r[0]["scaling"] == "weak"'

    it "shows a configuration that fails as a row with its reason"
    lockstep bench $small --dtype f32,fp16 -o rows.json
    expect_code 1
    expect_error '1 of 2 configurations failed, the first of them: --dtype fp16: .*--backend cuda'
    expect_out '^fp16 .* - +failed: --dtype fp16: '
    expect_out '^f32 .* best$'
    check 'r[0]["median"] > 0 and "error" not in r[0] and "fp16" in r[1]["error"] and r[1]["repetitions"] == []' rows.json
    lockstep bench --merge rows.json
    expect_code 0

    it "ends with the error where all fail"
    lockstep bench $small --model lenett --batch 8,16 -o never.json
    expect_code 2
    expect_error '2 of 2 configurations failed, the first of them: .*lenett.*lenet'
    expect_no_file never.json

    it "measures an item once that stands twice"
    lockstep bench $small --batch 8,8 --repeat 1 --json
    expect_code 0
    expect_error 'warning: --batch: 8 stands twice'
    check '[x["batch"] for x in r] == [8]'

    it "takes lists from a file and the environment, and the command line wins"
    printf 'model: mlp\ndata: synthetic:1x8x8:4:64\nbatch: 8,16\nthreads: 1,2\nsteps: 1\nrepeat: 1\n' >'a list.yaml'
    LOCKSTEP_DTYPE=f32,fp16 lockstep bench --json --threads 1 --dtype f32 -- 'a list.yaml'
    expect_code 0
    check '[(x["batch"], x["threads"], x["dtype"]) for x in r] == [(8, 1, "f32"), (16, 1, "f32")]'

    it "takes --threads 0 as all cores"
    lockstep bench $small --threads 0,1 --repeat 1 --json
    expect_code 0
    check 'r[0]["threads"] >= 1 and r[1]["threads"] == 1'

    for list in 32,abc 32,,64 ',' '32,' 0,8 8,-1 8x 8,1e3 ''; do
        it "refuses --batch '$list'"
        lockstep bench $small "--batch=$list"
        expect_code 2
        expect_error '--batch: '
    done

    it "refuses what cannot be listed"
    lockstep bench $small --batch 8,16 --profile
    expect_code 2
    expect_error '--profile shows one configuration'
    lockstep bench $small --workers 2,3 --collective
    expect_code 2
    expect_error 'measures steps and --collective sums'
    lockstep bench $small --threads "$(seq -s , 1 200)" --batch "$(seq -s , 1 200)"
    expect_code 2
    expect_error 'more than 10000 combinations'

    it "leaves nothing behind but the result"
    # shellcheck disable=SC2012
    expect "$(ls | sort | tr '\n' ' ')" = 'a list.yaml err out rows.json '

    it "keeps what was measured when it is interrupted"
    lockstep models show vgg16 --yaml
    mv out "$scratch/slow.yaml"
    "$program" bench --model "mlp,$scratch/slow.yaml" --batch 1 --threads 1 --steps 500 --repeat 3 -o part.json >out 2>err </dev/null &
    child=$!
    while kill -0 $child && ! grep -qszx "$scratch/slow.yaml" /proc/[0-9]*/cmdline; do # until the second one is measured
        sleep 0.1
    done
    kill -TERM $child
    wait $child
    code=$?
    expect_code 75
    expect_out '^mlp .* best$'
    expect_out 'slow.yaml .* failed: not measured: interrupted$'
    check 'len(r[0]["repetitions"]) == 1 and r[1]["repetitions"] == []' part.json
    ! grep -qszx "$scratch/slow.yaml" /proc/[0-9]*/cmdline || miss "the bench goes on"

    it "says how long a large table takes, and begins"
    "$program" bench $small --batch "$(seq -s , 1 100)" --bucket-mb "$(seq -s , 1 10)" -o large.json >out 2>err </dev/null &
    child=$!
    while kill -0 $child && [ ! -s err ]; do
        sleep 0.1
    done
    kill -TERM $child
    wait $child
    code=$?
    expect_code 75
    expect_error '1000 configurations, 2 repetitions: about [0-9:]+$'
    check 'len(r) == 1000 and r[0]["repetitions"] and r[999]["batch"] == 100 and r[999]["bucket_mb"] == 10' large.json

    it "finds the largest batch that fits"
    (
        # what a process may map stands for what the machine has
        # shellcheck disable=SC3045
        ulimit -v 500000
        lockstep bench --model mlp --input 3x64x64 --threads 1 --batch max,8 --steps 1 --warmup-steps 0 --repeat 1 --json
        exit $code
    )
    code=$?
    expect_code 0
    check 'r[0]["largest"] and r[0]["batch"] > 100 and r[1]["batch"] == 8 and "largest" not in r[1]'
    check 'r[0]["peak_bytes"] < r[0]["predicted_bytes"] < 500000 * 1024'
    check 'r[0]["predicted_bytes"] > 90e6'

    it "passes on what a child reports, once and with one prefix"
    lockstep bench $small --model lenet --data synthetic:1x28x28:4:64 --batch 8,16 --tune --repeat 1
    expect_code 0
    expect_err '^lockstep: measuring kernels on'
    expect "$(grep -c 'measuring kernels on' err)" = 1
    expect "$(grep -c 'lockstep: lockstep:' err)" = 0

    it "finds no more than there is data"
    lockstep bench $small --batch max --repeat 1 --json
    expect_code 0
    check 'r[0]["batch"] == 64'
}

it "is one result of processes on several nodes"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export LOCKSTEP_TOKEN=of-this-test MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" WORLD_SIZE=2
# shellcheck disable=SC2086
{
    RANK=1 LOCKSTEP_NODE=b "$program" bench $small --weak -o nodes.json >other 2>&1 </dev/null &
    RANK=0 LOCKSTEP_NODE=a lockstep bench $small --weak -o nodes.json
    wait $!
    expect "$?" = 0
}
unset LOCKSTEP_TOKEN MASTER_ADDR MASTER_PORT WORLD_SIZE
expect_code 0
expect_out '^ +2 +1 +[0-9.]+ '
check 'len(r) == 1 and (r[0]["workers"], r[0]["nodes"], r[0]["workers_per_node"], r[0]["batch"]) == (2, 2, 1, 16)' nodes.json

it "marks what has more threads than cores"
# shellcheck disable=SC2086
lockstep bench $small --threads "1,$(($(getconf _NPROCESSORS_ONLN) + 1))" --repeat 1
expect_code 0
expect_out '^ +1 [^,]*$'
expect_out 'more threads than cores$'

for kind in openmpi mpich; do
    it "is one result of the processes that $kind starts"
    if [ ! -e "$modules/lockstep-mpi-$kind.so" ]; then
        skip "built without $kind"
        continue
    fi
    mpi() {
        set -- -np 2 "$program" bench "$@"
        [ "$kind" = mpich ] || set -- --oversubscribe "$@"
        [ "$kind" = mpich ] || [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
        # MPICH's mpirun itself may be killed by SIGPIPE, 141, when processes end at once on a busy machine.
        for _ in 1 2 3; do
            timeout -k 5 120 "mpirun.$kind" "$@" >out 2>err </dev/null
            code=$?
            [ $code = 141 ] || break
        done
    }
    # shellcheck disable=SC2086
    {
        mpi $small -o two.json
        expect_code 0
        check 'len(r) == 1 and r[0]["workers"] == 2 and r[0]["nodes"] == 1 and len(r[0]["repetitions"]) == 2' two.json
        lockstep bench $small -o one.json
        lockstep bench --merge two.json one.json --json
        expect_code 0
        check '[x["workers"] for x in r] == [1, 2] and near(r[1]["speedup"], r[1]["median"] / r[0]["median"])'

        it "measures the numbers of processes that $kind has started, and says how to measure others"
        mpi $small --scale 1,2,4 --repeat 1 -o scaled.json
        expect_code 0
        expect_err 'mpirun -np 4 .*lockstep bench --model mlp .*--threads 1 -o bench-4.json$'
        expect_err 'lockstep bench --merge bench-1.json bench-2.json bench-4.json$'
        check '[x["workers"] for x in r] == [1, 2]' scaled.json

        it "refuses lists in the processes that $kind starts"
        mpi $small --batch 4,8
        expect_code 2
        expect_err 'error: bench measures lists with processes that it starts itself, but mpi'
        expect "$(grep -c 'bench measures lists' err)" = 1
    }
done

finish
