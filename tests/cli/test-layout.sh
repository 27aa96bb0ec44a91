#!/bin/sh
# --parallel auto, and pipelines that are cut by measured times: whatever is chosen, the bits are those of one process.
# shellcheck disable=SC2086 # lists of words
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

model="--model $source_root/tests/cli/small-bn.yaml --threads 1"
run="$model --data synthetic:1x28x28:10:160 --epoch-size 70 --batch 32 --epochs 2 --replicas 8"

it "gives the bits of one process on 1, 2, 3 and 4 processes"
lockstep train $run --run one --quiet
expect_code 0
for n in 1 2 3 4; do
    lockstep train $run --run auto-$n --workers $n --parallel auto
    expect_code 0
    expect_out 'layout +auto: [a-z]+'
    expect_bits one auto-$n 6
done

# logged PATTERN: the log of the run on four processes has such a line.
logged() {
    grep -qE "$1" auto-4/log.txt || miss "log.txt has no line like $1"
}

it "writes the choice, its reason and what it was chosen from into the log"
logged 'layout +auto: (data|pipeline)'
logged 'data:2,pipeline:2 +[0-9.]+'
logged 'dense:4 .*no dense layer is large enough'
logged 'Measured: a pass [0-9.]+ ms'

it "resumes on another number of processes, with another choice"
lockstep train $run --run moved --workers 2 --parallel auto --stop-after 1 --quiet
expect_code 75
lockstep train --resume --run moved --workers 4 --parallel auto --quiet
expect_code 0
expect_bits one moved 6
lockstep train $run --run back --workers 3 --parallel pipeline:3 --stop-after 1 --quiet
expect_code 75
lockstep train --resume --run back --workers 2 --parallel auto --quiet
expect_code 0
expect_bits one back 6

it "has layouts for fewer replicas than processes"
lockstep train $run --replicas 2 --run few --quiet
lockstep train $run --replicas 2 --run few-auto --workers 4 --parallel auto
expect_code 0
expect_out 'layout +auto: .*pipeline'
expect_out 'it needs 4 replicas, and there are 2'
expect_bits few few-auto 6

it "divides large dense layers where that is fastest, and takes what options leave"
cat >wide.yaml <<'END'
input: 1x14x14
classes: 10
init: {conv: torch, dense: torch}
layers:
  - {name: c1, op: conv, out: 20, kernel: 3, stride: 2, pad: 1}
  - {name: r1, op: relu}
  - {name: f1, op: dense, out: 4100}
  - {name: r2, op: relu}
  - {name: f2, op: dense, out: 1000}
  - {name: r3, op: relu}
  - {name: f3, op: dense, out: classes}
END
wide="--model wide.yaml --data synthetic:1x14x14:10:19 --threads 1 --lr 0.05 --batch 16 --replicas 4 --steps 2"
lockstep train $wide --run wide-one --quiet
lockstep train $wide --run wide-auto --workers 4 --parallel auto
expect_code 0
expect_out 'dense:4 +[0-9.]+'
expect_bits wide-one wide-auto 2
lockstep train $wide --run compressed --workers 2 --parallel auto --compress fp16
expect_code 0
expect_out 'auto: data, the only layout that is possible here'
expect_out 'dense:2 .*compress'
expect_out 'pipeline:2 .*compress'

it "leaves strategies of their own to data parallel workers"
lockstep train $model --data synthetic:1x28x28:10:160 --batch 32 --steps 2 --workers 3 --parallel auto --sync async
expect_code 0
expect_out 'auto: data, the only layout that is possible here'

it "cuts a pipeline by measured times, and says so"
lockstep train $run --run stages --workers 2 --parallel pipeline:2
expect_code 0
expect_out 'stage 1 +from [a-z0-9.]+: measured [0-9.]+ ms a pass'
expect_bits one stages 6

it "plans with measured times"
lockstep plan $model --batch 32 --replicas 8 --parallel pipeline:2
expect_code 0
expect_out 'from layer +ms +work'
expect_out 'Times are measured here, on 1 thread'
lockstep plan $model --batch 32 --replicas 8 --parallel pipeline:2@fc1 --json
expect_code 0
expect_out '"measured": true'
lockstep plan $model --batch 32 --replicas 8 --parallel auto --workers 4
expect_code 0
expect_out '^auto: (data|pipeline:4|data:2,pipeline:2),'
expect_out 'layout +step ms'
lockstep plan $model --batch 32 --parallel auto
expect_code 0
expect_out 'auto: data, because there is one process'

it "names the layout that bench measured"
lockstep bench $model --batch 32 --workers 2 --parallel auto --steps 1 --repeat 1 --json
expect_code 0
expect_out '"parallel": ?"(data|pipeline:2@[^"]*)"'

it "chooses no layout for a batch that is not known"
lockstep bench $model --batch max --workers 2 --parallel auto
expect_code 2
expect_error 'a layout is chosen by the batch; name one'

it "refuses names that are close to it"
for bad in automatic auto:2 data,auto; do
    lockstep train $run --run never --workers 2 --parallel $bad
    expect_code 2
    expect_error "is no axis; use auto, or a list of"
done
expect_no_file never

finish
