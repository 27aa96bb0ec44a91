#!/bin/sh
. tests/cli/harness.sh
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN OMP_NUM_THREADS
modules=$(dirname "$program")
python=${PYTHON:-python3}

# check TEXT: a condition in Python over d, the JSON the program wrote.
check() {
    "$python" - out "$1" <<'END' 2>>err || miss "not so: $1"
import json, sys
d = json.load(open(sys.argv[1]))
topics = {f["topic"]: f for f in d["findings"]}
sys.exit(not eval(sys.argv[2]))
END
}

it "describes the machine it is alone on"
lockstep doctor
expect_code 0
for topic in version system processor library amx topology memory /dev/shm 'huge pages' load affinity threads cuda \
    'plan cache' mpi-openmpi mpi-mpich tcp ucx variables launcher; do
    expect_out "^(ok|missing|warning) +$topic +[^ ]"
done
expect_out '^0 errors, [0-9]+ warning'

it "gives it as JSON"
lockstep doctor --json
expect_code 0
check 'd["kind"] == "doctor" and d["size"] == 1 and d["errors"] == 0 and d["launcher"] == "alone"'
check 'all(f["health"] in ("ok", "missing", "warning", "error") and f["text"] for f in d["findings"])'
check 'all(f["advice"] for f in d["findings"] if f["health"] == "warning")'
check 'len(d["ranks"]) == 1 and d["ranks"][0]["cores"] and d["pairs"] == []'

it "says nothing of what is ok when it is to be quiet"
lockstep doctor --quiet
expect_code 0
expect_no_out '^(ok|missing)'

it "sees that fewer cores are left than there are"
if [ "$(nproc)" -lt 2 ] || ! command -v taskset >/dev/null; then
    skip "needs two cores and taskset"
else
    taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "$program" doctor >out 2>err
    code=$?
    expect_code 0
    expect_out '^warning +affinity +1 of'
fi

it "sees more threads than cores, and variables that say something else"
OMP_NUM_THREADS=7 OMP_THREAD_LIMIT=3 lockstep doctor --threads 4096
expect_code 0
expect_out '^warning +threads +1 process with 4096 threads'
expect_out '^warning +threads +OMP_NUM_THREADS=7'
expect_out '^warning +threads +OMP_THREAD_LIMIT=3'

it "sees a plan cache that cannot be written"
lockstep doctor --plan-cache err/below/plans
expect_code 0
expect_out '^warning +plan cache +err/below/plans cannot be written'
for path in plans new/folder/plans "$scratch/plans"; do
    lockstep doctor --plan-cache "$path"
    expect_out "^ok +plan cache +$path, still empty"
    expect_no_file "$path"
done

it "says what is wrong with a launcher's variables, with exit code 1"
RANK=1 lockstep doctor --json
expect_code 1
check 'd["errors"] == 1 and "WORLD_SIZE" in topics["launcher"]["text"]'

it "says that a transport is missing where it is needed"
mkdir elsewhere && cp "$program" elsewhere/lockstep
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 elsewhere/lockstep doctor >out 2>err
code=$?
rm -r elsewhere
expect_code 1
expect_out '^error +tcp +not here: this Lockstep was built without OpenSSL'
expect_out '^ +To have it: (sudo )?apt-get install libssl-dev'
expect_out '^error +joining '
expect_out '^ok +processor '

it "joins workers and measures each pair of them"
lockstep doctor --workers 3 --json
expect_code 0
check 'd["size"] == 3 and d["transport"] == "shm" and d["launcher"] == "lockstep --workers"'
check 'sorted(p["ranks"] for p in d["pairs"]) == [[0, 1], [0, 2], [1, 2]]'
check 'all(p["latency_us"] > 0 and p["bandwidth_gbs"] > 0 for p in d["pairs"])'
check '[r["rank"] for r in d["ranks"]] == [0, 1, 2] and len({r["pid"] for r in d["ranks"]}) == 3'

it "prints who is where"
lockstep doctor --workers 2
expect_code 0
expect_out '^ *rank +host +pid +cores +threads'
expect_out '^0 - 1 '
expect_out '^ok +memory path .*slowest pair is ranks 0'

it "sees more workers than cores"
workers=$(($(nproc) + 1))
if [ "$workers" -gt 16 ]; then
    skip "too many cores for this"
else
    lockstep doctor --workers $workers
    expect_code 0
    expect_out "^warning +cores +$workers ranks share"
fi

for kind in openmpi mpich; do
    it "knows mpirun of $kind, and ranks on the same cores"
    if [ ! -e "$modules/lockstep-mpi-$kind.so" ]; then
        skip "built without $kind"
    else
        set -- -np 2 "$program" doctor --json
        [ "$kind" = mpich ] || set -- --oversubscribe --bind-to none "$@"
        [ "$kind" = mpich ] || [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
        timeout -k 5 120 "mpirun.$kind" "$@" >out 2>err </dev/null
        code=$?
        expect_code 0
        check 'd["size"] == 2 and d["launcher"].startswith("mpi") and len(d["pairs"]) == 1'
        check 'topics["cores"]["health"] == "warning" and "mpi" in topics["cores"]["advice"] or len(d["ranks"][0]["cores"]) == 1'
    fi
done

it "warns of a meeting place without a token"
if [ ! -e "$modules/lockstep-tcp.so" ]; then
    skip "built without libcrypto"
else
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 5000 * 2 + 1))
    RANK=1 timeout -k 5 120 "$program" doctor >out1 2>err1 </dev/null &
    RANK=0 lockstep doctor
    wait $!
    expect "$?" = 0
    expect_code 0
    expect_out '^warning +token '
    expect "$(cat out1 err1)" = ""
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
fi

it "does not wait for ever for those who do not come"
if [ ! -e "$modules/lockstep-tcp.so" ]; then
    skip "built without libcrypto"
else
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 5000 * 2 + 1)) lockstep doctor --deadline 0.5
    expect_code 1
    expect_out '^error +joining .*rank 1'
fi

it "takes no arguments"
lockstep doctor now
expect_code 2

finish
