#!/bin/sh
# --trace on a card: the timeline shows what the card does, node by node, on the clock of the host.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"

python=${PYTHON:-python3}
if [ "$backend" != cuda ] || ! "$python" -c '' 2>/dev/null; then
    it "records what the card does"
    skip "needs a card and Python"
    finish
    exit
fi
perfetto=
if (cd "$source_root/tests/cli" && "$python" -B -c 'import perfetto_processor; perfetto_processor.program()') 2>/dev/null; then
    perfetto=perfetto
fi

# $small is a list of words.
# shellcheck disable=SC2086
train() {
    started=$(date +%s)
    lockstep train $small --backend cuda --data synthetic:1x14x14:10:192 --batch 32 --schedule constant "$@"
    seconds=$(($(date +%s) - started + 1))
}
# card FILE RANKS [more]: the tracks of the card are right; said: what is on them.
card() {
    ranks=$(seq -s , 0 $(($2 - 1)))
    said=$("$python" -B "$source_root/tests/gpu/card_tracks.py" "$1" "$2" "$seconds" ${3:+"$3"} 2>&1) || miss "$said"
    format=$("$python" -B "$source_root/tests/cli/trace_check.py" "$1" "$ranks" - $perfetto 2>&1) || miss "$format"
}
expect_said() {
    case $said in
    *"$1"*) ;;
    *) miss "no $1 in: $said" ;;
    esac
}

train --steps 12 --no-evaluate --run plain
expect_code 0

it "records each node of each step on the card, and its input"
train --steps 12 --no-evaluate --trace 4:9 --run middle
expect_code 0
card middle/trace.json 1
expect_said 'card node='
expect_said 'card copies copy='

it "changes no bit"
expect_bits plain middle 12

it "records the first steps, before there are graphs, and the last ones"
train --steps 12 --no-evaluate --trace 1:12 --run all
expect_code 0
card all/trace.json 1
expect_bits plain all 12

it "records evaluation"
train --epochs 2 --trace 3:6 --run evaluated
expect_code 0
card evaluated/trace.json 1 more

it "records half precision, replicas and parts of a step"
train --steps 8 --no-evaluate --dtype bf16 --replicas 2 --accumulate 2 --trace 2:6 --run parts
expect_code 0
card parts/trace.json 1 more # updates are enqueued apart

it "records what cards sum among themselves"
train --steps 8 --no-evaluate --workers 2 --trace 2:6 --run two
expect_code 0
expect_out "summed by the cards\$"
card two/trace.json 2
expect_said 'card sums communication='

it "records gradients that go to the host and come back"
train --steps 8 --no-evaluate --workers 2 --collective tree --trace 2:6 --run host
expect_code 0
expect_out "summed by the host\$"
card host/trace.json 2 more # updates are enqueued apart
grep -q '"name":"gradients to the host"' host/trace.json || miss "no gradients go to the host"
grep -q '"name":"values from the host"' host/trace.json || miss "no gradients come back"

finish
