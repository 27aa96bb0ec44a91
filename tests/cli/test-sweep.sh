#!/bin/sh
# Sweeps: what is tried, in which order, how it is ranked, and what becomes of a sweep that is killed.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"
python=${PYTHON:-python3}
unset CUDA_VISIBLE_DEVICES

model=$source_root/tests/cli/small.yaml
options="--model $model --data synthetic:1x14x14:10:200 --batch 50 --threads 1 --backend onednn"
# $options is a list of words.
# shellcheck disable=SC2086
sweep() {
    lockstep sweep $options "$@"
}
weights() {
    sha256sum "$1/checkpoints/"step-*"$2/model.safetensors" | cut -d ' ' -f 1
}
trials() {
    (cd "$1/trials" && echo *)
}
# check DIR TEXT: a condition in Python over s, results.json of the sweep, and lines, sweep.jsonl.
check() {
    "$python" - "$1" "$2" <<'END' 2>>err || miss "not so: $2"
import csv, json, math, sys
d = sys.argv[1]
s = json.load(open(d + "/results.json"))
lines = [json.loads(l) for l in open(d + "/sweep.jsonl")]
rows = list(csv.DictReader(open(d + "/results.csv", newline="")))
last = {l["trial"]: l for l in lines}
def metrics(t):
    return [json.loads(l) for l in open(d + "/trials/" + t["name"] + "/metrics.jsonl")]
# The results of a trial, computed anew from its metrics.
def recompute(t, target):
    x = y = n = seconds = at = 0
    area = [0, 0, 0]
    reached = None
    before = None
    for m in metrics(t):
        if m["kind"] == "step":
            n += m["samples"]; at += m["seconds"]; seconds += m["seconds"]
            now = (m["step"], n, at, m["loss"])
            first = first_n if before else n
            if before:
                for i in range(3):
                    area[i] += (now[i] - before[i]) * (now[3] + before[3]) / 2
            first_n = first
            before = now
        elif m["kind"] == "eval":
            seconds += m["seconds"]
            final = m
            if reached is None and m["top1"] >= target:
                reached = seconds
    return dict(final_loss=final["loss"], top1=final["top1"], seconds=seconds, time_to_target=reached, samples=n,
                area_steps=area[0], area_samples=area[1], area_seconds=area[2], loss_area=area[1] / (n - first_n))
def agrees(t, target):
    want, got = recompute(t, target), t["result"]
    return all(got[k] == v or (None not in (got[k], v) and math.isclose(got[k], v, rel_tol=1e-9)) for k, v in want.items())
sys.exit(not eval(sys.argv[2]))
END
}

it "trains every combination, the last list fastest, and seeds faster than that"
sweep --epochs 2 --lr .1,0.02 --momentum 0,0.9 --seeds 2 --target top1:0.3 --run "all of them"
expect_code 0
cp out table
expect "$(trials 'all of them')" = "0001-lr0.1-momentum0-seed1 0002-lr0.1-momentum0-seed2 0003-lr0.1-momentum0.9-seed1\
 0004-lr0.1-momentum0.9-seed2 0005-lr0.02-momentum0-seed1 0006-lr0.02-momentum0-seed2 0007-lr0.02-momentum0.9-seed1\
 0008-lr0.02-momentum0.9-seed2"
check "all of them" 'len(lines) == 24 and [l["state"] for l in lines[:8]] == ["planned"] * 8'
check "all of them" 'lines[2]["options"] == {"lr": 0.1, "momentum": 0.9, "seed": 1}'
check "all of them" 'all(l["state"] == "done" for l in last.values())'

it "computes results that follow from the metrics"
check "all of them" 'all(agrees(t, 0.3) for t in s["trials"])'
check "all of them" 'all(last[t["trial"]]["result"] == t["result"] for t in s["trials"])'
check "all of them" '[(r["name"], float(r["final_loss"])) for r in rows] == [(t["name"], t["result"]["final_loss"]) for t in s["trials"]]'

it "ranks by the time to the target, those that do not reach it last"
check "all of them" '[t["rank"] for t in s["trials"]] == list(range(1, 9))'
check "all of them" '(lambda k: k == sorted(k))([t["result"]["time_to_target"] or 1e9 for t in s["trials"]])'
cp table out
expect_out '^1 \* +000[0-9] .* done '

it "gives means and deviations over seeds"
check "all of them" 'len(s["groups"]) == 4 and all(g["done"] == 2 for g in s["groups"])'
check "all of them" '(lambda a, g: abs(sum(a) / 2 - g["mean"]) < 1e-9 and abs(abs(a[0] - a[1]) / 2 ** 0.5 - g["deviation"]) < 1e-9)([t["result"]["final_loss"] for t in s["trials"] if t["options"]["lr"] == 0.1 and t["options"]["momentum"] == 0], next(g["final_loss"] for g in s["groups"] if g["options"] == {"lr": 0.1, "momentum": 0.0}))'

it "prints a command that repeats the best trial"
best=$(sed -n 's/^Best: trial \([0-9]*\),.*/\1/p' table)
sed -n 's/^  lockstep //p' table >repeat
eval "lockstep $(cat repeat) --run again"
expect_code 0
expect "$(weights again 8)" = "$(weights "all of them/trials/$best"-* 8)"

it "ranks by something else when asked, and trains nothing again"
cp "all of them/sweep.jsonl" before
lockstep sweep "all of them" --rank-by loss-area
expect_code 0
expect_out 'ranked by loss area'
expect_same before "all of them/sweep.jsonl"
check "all of them" '(lambda k: k == sorted(k))([t["result"]["loss_area"] for t in s["trials"]])'

it "finds the same sweep by the same command, also with options in another order"
sweep --epochs 2 --seeds 2 --momentum 0,0.9 --lr .1,0.02 --run "all of them"
expect_code 0
expect_out '8 of them are finished already'

it "refuses another sweep in the directory, and says what differs"
sweep --epochs 3 --seeds 2 --momentum 0,0.9 --lr .1,.5 --run "all of them"
expect_code 2
expect_error 'another sweep: epochs 2 is now 3, lr \[0.1, 0.02\] is now \[0.1, 0.5\];'

it "takes the file in the directory for the directory, and refuses it when it was edited"
lockstep sweep "all of them/sweep.yaml"
expect_code 0
expect_out '8 of them are finished already'
cp "all of them/sweep.yaml" saved.yaml
sed -i 's/lr: .*/lr: [0.1, 0.3]/' "all of them/sweep.yaml"
lockstep sweep "all of them"
expect_code 2
expect_error 'sweep.yaml: changed since the trials were planned'
grep -q 'lr: \[0.1, 0.3\]' "all of them/sweep.yaml" || miss "the edited file is gone"
cp saved.yaml "all of them/sweep.yaml"

it "takes a list on the command line before one value of the environment"
LOCKSTEP_LR=7 sweep --epochs 2 --seeds 2 --momentum 0,0.9 --lr .1,0.02 --run "all of them"
expect_code 0
LOCKSTEP_EPOCHS=7 sweep --seeds 2 --momentum 0,0.9 --lr .1,0.02 --run "all of them"
expect_code 2
expect_error 'epochs 2 is now 7'

it "reads a sweep file, whose values the command line overrides"
cat >file.yaml <<END
run: from a file
train: {model: $model, data: "synthetic:1x14x14:10:200", threads: 1, backend: onednn, steps: 3}
batch: 50
grid: {lr: [0.1, 0.2], augment: ["none", "crop:1,flip"]}
rank-by: final-loss
END
lockstep sweep file.yaml --lr 0.1 --no-evaluate
expect_code 0
expect "$(trials 'from a file')" = "0001-augmentnone 0002-augmentcrop_1_flip"
check "from a file" 's["trials"][0]["result"]["eval_loss"] is None and s["trials"][0]["result"]["steps"] == 3'

it "splits text that may contain commas at semicolons only"
sweep --steps 1 --no-evaluate --augment 'none;crop:1,flip' --schedule 'constant;multistep:1,2' --run texts
expect_code 0
expect "$(trials texts | wc -w)" = 4
lockstep sweep texts
expect_out '4 of them are finished already'

it "draws the same random values each time, within their range"
cat >random.yaml <<END
model: $model
data: synthetic:1x14x14:10:200
threads: 1
steps: 1
evaluate: false
random: {lr: {log: [1e-3, 1]}, momentum: {uniform: [0.8, 0.99]}, batch: {choice: [20, 40]}}
trials: 3
END
for run in random-1 random-2; do
    lockstep sweep random.yaml --run $run
    expect_code 0
done
expect "$(trials random-1)" = "$(trials random-2)"
check random-1 'len(set(t["options"]["lr"] for t in s["trials"])) == 3'
check random-1 'all(1e-3 <= t["options"]["lr"] <= 1 and 0.8 <= t["options"]["momentum"] <= 0.99 and t["options"]["batch"] in (20, 40) for t in s["trials"])'

it "marks trials that diverge and ranks them last; shows the error of those that fail"
lockstep sweep --model "$model" --batch 50 --threads 1 --epochs 1 --lr 0.1,1e30 --run bad \
    --data 'synthetic:1x14x14:10:200;missing' 
expect_code 1
check bad '[t["state"] for t in s["trials"]] == ["done", "failed", "failed", "diverged"]'
check bad '"missing" in rows[1]["error"] and s["best"]["name"] == s["trials"][0]["name"]'
expect_err 'trial 000[0-9] failed: .*missing.*logs/000[0-9]'
expect_out '^4 +000[0-9] .*diverged'

it "tries failed trials again, and no others"
lockstep sweep bad
expect_code 1
check bad 'len(lines) == 4 + 8 + 4'

it "ends with exit code 5 when all diverge"
sweep --epochs 1 --lr 1e30,1e31 --run diverged
expect_code 5

# refused TEXT WORDS...: one error that matches, and no directory.
refused() {
    pattern=$1
    shift
    sweep --run never "$@"
    expect_code 2
    expect_error "$pattern"
    expect_no_file never
}
it "passes over a token that is set for other commands"
LOCKSTEP_TOKEN=the-token-of-a-cluster lockstep sweep --run tokens --model lenett --lr 1,2
expect_code 2
expect_error 'not a model'

it "names bad values before anything starts"
refused "^lockstep: error: --lr: 'x' is not a number" --lr 0.1,x
refused "--batch: 0 is out of range" --lr 0.1,0.2 --batch 64,0
refused "--lr: '0.1,,0.2' has an empty item" --lr 0.1,,0.2
refused "--lr: 0.1 stands in the list twice" --lr 0.1,.1
refused "--lr is given twice" --lr 0.1,0.2 --lr 0.1
refused "--model.*lenett.* not a model" --model lenett --lr 1,2
refused "schedule.*multistep" --schedule 'constant;multistep:x'
refused "unknown option --lrr; did you mean --lr" --lrr 1,2
refused "nothing is varied" --lr 0.1
refused "sweep takes no --json" --json --lr 0.1,0.2
refused "--target" --target top1:90 --lr 0.1,0.2
refused "needs a --target" --rank-by time-to-target --lr 0.1,0.2
refused "--asha: the first decision is after 1 epoch" --asha --epochs 1 --lr 0.1,0.2
refused "one --epochs and no --steps" --asha --steps 9 --lr 0.1,0.2
refused "--resume: to go on with a sweep" --resume --lr 0.1,0.2
refused "--seed is a list already" --seed 1,2 --seeds 2
refused "trials counts random draws" --trials 3 --lr 0.1,0.2
refused "has one value|one value is the same" --run a,b --parallel 1,2

# bad_file TEXT: the file bad.yaml from standard input is refused with one error that matches.
bad_file() {
    cat >bad.yaml
    lockstep sweep bad.yaml --run never
    expect_code 2
    expect_error "$1"
    expect_no_file never
}
it "names the place of a mistake in a file"
echo 'grid: {lr: [0.1, fast]}' | bad_file "bad.yaml:1: lr: 'fast' is not a number"
printf 'epochs: 1\ngird: {lr: [1, 2]}\n' | bad_file "bad.yaml:2: unknown option 'gird'"
printf 'lr: 1\ngrid:\n  lr: [1, 2]\n' | bad_file 'bad.yaml:3: lr stands here a second time \(first in line 1\)'
echo 'random: {lr: {log: [0, 1]}}' | bad_file 'bad.yaml:1: lr: a logarithmic range begins above 0'
echo 'random: {lr: [1, 2]}' | bad_file 'bad.yaml:1: lr: expected \{uniform'
echo 'random: {lr: {log: [0.1, 1]}}' | bad_file 'how many draws'
echo 'target: {top9: 1}' | bad_file 'bad.yaml:1: target: expected \{top1'
echo 'layers: []' | bad_file 'bad.yaml: expected a sweep, found a model'
echo '[1, 2]' | bad_file 'bad.yaml:1: expected lines such as'
printf 'lr: [1, 2]\n---\nlr: 3\n' | bad_file 'bad.yaml:3: a second document'
printf 'lr: [1, 2]\n...\n}' | bad_file 'bad.yaml:3: not YAML'
printf 'grid: {lr: [1, 2]' | bad_file 'bad.yaml:[0-9]+: not YAML'

it "refuses directories that are something else"
lockstep sweep again
expect_code 3
expect_error 'not the directory of a sweep'
sweep --lr 0.1,0.2 --run again
expect_code 2
expect_error 'the directory of a run, not of a sweep'
sweep --lr 0.1,0.2 --run file.yaml/x
expect_code 1
lockstep sweep nothing.yaml
expect_code 3
expect_error 'nothing.yaml: no such sweep file or directory'

it "reports a directory that cannot be written"
if [ "$(id -u)" = 0 ]; then
    sweep --lr 0.1,0.2 --run /proc/sweep
else
    mkdir closed && chmod 555 closed
    sweep --lr 0.1,0.2 --run closed/sweep
fi
expect_code 1
expect_error '/(proc|closed)/sweep'

it "pauses a run by --stop-after and resumes it to the same bits"
# shellcheck disable=SC2086
{
    lockstep train $options --epochs 3 --lr 0.1 --run whole
    lockstep train $options --epochs 3 --lr 0.1 --stop-after 1 --run parts-1
    expect_code 75
    expect_out 'Stopped by --stop-after after step 4 of 12'
    lockstep train --run parts-1 --resume --threads 1
    expect_code 0
    expect "$(weights parts-1 12)" = "$(weights whole 12)"
}

it "halves successively: few trials end, and these have the bits of undisturbed runs"
sweep --epochs 3 --asha loss:1:3 --lr 0.001,0.1,0.01 --run halved
expect_code 0
check halved '[t["state"] for t in s["trials"]] == ["done", "stopped", "stopped"]'
check halved '[t["result"]["epochs"] for t in s["trials"]] == [3, 1, 1] and s["trials"][0]["options"]["lr"] == 0.1'
check halved '[(l["trial"], l["state"]) for l in lines[3:]] == [(1, "running"), (1, "paused"), (2, "running"), (2, "paused"), (3, "running"), (3, "paused"), (2, "running"), (2, "done"), (1, "stopped"), (3, "stopped")]'
expect "$(weights halved/trials/0002-lr0.1 12)" = "$(weights whole 12)"
lockstep sweep halved
expect_code 0
expect_out '3 of them are finished already'

it "runs trials side by side, with the same bits"
sweep --epochs 3 --lr 0.1,0.01 --parallel 2 --run beside
expect_code 0
expect "$(weights beside/trials/0001-lr0.1 12)" = "$(weights whole 12)"

# begin DIR: a sweep in the background ($child) whose first trial ($trial) trains and is stopped for now.
long="--batch 10 --epochs 100 --lr 0.1,0.01 --no-evaluate --checkpoint-every 1000 --keep 1"
# shellcheck disable=SC2086
begin() {
    "$program" sweep $options $long --run "$1" >out 2>err </dev/null &
    child=$!
    within 60 grep -q '"step": 20,' "$1/trials/0001-lr0.1/metrics.jsonl" || miss "the first trial does not train"
    trial=$(pgrep -P "$child")
    kill -STOP "$trial"
    expect_file "$1/trials/0001-lr0.1/lock"
}
it "refuses a second sweep in the same directory, which disturbs nothing"
begin killed
# shellcheck disable=SC2086
sweep $long --run killed
expect_code 1
expect_error "killed: in use .*pid $child"

it "lets the trial of a sweep that was killed save and end"
kill -9 "$child"
{ wait "$child"; } 2>/dev/null
kill -CONT "$trial" 2>/dev/null # the kernel has done so where the sweep was its only parent in the session
within 60 test ! -e killed/trials/0001-lr0.1/lock || miss "the trial does not end"
expect_file "$(echo killed/trials/0001-lr0.1/checkpoints/step-*/state.json)"

it "waits while a trial still runs, and goes on with the bits of an undisturbed sweep"
printf '{"trial": 1, "sta' >>killed/sweep.jsonl
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --run other
within 60 test -e other/lock || miss "the other run does not start"
cp other/lock killed/trials/0001-lr0.1/lock
"$program" sweep killed >out 2>waits </dev/null &
sweep=$!
within 60 grep -q "0001-lr0.1 still runs .*pid $child" waits || miss "it does not wait for the trial"
rm killed/trials/0001-lr0.1/lock
wait "$sweep"
code=$?
expect_code 0
kill -9 "$child"
exec 3<&-
{ wait "$child"; } 2>/dev/null
check killed 'all(t["state"] == "done" and t["result"]["steps"] == 2000 for t in s["trials"])'
# shellcheck disable=SC2086
sweep $long --run undisturbed
expect_code 0
for name_of in 0001-lr0.1 0002-lr0.01; do
    expect "$(weights killed/trials/$name_of 2000)" = "$(weights undisturbed/trials/$name_of 2000)"
done
expect_no_file killed/lock

it "stops its trials on Ctrl-C, and says how to go on"
begin stopped
kill -INT "$child"
{ wait "$child"; } 2>/dev/null
code=$?
expect_code 75
expect_out "Go on with: lockstep sweep .*/stopped"
expect_no_file stopped/lock
expect_no_file stopped/trials/0001-lr0.1/lock
lockstep sweep stopped
expect_code 0
expect "$(weights stopped/trials/0001-lr0.1 2000)" = "$(weights undisturbed/trials/0001-lr0.1 2000)"

it "goes on when the program is replaced by a new build, and counts trials that are tried again"
cp "$program" mine
# shellcheck disable=SC2086
GOMP_SPINCOUNT=1000 ./mine sweep $options $long --workers 1,2 --run replaced >out 2>err </dev/null &
child=$!
within 60 test -d replaced/trials || miss "no trial begins"
rm mine
echo broken >mine
wait "$child"
code=$?
expect_code 0
expect_out '^\[4/4\]'
check replaced 'len(s["trials"]) == 4 and all(t["state"] == "done" for t in s["trials"])'
lockstep sweep --run retried $options --lr 0.1,0.01 --data nowhere
expect_code 1
expect_out '^\[2/2\].*failed'
mkdir -p nowhere
lockstep sweep retried
expect_out '^\[1/2\].*failed'

it "takes the recipe of Caffe's experiment"
lockstep sweep "$source_root/recipes/caffe-sweep/sweep.yaml" --model mlp --data synthetic:1x14x14:10:200 --steps 2 \
    --no-evaluate --workers 1 --batch 50 --run caffe
expect_code 0
expect "$(trials caffe)" = "0001-lr0.0005 0002-lr0.001 0003-lr0.002"

finish
