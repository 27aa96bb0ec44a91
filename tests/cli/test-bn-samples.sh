#!/bin/sh
# --bn-samples: BN's statistics over training samples with the weights at hand, against numpy, on any number of workers,
# resumed and with averaged weights.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/keeps.sh"
check=$source_root/tests/cli/bn_check.py

# Five steps an epoch; 12 steps end within the third. A pass has 8 samples.
many="$small --data synthetic:1x14x14:10:195 --batch 48 --replicas 6 --schedule constant --lr 0.1 --steps 12"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many "$@"
}

expect_other_model() {
    if cmp -s "$1/checkpoints/step-00000012/model.safetensors" "$2/checkpoints/step-00000012/model.safetensors"; then
        miss "the models of $1 and $2 are the same"
    fi
}

# The same weights and momenta; other statistics.
it "changes nothing that training computes with"
train --run plain
expect_code 0
train --bn-samples 100 --run bn-1
expect_code 0
expect_out 'BN .*before each evaluation, from 96 training samples in batches of 8'
expect_other_model plain bn-1
cmp -s plain/checkpoints/step-00000012/state.safetensors bn-1/checkpoints/step-00000012/state.safetensors ||
    miss "training went another way"

it "eval of the checkpoint gives the loss that the run printed"
loss=$(sed -n 's/^Final evaluation: .*loss \([0-9.]*\) over.*/\1/p' bn-1/log.txt)
lockstep eval bn-1/checkpoints/step-00000012 --threads 1
expect_code 0
expect_out "loss $loss"

keeps bn --bn-samples 100
keeps ema --bn-samples 100 --ema 0.9
it "ema: statistics are those of the averaged weights"
train --ema 0.9 --run ema-plain
expect_code 0
expect_other_model ema-1 ema-plain
expect_other_model ema-1 bn-1
cmp -s ema-1/checkpoints/step-00000012/state.safetensors ema-plain/checkpoints/step-00000012/state.safetensors ||
    miss "training went another way"

it "the same bits where processes hold shares of the parameters"
train --bn-samples 100 --workers 3 --sync server --run bn-server
expect_code 0
expect_bits bn-1 bn-server 12
train --bn-samples 100 --ema 0.9 --workers 3 --sync server --run ema-server
expect_code 0
expect_bits ema-1 ema-server 12

it "with more workers than batches, and with fewer samples than a batch"
train --bn-samples 1 --run few-1
expect_code 0
expect_out 'from 8 training samples'
train --bn-samples 1 --workers 3 --run few-3
expect_code 0
expect_bits few-1 few-3 12

it "frozen layers keep their statistics"
train --freeze '^(conv1|bn1)' --run frozen-plain
expect_code 0
train --freeze '^(conv1|bn1)' --bn-samples 48 --run frozen-bn
expect_code 0
for run in plain bn; do
    "${PYTHON:-python3}" "$source_root/tests/cli/tensors.py" list frozen-$run/checkpoints/step-00000012/model.safetensors >tensors-$run ||
        miss "the model cannot be read"
done
expect "$(diff tensors-plain tensors-bn | sed -n 's/^> \([^ ]*\) .*/\1/p' | tr '\n' ' ')" = "bn2.running_mean bn2.running_var "

it "with workers that average their parameters"
train --bn-samples 40 --workers 2 --replicas 2 --sync local --local-steps 4 --run bn-local
expect_code 0

# numpy: two BN layers, of which the second sees what the first normalised by the batch.
"${PYTHON:-false}" -c 'import numpy, safetensors' 2>/dev/null && readers=yes || readers=
# compares NAME N BATCH OPTIONS...
compares() {
    it "numpy: $1"
    run=$2-$3-$(echo "$1" | tr -c 'a-z\n' -)
    samples=$2 batch=$3
    shift 3
    if [ -z "$readers" ]; then
        skip "numpy and safetensors are not there"
        return
    fi
    [ -d digits ] || "$PYTHON" "$check" make digits || miss "no data"
    lockstep train --model digits/model.yaml --data digits --augment none --no-shuffle --threads 1 --batch 30 --steps 9 \
        --lr 0.1 --run "$run" "$@"
    expect_code 0
    "$PYTHON" "$check" compare digits "$run/checkpoints/step-00000009" "$samples" "$batch" >found 2>&1 ||
        miss "$(tail -n 3 found)"
}
compares "one pass a step" 120 30 --bn-samples 120
compares "a part of a batch is left out" 120 30 --bn-samples 149
compares "all data" 150 30 --bn-samples 150
compares "fewer samples than a batch" 30 30 --bn-samples 3
compares "replicas and passes" 150 5 --bn-samples 150 --replicas 3 --accumulate 2
compares "workers" 140 10 --bn-samples 145 --replicas 3 --workers 2
compares "averaged weights" 150 15 --bn-samples 150 --replicas 2 --ema 0.8 --workers 2
compares "backend ref" 90 30 --bn-samples 90 --backend ref

refuses() {
    it "refuses $1"
    shift
    pattern=$1
    shift
    train "$@" --run refused
    expect_code 2
    expect_error "$pattern"
    [ ! -e refused ] || miss "a run folder is left"
}
refuses "a model without BN" '--bn-samples: no BN layer of mlp trains' --model mlp --bn-samples 10
refuses "a model without BN on workers" '--bn-samples: no BN layer of mlp trains' --model mlp --bn-samples 10 --workers 2
refuses "more samples than there are" '--bn-samples 196: the training data has only 195 samples' --bn-samples 196
refuses "a run without evaluations" '--bn-samples needs evaluations' --bn-samples 10 --no-evaluate
for sync in async cutoff; do
    refuses "--sync $sync" "--bn-samples: with --sync $sync servers hold" --bn-samples 10 --sync $sync --workers 2 \
        --replicas 1
done
refuses "a number below 0" '--bn-samples' --bn-samples -1

it "statistics that are not finite end the run"
train --bn-samples 48 --lr 1e38 --weight-decay 0 --steps 1 --run bad
expect_code 5
expect_err 'is not finite: training diverged|the loss is'
[ ! -e bad/checkpoints/best ] || miss "it is saved"

it "an image that cannot be read ends the run with one line, and the steps before it are kept"
mkdir -p photos/train/a photos/train/b photos/val/a photos/val/b
for i in 1 2 3 4 5 6 7 8; do
    for class in a b; do
        printf 'P6 14 14 255\n%0588d' $i >"photos/train/$class/$i.ppm"
        printf 'P6 14 14 255\n%0588d' $i >"photos/val/$class/$i.ppm"
    done
done
echo broken >photos/train/b/8.ppm
# $small is a list of words.
# shellcheck disable=SC2086
photos() {
    lockstep train $small --input 3x14x14 --data photos --augment none --no-shuffle --batch 2 --replicas 2 --steps 6 \
        --eval-every 3 --bn-samples 16 "$@"
}
for workers in 1 2; do
    photos --workers $workers --run photos-$workers
    expect_code 3
    expect "$(grep -c 'error.*b/8.ppm' err)" = 1
    expect_file photos-$workers/checkpoints/step-00000003/model.safetensors
done

it "the run goes on when the image is there again"
cp photos/train/b/7.ppm photos/train/b/8.ppm
for workers in 1 2; do
    photos --workers $workers --run photos-$workers --resume
    expect_code 0
    expect_out 'Going on after step 3'
done
expect_bits photos-1 photos-2 6
finish
