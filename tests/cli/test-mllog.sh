#!/bin/sh
# --mllog: MLPerf's log lines, read by the parser of mlperf_logging where it is installed, and by a strict one of our own.
. tests/cli/harness.sh

python=${PYTHON:-python3}
options="--model mlp --data synthetic:1x14x14:10:200 --batch 40 --threads 1"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
# The keys of a log, in order.
keys() {
    sed -n 's/^:::MLLOG .*"key": "\([a-z_]*\)".*/\1/p' "$1"
}
# follows LOG KEY...: the keys of the log from run_start on.
follows() {
    log=$1
    shift
    printf '%s\n' "$@" >wanted
    keys "$log" | sed -n '/^run_start$/,$p' >found
    expect_same wanted found
}

it "writes no log unless told to"
train --steps 2 --run without
expect_no_file without/mllog.txt

it "records initialisation, epochs, evaluations and the end"
train --epochs 2 --mllog --run two --seed 18446744073709551615 --lr 0.1 --lr-per-256
expect_code 0
epoch="epoch_start epoch_stop eval_start eval_accuracy eval_stop"
# shellcheck disable=SC2086
follows two/mllog.txt run_start $epoch $epoch run_stop
grep -q '"key": "run_stop".*"status": "success"' two/mllog.txt || miss "the run did not succeed"
grep -q '"key": "global_batch_size", "value": 40,' two/mllog.txt || miss "no batch"
grep -q '"key": "seed", "value": 18446744073709551615,' two/mllog.txt || miss "no seed"
grep -q '"key": "opt_base_learning_rate", "value": 0.015625,' two/mllog.txt || miss "no rate"

it "writes lines that are strictly of the format, with times that never go back"
"$python" - two/mllog.txt two/metrics.jsonl <<'END' 2>err || miss "not so"
import json, sys
prefix, last, accuracy = ":::MLLOG ", 0, []
for line in open(sys.argv[1]):
    assert line.startswith(prefix) and line.endswith("}\n")
    o = json.loads(line[len(prefix):])
    assert list(o) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"], o
    assert type(o["time_ms"]) is int and o["time_ms"] >= last
    last = o["time_ms"]
    kind = "INTERVAL_START" if o["key"].endswith("_start") else "INTERVAL_END" if o["key"].endswith("_stop") else "POINT_IN_TIME"
    assert o["event_type"] == kind
    assert o["metadata"]["epoch_num"] >= 0
    if o["key"] == "eval_accuracy":
        accuracy.append((o["metadata"]["epoch_num"], o["value"]))
metrics = [json.loads(line) for line in open(sys.argv[2])]
assert accuracy == [(m["epoch"], m["top1"]) for m in metrics if m["kind"] == "eval"], accuracy
END

it "is read by MLPerf's parser"
if "$python" -c 'import mlperf_logging.compliance_checker.mlp_parser' 2>/dev/null; then
    "$python" - two/mllog.txt <<'END' 2>err || miss "not so"
import sys
from mlperf_logging.compliance_checker.mlp_parser import parse_file
lines, errors = parse_file(sys.argv[1], ruleset="4.1.0")
assert not errors and [line.key for line in lines][-1] == "run_stop"
assert [line.value["value"] for line in lines if line.key == "global_batch_size"] == [40]
END
else
    skip "mlperf_logging is not installed for Python"
fi

it "goes on after a stop as if there had been none"
train --steps 8 --mllog --run halves --no-evaluate --schedule constant # within the second epoch
expect_code 0
train --steps 15 --resume --run halves # the option is not repeated
expect_code 0
follows halves/mllog.txt run_start epoch_start epoch_stop epoch_start epoch_stop epoch_start epoch_stop run_stop
expect "$(keys halves/mllog.txt | grep -c init_start)" = 1

it "removes what a killed run recorded after its checkpoint, and a line that is cut"
printf '%s\n%s' ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "INTERVAL_START", "key": "epoch_start", "value": null, "metadata": {"epoch_num": 4, "step_num": 16}}' ':::MLLOG {"namespace": "", "ti' >>halves/mllog.txt
train --steps 20 --resume --run halves
expect_code 0
follows halves/mllog.txt run_start epoch_start epoch_stop epoch_start epoch_stop epoch_start epoch_stop epoch_start epoch_stop run_stop

it "calls a diverged run aborted"
train --steps 20 --lr 1e30 --mllog --run diverged
expect_code 5
grep -q '"key": "run_stop".*"status": "aborted"' diverged/mllog.txt || miss "no end"

it "appends to a file, and writes to standard output"
echo "something else" >"my log.txt"
train --steps 2 --mllog "my log.txt" --run file
expect_code 0
expect_no_file file/mllog.txt
expect "$(head -n 1 "my log.txt")" = "something else"
grep -q run_stop "my log.txt" || miss "nothing is appended"
train --steps 2 --mllog=- --run shown
expect_code 0
expect_out '^:::MLLOG .*"key": "run_stop"'
expect_no_file shown/mllog.txt

it "ends with an error where the log cannot be written"
train --steps 2 --mllog no/such/folder.txt --run nowhere
expect_code 1
expect_error 'no/such/folder.txt'

finish
