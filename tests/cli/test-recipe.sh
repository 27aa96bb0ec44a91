#!/bin/sh
# Each part of a training recipe: to the same bits on one, two and three workers, and resumed in the middle of an epoch.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/keeps.sh"

# Five steps an epoch; 12 steps end within the third.
many="$small --data synthetic:1x14x14:10:195 --batch 48 --replicas 6 --schedule constant --steps 12"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many "$@"
}

refuses() {
    it "refuses $1"
    shift
    pattern=$1
    shift
    train "$@" --run refused
    expect_code 2
    expect_error "$pattern"
}

keeps plateau --schedule plateau:0:0.5 --lr 0.5
it "plateau: says when the rate falls, and keeps what it has seen in checkpoints"
expect "$(grep -c 'plateau: evaluations in a row without a lower loss: 1; rate 0.25 from now on, was 0.5' plateau-1/log.txt)" = 1
expect "$(grep -A2 plateau plateau-1/checkpoints/step-00000012/state.json | grep -c '"rate": 0.25')" = 1
keeps eval-every --schedule plateau:0:0.5 --lr 0.5 --eval-every 3
it "eval-every: evaluates within epochs, every N steps, and at the end"
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' eval-every-1/metrics.jsonl | tr '\n' ' ')" = '3 6 9 12 '
train --steps 7 --eval-every 3 --run ends --tensorboard --mllog
expect_code 0
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' ends/metrics.jsonl | tr '\n' ' ')" = '3 6 7 '
train --steps 0 --epochs 2 --eval-every 4 --run ends-with-an-epoch
expect_code 0
expect "$(sed -n 's/.*"kind": "eval", "step": \([0-9]*\).*/\1/p' ends-with-an-epoch/metrics.jsonl | tr '\n' ' ')" = '4 8 10 '
refuses "to evaluate in mid-epoch where workers go on without each other" \
    '--eval-every: with --sync async workers go on without each other' --eval-every 3 --sync async --workers 2 --replicas 1
refuses "--eval-every without evaluations" '--eval-every needs evaluations, and there are none: leave out --no-evaluate' \
    --eval-every 3 --no-evaluate

# 71 samples an epoch, two steps: the third epoch ends in the second time through 195 samples.
keeps epoch-size --epoch-size 71 --augment crop:2,flip
it "epoch-size: a run of a version that began each epoch anew goes on as it began"
train --epoch-size 71 --steps 5 --run old
expect "$(grep -c '"goes_on": true' old/checkpoints/step-00000005/state.json)" = 1
rm -rf older
cp -r old older
# An older version wrote neither this key nor a checksum of state.json.
sed -i -e '/"goes_on"/d' -e '/"state.json"/d' -e 's/\("state.safetensors": "[0-9a-f]*"\),/\1/' \
    -e '/"config.yaml"/d' -e '/"data.json"/d' older/checkpoints/step-00000005/state.json
train --epoch-size 71 --run old --resume
expect_code 0
train --epoch-size 71 --run older --resume
expect_code 0
expect "$(grep -c 'begun by an older version: each uses the first samples' older/log.txt)" = 1
[ "$(record old 12)" != "$(record older 12)" ] || miss "the old order is the new one"

it "early-stop: ends after evaluations without a gain, on two workers too, and only a larger number goes on"
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early
expect_code 0
expect_out 'early stop: evaluations in a row without a higher top-1 than .*: 2'
expect_file early/checkpoints/step-00000009/state.json
expect_file early/confusion.json
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early-2 --workers 2
expect_code 0
expect_bits early early-2 9
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early --resume
expect_code 0
expect_out 'Nothing is left to do: the run stopped early after step 9'
expect "$(readlink early/checkpoints/best)" = step-00000003
ln -sfn step-00000009 early/checkpoints/best # as a kill between checkpoint and mark leaves it
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early --resume
expect_code 0
expect "$(readlink early/checkpoints/best)" = step-00000003
expect_no_file early/lock
cp -r early/checkpoints/step-00000009 early/checkpoints/step-00000009.tmp # as a kill at the end of a save leaves it
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 2 --run early --resume
expect_code 0
expect_no_file early/checkpoints/step-00000009.tmp
expect_no_file early/lock
train --model mlp --lr 1e-12 --eval-every 3 --early-stop 3 --run early --resume
expect_code 0
expect_out 'Going on after step 9'
expect_file early/checkpoints/step-00000012/state.json
train --model mlp --lr 1e-12 --early-stop 1 --steps 0 --epochs 4 --checkpoint-every 1000 --run early-epochs
expect_code 0
expect_file early-epochs/checkpoints/step-00000010/state.json
refuses "--early-stop without evaluations" '--early-stop needs evaluations' --early-stop 3 --no-evaluate
refuses "plateau without evaluations" '--schedule plateau follows the loss of evaluations, and there are none' \
    --schedule plateau --no-evaluate
refuses "a schedule that is not there" 'plateux' --schedule plateux

keeps clip --clip-norm 0.5 --optimizer adamw --lr 0.01
it "clip-norm: is announced, and changes what is computed; one replica in one pass, too"
expect "$(grep -c 'gradients clipped to norm 0.5' clip-1/log.txt)" = 1
for norm in 0.001 1000000; do
    train --replicas 1 --clip-norm $norm --run clip-$norm
    expect_code 0
done
train --replicas 1 --run clip-none
[ "$(record clip-none 12)" != "$(record clip-0.001 12)" ] || miss "clipping changes nothing"
[ "$(record clip-none 12)" = "$(record clip-1000000 12)" ] || miss "a norm that is never reached changes bits"
for sync in allreduce gather; do
    train --clip-norm 0.5 --optimizer adamw --lr 0.01 --workers 3 --sync $sync --run clip-$sync
    expect_code 0
    expect_bits clip-1 clip-$sync 12
done
train --clip-norm 0.5 --workers 2 --sync local --local-steps 4 --replicas 2 --run clip-local
expect_code 0
for sync in server async cutoff; do
    refuses "clipping with --sync $sync" "--clip-norm: with --sync $sync no process sees all gradients of a step" \
        --clip-norm 1 --sync $sync --workers 2 --replicas "$([ $sync = server ] && echo 2 || echo 1)" --no-evaluate
done
for norm in -1 nan x; do
    refuses "--clip-norm $norm" '--clip-norm' --clip-norm $norm
done

keeps ema --ema 0.9 --lr 0.1
it "ema: is announced; the model has the averages, the state the trained weights"
expect "$(grep -c 'weights averaged (0.9)' ema-1/log.txt)" = 1
train --lr 0.1 --run ema-none
expect_code 0
cmp -s ema-1/checkpoints/step-00000012/model.safetensors ema-none/checkpoints/step-00000012/model.safetensors &&
    miss "the averages are the weights"
expect "$(grep -ac '.weight.trained"' ema-1/checkpoints/step-00000012/state.safetensors)" = 1
expect "$(grep -ac '.running_var.trained"' ema-1/checkpoints/step-00000012/state.safetensors)" = 1
it "ema: eval gives the accuracy that the run printed"
expect "$(sed -n 's/^Final evaluation: .*loss \([0-9.]*\) over.*/\1/p' ema-1/log.txt)" = \
    "$(lockstep eval ema-1/checkpoints/step-00000012 --threads 1 && sed -n 's/.*loss \([0-9.]*\).*/\1/p' out | head -n 1)"
it "ema: with sharded parameters, and one replica in one pass"
train --ema 0.9 --lr 0.1 --workers 3 --sync server --run ema-server
expect_code 0
expect_bits ema-1 ema-server 12
train --ema 0.9 --lr 0.1 --workers 2 --sync local --local-steps 4 --replicas 2 --run ema-local
expect_code 0
train --ema 0.9 --replicas 1 --run ema-alone
expect_code 0
refuses "averages that servers would hold" '--ema: with --sync async servers hold the averages' \
    --ema 0.9 --sync async --workers 2 --replicas 1 --no-evaluate
for share in 1 -1 nan; do
    refuses "--ema $share" '--ema' --ema $share
done
it "says which options a checkpoint does not go with"
cp -r ema-none other-state
for option in '--optimizer adamw' '--freeze conv1' '--momentum 0'; do
    # shellcheck disable=SC2086 # the option and its value
    train --lr 0.1 --run other-state --resume --steps 13 $option
    expect_code 3
    expect_error 'state.safetensors: the optimizer .* is --optimizer, --momentum or --freeze not that of the run'
done
it "options without an effect say so"
train --steps 1 --model mlp --dropout 0.5 --drop-path 0.25 --mixup 0.5 --replicas 48 --run no-effect
expect_code 0
expect_err 'warning: --dropout 0.5 changes nothing: mlp has no dropout layer'
expect_err 'warning: --drop-path 0.25 changes nothing: mlp has no drop_path layer'
expect_err 'warning: --mixup changes nothing: samples are mixed with others of their pass, and each is alone'
train --steps 1 --model alexnet-cntk --input 1x28x28 --dropout 0.5 --mixup 0.5 --replicas 24 --run effect
expect_code 0
expect "$(wc -l <err)" = 0

it "a BN layer that sees one value says so"
cat >one-value.yaml <<'END'
input: 1x14x14
classes: 10
layers:
  - {name: conv, op: conv, out: 4, kernel: 14}
  - {name: norm, op: bn}
  - {name: fc, op: dense, out: classes}
END
for batch in 1 24 97; do # 195 samples: the last step has 1, 3, 1
    train --steps 1 --model one-value.yaml --replicas 1 --batch $batch --no-evaluate --run one-value-$batch
    expect_code 0
    case $batch in
    1) expect_error 'warning: BN layer norm sees one value of a channel in a pass, which has one sample' ;;
    24) expect "$(wc -l <err)" = 0 ;;
    97) expect_error 'warning: BN layer norm sees one value of a channel in the last step of an epoch' ;;
    esac
done

it "ema: a run without averages cannot go on with them, nor the other way round"
train --ema 0.9 --run ema-none --resume --steps 13
expect_code 2
expect_error 'the run was started without averages of its weights; leave it out'
train --ema 0 --lr 0.1 --run ema-1 --resume --steps 13
expect_code 2
expect_error 'the run was started with averages of its weights; give its --ema'
it "ema: an average that is not finite ends the run, and no checkpoint has it"
train --ema 0.9 --lr 1e38 --weight-decay 1000 --eval-every 1 --run ema-bad
expect_code 5
expect_err 'the average of .* \(--ema\) is not finite: training diverged'
[ ! -e ema-bad/checkpoints/best ] || miss "it is saved"

keeps lamb --optimizer lamb --lr 0.02 --eps 1e-6 --weight-decay 0.01
it "lamb: with sharded parameters, and refuses the momentum of sgd"
train --optimizer lamb --lr 0.02 --eps 1e-6 --weight-decay 0.01 --workers 3 --sync server --run lamb-server
expect_code 0
expect_bits lamb-1 lamb-server 12
refuses "the momentum of sgd with lamb" '--optimizer lamb: --momentum is an option of sgd' --optimizer lamb --momentum 0.8

refuses "residual blocks where there are none" '--zero-init-residual: lenet has no residual block that ends with BN' \
    --zero-init-residual --model lenet

it "a gradual warm-up begins at its base"
train --lr 0.4 --warmup gradual:2:0.1 --run gradual
expect_code 0
expect "$(sed -n 's/.*"kind": "step".*"lr": \([0-9.]*\).*/\1/p' gradual/metrics.jsonl | uniq | tr '\n' ' ')" = '0.1 0.25 0.4 '
it "a gradual warm-up of one replica says that it is flat"
train --replicas 1 --steps 1 --warmup gradual:2 --run flat
expect_code 0
expect_err 'warning: --warmup gradual:2 changes nothing: with one replica it begins at the full rate; give .*gradual:2:0.005'
it "a run that ends before its warm-up says so"
train --steps 9 --warmup stepping:2 --run warm
expect_code 0
expect_error 'warning: --warmup stepping:2: the run ends before the warm-up does, after 9 of its 10 steps'
refuses "a least rate above the full one" '--schedule cosine: the least rate 0.06 is above the full rate 0.05' \
    --schedule cosine:0.06
refuses "a warm-up that falls" 'gradual:2:0.2: the rate would fall from 0.2 to the full rate 0.05' --warmup gradual:2:0.2
finish
