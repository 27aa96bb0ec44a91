#!/bin/sh
# Whatever becomes of one worker, all end, the culprit is named, and the run goes on from its last checkpoint.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

deadline=3
grace=60 # seconds beyond the deadline in which all have ended: ample on a busy machine, little beside a hang
endless="--data synthetic:1x14x14:10:195 --batch 48 --replicas 4 --schedule constant --epochs 1000000
    --checkpoint-every 20 --deadline $deadline"

# begin_run RUN WORKERS ARGUMENTS: returns when it has a checkpoint.
# $endless is a list of words.
# shellcheck disable=SC2086
begin_run() {
    run=$1
    count=$2
    shift 2
    begin "$count" $endless --run "$run" "$@"
    within 60 saved || miss "no checkpoint is saved"
    mark
}

saved() {
    find "$run/checkpoints" -path '*/step-????????/state.json' 2>/dev/null | grep -q .
}

# What is left of the run is whole, and goes on on other workers to the bits of a run that nothing happened to.
expect_goes_on() {
    last=$(find "$run/checkpoints" -name 'step-????????' | sed 's/.*step-0*//' | sort -n | tail -n 1)
    expect "${last:-0}" -ge 20
    until=$((${last:-0} + 5))
    lockstep train --resume --run "$run" --workers 2 --steps $until
    expect_code 0
    expect_out "Going on after step $last"
    # shellcheck disable=SC2086
    lockstep train $small $endless --no-evaluate --steps $until --run "$run-alone"
    expect_file "$run/checkpoints/step-$(printf %08d $until)/state.safetensors"
    expect "$(record "$run" $until)" = "$(record "$run-alone" $until)"
}

for rank in 0 1 2; do
    it "ends and names rank $rank when that is killed"
    begin_run killed-$rank 3
    victim=$(worker $rank)
    kill -9 "$victim"
    end
    expect_code 4
    expect_err "worker $rank \(pid $victim\) was killed by signal 9"
    expect_err "rank $rank \(.*is gone; it was last seen .*step [0-9]+"
    expect "$(wc -l <err)" = 2
    expect "$took" -le $((deadline + grace))
    expect_goes_on
done

for rank in 0 2; do
    it "ends and names rank $rank when that is stopped"
    begin_run stopped-$rank 3
    kill -STOP "$(worker $rank)"
    end
    expect_code 4
    expect_err "rank $rank .*did not .*within $deadline s; it was last seen .*step [0-9]+"
    expect "$took" -ge $((deadline - 1))
    expect "$took" -le $((deadline + grace))
    expect_goes_on
done

it "goes on when it is stopped as a whole, for longer than the deadline"
begin_run halted 2 --deadline 2
kill -TSTP "$parent"
within 60 is_stopped || miss "the parent does not stop"
mark
within 5 false
kill -CONT "$parent"
kill -INT "$parent"
end
expect_code 75
expect "$(wc -l <err)" = 0

# --- memory -----------------------------------------------------------------------------------------------

# Flips a bit of every copy of a text in a process's memory.
cat >flip.py <<'END'
import sys
pid, text = sys.argv[1], bytes.fromhex(sys.argv[2])
found = 0
with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
    for line in maps:
        where, rights = line.split()[:2]
        first, last = (int(x, 16) for x in where.split("-"))
        if not rights.startswith("rw"):
            continue
        try:
            memory.seek(first)
            there = memory.read(last - first)
        except (OSError, ValueError, OverflowError):
            continue # not memory
        at = there.find(text)
        while at >= 0:
            memory.seek(first + at)
            memory.write(bytes([text[0] ^ 1]))
            if found == 0:
                print("flipped", flush=True) # the process may end before the last copy is found
            found += 1
            at = there.find(text, at + 1)
END

it "finds a bit that flips in one rank's parameters, and names the rank"
# A rate of nothing keeps the parameters as they are: those of the last layer's bias are then known.
lockstep train --model mlp --data synthetic:1x14x14:10:195 --batch 48 --threads 1 --steps 1 --no-evaluate --run begun
expect_code 0
cat >bias.py <<'END'
import json, sys
data = open(sys.argv[1], "rb").read()
at = 8 + int.from_bytes(data[:8], "little")
names = {n: t for n, t in json.loads(data[8:at]).items() if n.endswith("bias")}
name, t = max(names.items(), key=lambda x: x[1]["data_offsets"][1] - x[1]["data_offsets"][0])
print(data[at + t["data_offsets"][0]:][:32].hex())
END
bias=$(python3 bias.py begun/checkpoints/step-00000001/model.safetensors 2>err)
# shellcheck disable=SC2086
begin_run flipped 3 --model mlp --replicas 3 --lr 0 --weight-decay 0 --check-every 5 \
    --init begun/checkpoints/step-00000001/model.safetensors
flipped=$(python3 flip.py "$(worker 1)" "$bias" 2>flip.err)
if grep -q 'PermissionError' flip.err; then
    skip "this system lets no process write another's memory"
    kill -9 "$parent"
    end
else
    expect "${flipped:-nothing}" = flipped
    [ -n "$flipped" ] || kill "$parent" # the run would have no end
    end
    expect_code 1
    expect_error 'step [0-9]+[05]: the parameters of rank 1 .*not those of the others'
    expect "$took" -le $grace
fi

# --- files ------------------------------------------------------------------------------------------------

mkdir small
release_scratch() {
    end_workers
    umount "$scratch/small" 2>/dev/null
}

it "ends all and says why when the disk of rank 0 is full, and goes on once there is room"
if mount -t tmpfs -o size=1m lockstep-test small 2>/dev/null; then
    begin_run small/run 3
    { cat /dev/zero >small/ballast; } 2>/dev/null
    end
    expect_code 1
    expect_err '^lockstep: error: small/run.*(No space left|full)'
    expect "$(grep -vc 'small/run.*\(No space left\|full\)' err)" = 0
    expect "$took" -le $((deadline + grace))
    rm small/ballast
    run=small/run
    mv small/run full
    run=full
    expect_goes_on
    umount small
else
    skip "a small disk needs root"
fi

it "names a run directory that cannot be made, once"
: >file
# shellcheck disable=SC2086
lockstep train $small $endless --workers 3 --run file/run
expect_code 1
expect_error 'file/run'

it "names weights that are missing, once"
# shellcheck disable=SC2086
lockstep train $small $endless --workers 3 --init nowhere.safetensors --run uninitialised
expect_code 3
expect_error 'nowhere.safetensors'
expect_no_file uninitialised

# --- processes started by hand ----------------------------------------------------------------------------

[ -e "$(dirname "$program")/lockstep-tcp.so" ] || no_tcp="this program was built without libcrypto"
export LOCKSTEP_TOKEN=of-this-test WORLD_SIZE=3 MASTER_ADDR=127.0.0.1
MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export MASTER_PORT

# by_hand RANK FOLDER ARGUMENTS: one process, in the background; exit code in code.RANK
# shellcheck disable=SC2086
by_hand() {
    rank=$1
    folder=$2
    shift 2
    (
        cd "$folder" || exit
        RANK=$rank timeout 120 "$program" train $small $endless "$@" \
            >"$scratch/out.$rank" 2>"$scratch/err.$rank" </dev/null
        echo $? >"$scratch/code.$rank"
    ) &
    eval "hand$rank=$!"
}

all_by_hand() {
    for rank in 0 1 2; do
        eval "wait \$hand$rank"
    done
    codes=$(cat code.0 code.1 code.2 | tr '\n' ' ')
    cat out.* >out
    cat err.* >err
    took=$((($(date +%s%N) - since + 999999999) / 1000000000))
}

it "names a rank that was started with another model, on every rank"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    mark
    by_hand 0 . --run other-model
    by_hand 1 . --run other-model
    by_hand 2 . --run other-model --model mlp
    all_by_hand
    expect "$codes" = "2 2 2 "
    for rank in 0 1 2; do
        grep -q 'rank 2 .*was started with .*mlp.*rank 0 with .*small.yaml' err.$rank || miss "rank $rank does not name it"
    done
    expect_no_file other-model
fi

it "names an option that decides when ranks work together, where one rank has another"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    for other in "parallel auto" "shard state" "checkpoint-every 2" "eval-every 2" "sync allreduce"; do
        mark
        by_hand 0 . --run other-option
        by_hand 1 . --run other-option --${other% *} "${other#* }"
        by_hand 2 . --run other-option
        all_by_hand
        expect "$codes" = "2 2 2 "
        expect_err "rank 1 .*was started with '${other% *}: ${other#* }'"
        expect_no_file other-option
    done
fi

it "names a rank that does not have the data, on every rank"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    mkdir here there
    ln -s "$source_root/data/mnist" here/images
    mark
    by_hand 0 here --model mlp --data images --run "$scratch/no-data"
    by_hand 1 there --model mlp --data images --run "$scratch/no-data"
    by_hand 2 here --model mlp --data images --run "$scratch/no-data"
    all_by_hand
    expect "$codes" = "3 3 3 "
    for rank in 0 1 2; do
        grep -q 'rank 1 .*images: no such' err.$rank || miss "rank $rank does not name it"
    done
    expect_no_file no-data
fi

it "ends, and names the rank, when a process that was started by hand is killed"
if [ -n "${no_tcp:-}" ]; then
    skip "$no_tcp"
else
    run=by-hand
    for rank in 0 1 2; do
        by_hand $rank . --run $run --no-evaluate
    done
    within 60 saved || miss "no checkpoint is saved"
    mark
    for pid in $(pgrep -x lockstep); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" >environ
        ! grep -qx "MASTER_PORT=$MASTER_PORT" environ || ! grep -qx RANK=1 environ || kill -9 "$pid"
    done
    all_by_hand
    expect "$(cat code.0) $(cat code.2)" = "4 4"
    for rank in 0 2; do
        grep -q 'rank 1 ' err.$rank || miss "rank $rank does not name rank 1"
    done
    expect "$took" -le $((deadline + grace))
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    expect_goes_on
fi

finish
