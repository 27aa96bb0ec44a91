#!/bin/sh
# bench --scale in the processes of one launch.
. tests/cli/harness.sh
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN LOCKSTEP_NODE
modules=$(dirname "$program")
python=${PYTHON:-python3}
small="--model mlp --data synthetic:1x28x28:10 --batch 24 --steps 5 --warmup-steps 1 --no-tune --threads 1 --repeat 2"

# check FILE TEXT: a condition in Python over d, the JSON in the file.
check() {
    "$python" - "$1" "$2" <<'END' 2>>err || miss "not so: $2"
import json, sys
d = json.load(open(sys.argv[1]))
rows = [(e["workers"], e["batch"], len(e["samples_per_s_repeats"])) for e in d.get("entries", [])]
sys.exit(not eval(sys.argv[2]))
END
}

free_port() {
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# ranks WORDS: three processes of bench with --rank 0, 1 and 2. Rank 0's output is in out and err; $code1 and $code2 are the
# exit codes of the others.
ranks() {
    timeout -k 5 100 "$program" bench "$@" --num-nodes 3 --rank 1 >out1 2>err1 </dev/null &
    first=$!
    timeout -k 5 100 "$program" bench "$@" --num-nodes 3 --rank 2 >out2 2>err2 </dev/null &
    second=$!
    lockstep bench "$@" --num-nodes 3 --rank 0
    wait "$first"
    code1=$?
    wait "$second"
    code2=$?
}

# $small is a list of words.
# shellcheck disable=SC2086
{
    it "measures 1, 2 and 3 of the processes of a TCP launch"
    ranks $small --scale 1,2,3 --master-ip 127.0.0.1 --master-port "$(free_port)"
    expect_code 0
    expect "$code1 $code2" = "0 0"
    expect_out '^the first ranks of --master-ip, over shared memory on one node$'
    for workers in 1 2 3; do
        expect_out "^ *$workers +24 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+%$"
    done
    expect "$(cat out1 out2 err1 err2)" = ""

    it "meets in a folder, and grows the batch"
    ranks $small --scale 1,3 --weak --json --rendezvous "file://$PWD/a folder"
    expect_code 0
    expect "$code1 $code2" = "0 0"
    check out 'rows == [(1, 24, 2), (3, 72, 2)] and d["scaling"] == "weak"'

    it "reports the rank whose child was killed, and goes on"
    port=$(free_port)
    (
        tries=0
        while [ $tries -lt 600 ]; do
            for pid in $(pgrep -f "$port.*--scale none"); do
                tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx LOCKSTEP_LAUNCH_RANK=2 && kill -9 "$pid" && exit
            done
            sleep 0.1
            tries=$((tries + 1))
        done
    ) &
    killer=$!
    ranks $small --scale 3,1 --repeat 1 --deadline 5 --master-ip 127.0.0.1 --master-port "$port"
    wait "$killer"
    expect_code 1
    expect "$code1 $code2" = "1 1"
    expect_out '^ *3 +24 +failed$'
    expect_out '^ *1 +24 +[0-9.]+ '
    expect_err 'error: 1 of 2 configurations failed, the first of them: rank 2 \(host .*\): killed by signal 9'

    it "ends when a rank is killed"
    port=$(free_port)
    (
        tries=0
        while [ $tries -lt 600 ] && ! pgrep -f "$port.*--scale none" >/dev/null; do
            sleep 0.1
            tries=$((tries + 1))
        done
        kill -9 "$(pgrep -f "^[^ ]*lockstep bench.*$port --num-nodes 3 --rank 2\$")"
    ) &
    killer=$!
    ranks $small --scale 1 --steps 1000000 --deadline 5 --master-ip 127.0.0.1 --master-port "$port"
    wait "$killer"
    expect "$((code > 0 && code < 124)) $((code1 > 0 && code1 < 124))" = "1 1"
    expect_err 'rank 2 '

    it "measures one group where no number is small enough"
    ranks $small --scale 8 --master-ip 127.0.0.1 --master-port "$(free_port)" -o group.json
    expect_code 0
    expect_err 'the 3 processes of --master-ip are measured as one group, because each of these numbers is larger'
    check group.json '[r["workers"] for r in d["results"]] == [3]'

    for kind in openmpi mpich; do
        it "measures 1, 2 and 3 of the processes that $kind starts"
        if [ ! -e "$modules/lockstep-mpi-$kind.so" ]; then
            skip "built without $kind"
            continue
        fi
        set -- -np 3 "$program" bench $small --scale 1,2,3 -o mpi.json
        [ "$kind" = mpich ] || set -- --oversubscribe "$@"
        [ "$kind" = mpich ] || [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
        timeout -k 5 120 "mpirun.$kind" "$@" >out 2>err </dev/null
        code=$?
        expect_code 0
        check mpi.json 'rows == [(w, 24, 2) for w in (1, 2, 3)] and "shared memory" in d["bench"]["transport"]'
        expect "$(grep -c 'Start each number' err)" = 0
    done
}

finish
