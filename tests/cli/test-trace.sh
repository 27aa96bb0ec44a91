#!/bin/sh
# --trace FROM:TO: a timeline of all ranks that Perfetto opens; and the shares of bench --profile.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

python=${PYTHON:-python3}
perfetto=
if why=$(cd "$source_root/tests/cli" && "$python" -B -c 'import perfetto_processor; perfetto_processor.program()' 2>&1); then
    perfetto=perfetto
fi
synthetic="--data synthetic:1x14x14:10:192 --batch 32 --schedule constant" # 6 steps an epoch

# $small and $synthetic are lists of words.
# shellcheck disable=SC2086
train() {
    lockstep train $small $synthetic "$@"
}
# check FILE RANKS STEPS [perfetto]: the file keeps the rules of its format, and has what it should; said: the kinds of slices.
check() {
    said=$("$python" -B "$source_root/tests/cli/trace_check.py" "$@" 2>&1) || miss "$said"
}
expect_said() {
    case $said in
    *"$1"*) ;;
    *) miss "no $1 in: $said" ;;
    esac
}
# opened_by_perfetto FILE RANKS STEPS
opened_by_perfetto() {
    if [ -n "$perfetto" ]; then
        check "$@" perfetto
    else
        skip "Perfetto's trace processor is not to be had from PyPI: $(echo "$why" | tail -n 1)"
    fi
}

it "writes a timeline of one process"
train --epochs 2 --run one --trace 3:6
expect_code 0
expect_out 'Wrote one/trace\.json: steps 3 to 6 of 1 rank, [0-9]+ slices'
check one/trace.json 0 3:6
expect_said step=4
expect_said evaluation=1
expect_said checkpoint=1
expect_said fill=

it "is opened by Perfetto's trace processor (1 worker)"
opened_by_perfetto one/trace.json 0 3:6

it "writes one timeline of three workers, on one clock"
train --epochs 2 --run three --workers 3 --trace 3:6 --checkpoint-every 4
expect_code 0
expect_out 'Wrote three/trace\.json: steps 3 to 6 of 3 ranks, [0-9]+ slices'
check three/trace.json 0,1,2 3:6
expect_said step=12
expect_said evaluation=3
expect_said checkpoint=2
expect_said check=
expect_no_file three/trace-rank-0.json

it "is opened by Perfetto's trace processor (3 workers)"
opened_by_perfetto three/trace.json 0,1,2 3:6

it "changes no weight"
train --epochs 2 --run one-plain
train --epochs 2 --run three-plain --workers 3
for run in one three; do
    expect_no_file $run-plain/trace.json
    expect "$(record $run 12)" = "$(record $run-plain 12)"
done
expect "$(grep -c ^trace one/config.yaml)" = 0

it "records passes of replicas and parts of a step, in a folder with a space and an umlaut"
train --steps 4 --run "räume 1" --workers 2 --replicas 4 --accumulate 2 --no-evaluate --trace 2:3
expect_code 0
check "räume 1/trace.json" 0,1 2:3
expect_said pass=16
grep -q '"name":"conv2 conv' "räume 1/trace.json" || miss "no slice of the layer conv2"

for sync in gather server async cutoff local; do
    it "records --sync $sync"
    train --steps 8 --run "sync-$sync" --workers 2 --sync $sync --no-evaluate --trace 2:7
    expect_code 0
    expect_out 'Wrote .*trace\.json'
    check "sync-$sync/trace.json" 0,1 -
    [ -z "$perfetto" ] || check "sync-$sync/trace.json" 0,1 - perfetto
done

for value in 5 5:3 a:b 0:1 1:0 :3 3: 1:2:3 -1:3 '1: 3' 1.5:3 99999999999999999999:3 ''; do
    it "refuses --trace '$value'"
    train --steps 4 --run refused --trace="$value"
    expect_code 2
    expect_error '--trace'
    expect_no_file refused
done

it "refuses a bad window once on several workers"
train --steps 4 --run refused --workers 2 --trace 4:2
expect_code 2
expect_error '--trace 4:2: step 2 comes before step 4'

it "says when the window goes beyond the end, and records what there is"
train --steps 4 --run beyond --no-evaluate --trace 3:9
expect_code 0
expect_err '--trace 3:9: this run has steps 1 to 4; steps 3 to 4 are recorded'
check beyond/trace.json 0 3:4

it "says when the window is beyond the end, and trains"
train --steps 4 --run after --workers 2 --no-evaluate --trace 5:9
expect_code 0
expect_error '--trace 5:9: the run ends with step 4; no trace is written'
expect_no_file after/trace.json

it "records the rest of the window when a run goes on within it, and nothing after it"
train --resume --run beyond --steps 8 --no-evaluate --trace 3:6
expect_code 0
expect_err '--trace 3:6: this run has steps 5 to 8; steps 5 to 6 are recorded'
expect_out 'Wrote .*: steps 5 to 6 of 1 rank'
check beyond/trace.json 0 5:6
cp beyond/trace.json before
train --resume --run beyond --steps 10 --no-evaluate --trace 3:6
expect_code 0
expect_error '--trace 3:6: the run goes on after step 8; no trace is written'
expect_same beyond/trace.json before

it "goes on when the file cannot be written"
train --steps 2 --run occupied --no-evaluate
mkdir occupied/trace.json
train --resume --run occupied --steps 6 --no-evaluate --trace 3:4
expect_code 0
expect_err 'the run goes on without .*occupied/trace\.json'
expect_file occupied/checkpoints/step-00000006/state.json

it "follows rank 0 where only that was told to trace"
for rank in 0 1; do
    option=
    [ $rank = 1 ] || option="--trace 2:3"
    # shellcheck disable=SC2086
    LOCKSTEP_TOKEN=0123456789 LOCKSTEP_NODE=$rank "$program" train $small $synthetic --steps 4 --run hosts --no-evaluate $option \
        --rendezvous "file://$scratch/meet" --num-nodes 2 --rank $rank >together-$rank 2>&1 </dev/null &
    eval "rank$rank=\$!"
done
wait "$rank0"
code=$?
wait "$rank1" || code=$?
cat together-0 together-1 >out
expect_code 0
check hosts/trace.json 0,1 2:3

# A worker whose clock is 11 days ahead, as if on another host.
it "brings clocks that differ to one"
if unshare --time --monotonic 1000000 true 2>/dev/null; then
    for rank in 0 1; do
        ahead=
        [ $rank = 0 ] || ahead="unshare --time --monotonic 1000000"
        # shellcheck disable=SC2086
        LOCKSTEP_TOKEN=0123456789 LOCKSTEP_NODE=$rank $ahead "$program" train $small $synthetic --steps 4 --run clocks --no-evaluate \
            --trace 2:4 --rendezvous "file://$scratch/meet-again" --num-nodes 2 --rank $rank >together-$rank 2>&1 </dev/null &
        eval "rank$rank=\$!"
    done
    wait "$rank0"
    code=$?
    wait "$rank1" || code=$?
    cat together-0 together-1 >out
    expect_code 0
    check clocks/trace.json 0,1 2:4
else
    skip "unshare --time is not permitted here"
fi

saved() {
    find "$1/checkpoints" -path '*/step-????????/state.json' | grep -q .
}

for rank in 0 2; do
    it "keeps the timeline of those who are left when rank $rank is killed"
    begin 3 --data synthetic:1x14x14:10:192 --batch 32 --schedule constant --epochs 100000 --checkpoint-every 5 --deadline 5 \
        --trace 2:50000 --run killed-$rank
    within 60 saved killed-$rank || miss "no checkpoint is saved"
    kill -9 "$(worker $rank)"
    end
    expect_code 4
    left=$(echo "0,1,2" | sed "s/$rank//; s/^,//; s/,,/,/; s/,$//")
    check killed-$rank/trace.json "$left" -
    expect_said step=
    [ -z "$perfetto" ] || check killed-$rank/trace.json "$left" - perfetto
done

it "keeps the timeline of a run that diverges"
train --steps 50 --lr 1e30 --workers 2 --no-evaluate --run diverged --trace 1:40
expect_code 5
expect_out 'Wrote diverged/trace\.json: steps 1 to [1-9] of 2 ranks'
check diverged/trace.json 0,1 -
expect_no_file diverged/trace-rank-1.json

it "keeps the timeline of a run that is stopped"
begin 2 --data synthetic:1x14x14:10:192 --batch 32 --schedule constant --epochs 100000 --trace 1:500000 --run stopped
within 60 saved stopped || miss "no checkpoint is saved"
kill -TERM "$parent"
end
expect_code 75
last=$(sed -n 's/^Stopped by .* after step \([0-9]*\) .*/\1/p' out)
check stopped/trace.json 0,1 "1:$last"

it "clears away what a failed window left"
lockstep train --resume --run killed-2 --epochs 100000 --steps "$(($(cat killed-2/checkpoints/step-*/state.json |
    sed -n 's/.*"step": *\([0-9]*\).*/\1/p' | sort -n | tail -n 1) + 2))" --no-evaluate --trace 1:1000000
expect_code 0
check killed-2/trace.json 0 -
expect_no_file killed-2/trace-rank-0.json

it "prints the shares of computing and communication on each worker"
# shellcheck disable=SC2086
lockstep bench $small --data synthetic:1x14x14:10:64 --batch 32 --workers 2 --steps 5 --repeat 2 --profile
expect_code 0
expect_out '^rank +host +step ms +compute +communication +overlapped +exposed +late +other$'
expect "$(grep -cE '^(0|1|mean) .*%' out)" = 3

it "gives them as JSON, and they add up"
# shellcheck disable=SC2086
lockstep bench $small --data synthetic:1x14x14:10:64 --batch 32 --workers 2 --steps 5 --repeat 2 --profile --json
expect_code 0
grep '"kind": "shares"' out >shares
"$python" -c 'import json, math
shares = json.load(open("shares"))
assert [r["rank"] for r in shares["ranks"]] == [0, 1]
for r in shares["ranks"] + [shares["mean"]]:
    assert r["steps"] == 10 and r["step_ms"] > r["compute_ms"] > 0 and r["communication_ms"] > 0
    assert math.isclose(r["overlapped_ms"] + r["exposed_ms"], r["communication_ms"], abs_tol=1e-6)
    assert math.isclose(r["compute_ms"] + r["exposed_ms"] + r["late_ms"] + r["other_ms"], r["step_ms"], abs_tol=1e-6)
    assert min(r["overlapped_ms"], r["exposed_ms"], r["late_ms"], r["other_ms"]) >= -1e-6
for key in ("step_ms", "compute_ms", "exposed_ms"):
    assert math.isclose(sum(r[key] for r in shares["ranks"]) / 2, shares["mean"][key], rel_tol=1e-6)' 2>why || miss "$(tail -n 1 why)"

it "has no shares without other workers"
# shellcheck disable=SC2086
lockstep bench $small --data synthetic:1x14x14:10:64 --batch 32 --steps 5 --repeat 1 --profile
expect_code 0
expect_no_out overlapped

finish
