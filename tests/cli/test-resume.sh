#!/bin/sh
# Under nohup SIGHUP is ignored, here and in all that starts here. These tests send it.
[ -n "${hears_hangup:-}" ] || hears_hangup=yes exec env --default-signal=HUP sh "$0" "$@"
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"

# 200 samples: 7 steps an epoch, the last of them uneven.
options="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:200 --batch 32 --threads 1"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
# In a step-numbered folder, so that runs can be compared.
weights() {
    printf '%s/checkpoints/step-%08d/model.safetensors' "$1" "$2"
}

it "resumes in the middle of an epoch to the bits of the uninterrupted run"
train --schedule constant --steps 20 --run straight
expect_code 0
train --schedule constant --steps 10 --run halves
expect_code 0
train --schedule constant --steps 20 --run halves --resume
expect_code 0
expect_same "$(weights straight 20)" "$(weights halves 20)"

it "tells one story in metrics.jsonl"
for run in halves straight; do # but for the evaluation with which the first half ended
    grep -Ev '"kind": "(eval|rank)"' $run/metrics.jsonl | sed 's/, "loss".*//' >$run.told
done
expect_same halves.told straight.told
expect "$(grep -c '"kind": *"step"' halves/metrics.jsonl)" = "$(grep -c '"kind": *"step"' straight/metrics.jsonl)"

it "resumes from an older checkpoint when told"
train --schedule constant --steps 20 --checkpoint-every 5 --keep 10 --run kept
expect_code 0
rm "$(weights kept 20)"
train --schedule constant --steps 20 --run kept --resume kept/checkpoints/step-00000005
expect_code 0
expect_same "$(weights straight 20)" "$(weights kept 20)"

it "resumes with replicas and accumulation too"
parts="--replicas 4 --accumulate 2"
# shellcheck disable=SC2086
{
    train --schedule constant $parts --steps 20 --run straight-4
    expect_code 0
    train --schedule constant $parts --steps 9 --run halves-4
    train --schedule constant $parts --steps 20 --run halves-4 --resume
    expect_code 0
}
expect_same "$(weights straight-4 20)" "$(weights halves-4 20)"

it "refuses to train over another run unasked"
train --steps 5 --run straight
expect_code 2
expect_error 'straight.*--resume'
expect_file "$(weights straight 20)"

it "starts nothing where the name of a run is misspelt"
lockstep train --run hlaves --resume
expect_code 3
expect_error 'hlaves: no such run to resume; .*--model'
expect_no_file hlaves

it "starts a run that is not there yet, so that the first job of a chain is like the others"
train --schedule constant --steps 20 --run chain/first --resume
expect_code 0
expect_out 'chain/first has no checkpoint yet'
expect_same "$(weights straight 20)" "$(weights chain/first 20)"
train --schedule constant --steps 20 --resume nowhere
expect_code 3
expect_error 'nowhere: no such folder'

# What is there when a run is killed before its first checkpoint, at one moment or another.
early() {
    rm -rf early
    mkdir early
    for early_file in "$@"; do
        cp -r "straight/$early_file" early/
    done
}

it "starts again by the same command when the run ended before it saved"
printf 'host: %s\npid: 999999999\nboot: %s\npids: %s\nid: 1\n' "$(hostname)" "$(cat /proc/sys/kernel/random/boot_id)" \
    "$(readlink /proc/self/ns/pid)" >straight/lock
: >straight/config.yaml.tmp-4194305
for files in "" lock "lock model.yaml" "lock model.yaml config.yaml.tmp-4194305" "lock model.yaml config.yaml" \
    "lock config.yaml plan.txt" "lock config.yaml plan.txt log.txt metrics.jsonl"; do
    # $files is a list of words.
    # shellcheck disable=SC2086
    early $files
    train --schedule constant --steps 20 --run early --resume
    expect_code 0
    expect_same "$(weights straight 20)" "$(weights early 20)"
    expect "$(grep -c '"kind": *"step"' early/metrics.jsonl)" = 20
    expect_no_file early/config.yaml.tmp-4194305
done
rm straight/lock straight/config.yaml.tmp-4194305

it "leaves no line out of metrics.jsonl when it is killed right after a checkpoint"
long="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:100000 --batch 32 --threads 1 --no-evaluate"
# $long is a list of words.
# shellcheck disable=SC2086
hold train $long --steps 3000 --log-every 1 --checkpoint-every 10 --run told
# The first ones are soon removed, so that none of them can be waited for by its name.
any_checkpoint() {
    ls told/checkpoints/step-????????/state.json
}
within 60 any_checkpoint || miss "no checkpoint is saved"
kill -9 "$child"
let_go
saved=$(ls told/checkpoints | grep -v tmp | tail -n 1 | sed 's/step-0*//')
expect "$(grep -c '"kind": *"step".*}$' told/metrics.jsonl)" -ge "$saved"
: >told/metrics.jsonl.tmp-4194305
lockstep train --run told --resume --steps $((saved + 10))
expect_code 0
expect_no_file told/metrics.jsonl.tmp-4194305
expect "$(grep -c '"kind": *"step"' told/metrics.jsonl)" = $((saved + 10))

it "makes up the evaluation at the end when it is killed between a checkpoint of the last step and that"
hold train --model lenet --batch 32 --epoch-size 200 --steps 4 --checkpoint-every 2 --threads 1 --run last
within 60 test -e last/checkpoints/step-00000004/state.json || miss "the last step is not saved"
kill -9 "$child"
let_go
lockstep train --run last --resume
expect_code 0
expect_out '^Final evaluation: .* over 10000 samples'
expect_file last/confusion.json
expect "$(grep -c '"kind": *"eval"' last/metrics.jsonl)" = 1
lockstep train --run last --resume
expect_code 0
expect_out 'Nothing is left to do'

it "starts again from its configuration alone"
early config.yaml log.txt
printf 'torn' >early/metrics.jsonl
mkdir -p early/checkpoints/step-00000007.tmp
lockstep train --run early --resume
expect_code 0
expect_same "$(weights straight 20)" "$(weights early 20)"
early config.yaml plan.txt
lockstep train --resume early
expect_code 0
expect_same "$(weights straight 20)" "$(weights early 20)"

it "starts nothing among other files"
mkdir letters
echo hello >letters/to-mother
train --steps 5 --run letters --resume
expect_code 3
expect_error 'letters: .*to-mother'
expect "$(ls letters)" = to-mother

it "does not start again over checkpoints that are all damaged"
cp -r straight damaged
for file in damaged/checkpoints/step-*/model.safetensors; do
    echo >>"$file"
done
train --schedule constant --steps 30 --run damaged --resume
expect_code 3
expect_err 'damaged'
expect_no_file damaged/lock

# state RUN: every file and folder with its content and times.
state() {
    find "$1" -type f -exec sha256sum {} + | sort
    find "$1" -exec stat -c '%n %s %y %z' {} + | sort
}

it "has nothing to do in a finished run, and changes nothing there"
state straight >before
state straight-4 >before-4
train --schedule constant --steps 20 --run straight --resume
expect_code 0
expect_out 'Nothing is left to do: 20 of 20 steps are done'
lockstep train --resume straight
expect_code 0
expect_out 'Nothing is left to do'
lockstep train --run straight-4 --resume --workers 2
expect_code 0
expect_out 'Nothing is left to do: 20 of 20 steps'
state straight >after
state straight-4 >after-4
expect_same before after
expect_same before-4 after-4
train --epochs 2 --run epochs
train --epochs 2 --run epochs --resume
expect_out 'Nothing is left to do: 2 of 2 epochs are done'

it "goes on with a finished run when more is asked for"
train --epochs 3 --run epochs --resume
expect_code 0
expect_file "$(weights epochs 21)"

it "names the options that were changed, on the console and in the log"
train --steps 10 --seed 3 --run changed
train --steps 12 --lr 0.01 --weight-decay 0 --run changed --resume --keep 9 --deadline 70
expect_code 0
expect_error 'changed/checkpoints/step-00000010: --steps 10 is now 12, --lr 0.05 is now 0.01, --weight-decay 0.0005 is now 0:'
grep -q 'warning: .*--lr 0.05 is now 0.01' changed/log.txt || miss "the log does not say so"

it "names them until a checkpoint has them, and no more then"
lockstep train --run changed --resume
expect_code 0
expect_out 'Nothing is left'
lockstep train --run changed --resume --steps 14
expect_error '0000012: --steps 12 is now 14: '
lockstep train --resume changed/checkpoints/step-00000010 --steps 14
expect_error '0000010: --steps 10 is now 14, --lr 0.05 is now 0.01, '
train --schedule constant --steps 25 --run halves --resume
expect_code 0
expect "$(cat err)" = ""

it "says things again that --quiet kept quiet when the run began"
train --schedule constant --steps 10 --run silent --quiet
expect_code 0
expect "$(cat out)" = ""
lockstep eval silent
expect_code 0
expect_out 'top-?1'
lockstep train --run silent --resume --steps 20
expect_code 0
expect_out 'Going on after step 10'
lockstep train --run silent --resume --steps 25 --quiet
expect_code 0
expect "$(cat out)" = ""
expect "$(cat err)" = ""

# signal NAME RUN: start the run in the background, and once it has a checkpoint send it the signal.
signal() {
    # shellcheck disable=SC2086
    hold train $options --steps 3000 --log-every 1 --run "$2"
    within 60 test -e "$2/checkpoints/best" || miss "no checkpoint is saved"
    kill -"$1" "$child"
    let_go
}

it "saves on SIGINT and says how to go on"
signal INT stopped
expect_code 75
cat out err >both
grep -q -e '--resume' both || miss "--resume is not named"
expect "$(find stopped/checkpoints -name model.safetensors | wc -l)" -ge 1

it "saves on SIGTERM too"
signal TERM terminated
expect_code 75

it "saves on SIGHUP too, however often it comes"
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --run hung-up
within 60 test -e hung-up/checkpoints/best || miss "no checkpoint is saved"
kill -HUP "$child"
kill -HUP "$child" # test_interrupt.c: at any time
let_go
expect_code 75
expect_out 'Stopped by Hangup'
train --steps 3000 --run hung-up --resume
expect_code 0

it "does not hear SIGHUP under nohup"
trap '' HUP
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --run nohup
trap - HUP
within 60 test -e nohup/checkpoints/best || miss "no checkpoint is saved"
kill -HUP "$child"
let_go
expect_code 0

# on_terminal ARGUMENTS: a run whose terminal is closed once it has a checkpoint; its exit code.
on_terminal() {
    python3 - "$program" "$@" <<'END'
import os, pty, sys, time
run = sys.argv[sys.argv.index("--run") + 1]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os.set_blocking(terminal, False)
end = time.time() + 60
while not os.path.exists(run + "/checkpoints/best") and time.time() < end:
    try:
        os.read(terminal, 65536)
    except BlockingIOError:
        time.sleep(0.01)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
}

it "saves when its terminal is closed, alone and with workers"
# shellcheck disable=SC2086
for more in "" "--workers 2"; do
    run=closed$(echo $more | tr -d ' -')
    code=$(on_terminal train $options --steps 1000000 --replicas 2 --run "$run" $more)
    expect_code 75
    expect_no_file "$run/lock"
    step=$(sed -n 's/^Stopped by Hangup after step \([0-9]*\) of.*/\1/p' "$run/log.txt")
    expect_file "$(weights "$run" "${step:-0}")"
done

it "goes on to the bits of the uninterrupted run"
train --steps 3000 --run stopped --resume
expect_code 0
train --steps 3000 --run whole
expect_code 0
expect_same "$(weights whole 3000)" "$(weights stopped 3000)"

# A signal that comes in the midst of one of oneDNN's products of matrices once overwrote the heap.
it "is not hurt by many signals at once"
hold train --model mlp --data synthetic:1x28x28:10:8192 --batch 8192 --epochs 100000 --no-evaluate --log-every 1 --run flooded
within 60 test -s flooded/metrics.jsonl || miss "no step is made"
for _ in $(seq 4000); do
    kill -USR1 "$child" 2>/dev/null || break
done
let_go
expect_code 75

it "goes on from its last checkpoint to the same bits when it is killed"
signal KILL killed
expect_code 137
expect "$(find killed -name '*.safetensors' -size 0 | wc -l)" = 0
train --steps 3000 --run killed --resume
expect_code 0
expect_same "$(weights whole 3000)" "$(weights killed 3000)"

finish
