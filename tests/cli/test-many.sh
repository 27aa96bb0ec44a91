#!/bin/sh
# One run is the same run on any number of workers, however their gradients meet.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

# BN, a shortcut, dropout and augmentation. 195 samples: the last of an epoch's five steps has 3 of them, which most of
# the eight replicas never see.
many="$small --data synthetic:1x14x14:10:195 --batch 48 --replicas 8 --augment crop:2,flip --schedule constant"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many "$@"
}
# MNIST with a model that has neither BN nor dropout.
lenet() {
    lockstep train --model lenet --data mnist --epoch-size 200 --batch 64 --replicas 4 --threads 1 --no-evaluate --steps 6 "$@"
}

# Without the checksum of config.yaml, which names the workers, that of the file itself, and the time that the run took.
state_of() {
    grep -vE '"(config\.yaml|state\.json|seconds)":' "$1/checkpoints/step-00000020/state.json"
}

train --steps 20 --run one

for workers in 2 3 4 8; do
    it "computes the same on $workers workers as on one"
    train --steps 20 --workers $workers --run on-$workers
    expect_code 0
    expect_file one/checkpoints/step-00000020/model.safetensors
    expect_bits one on-$workers 20
    state_of one >state-1
    state_of on-$workers >state-$workers
    expect_same state-1 state-$workers

    it "counts the same on $workers workers as on one"
    figures one >figures-1
    figures on-$workers >figures-$workers
    expect "$(grep -c '"kind": "eval"' figures-1)" = 4
    expect_same figures-1 figures-$workers
done

it "goes on from 8 workers on 2, then on 3, to the same bits"
train --steps 7 --workers 8 --run moved
expect_code 0
train --steps 13 --workers 2 --run moved --resume
expect_code 0
expect_out 'Going on after step 7'
train --steps 20 --workers 3 --run moved --resume
expect_code 0
expect_out 'Going on after step 13'
expect_bits one moved 20

it "takes what defines the run from its directory when it goes on"
lockstep train --workers 2 --run moved --resume --steps 25
expect_code 0
train --steps 25 --run moved-1
expect_bits moved-1 moved 25

lenet --run lenet-1
for sync in gather allreduce overlap server; do
    it "gives the bits of one process with --sync $sync"
    lenet --workers 2 --sync $sync --run lenet-$sync-2
    expect_code 0
    expect_bits lenet-1 lenet-$sync-2 6
    lenet --workers 3 --sync $sync --bucket-mb 0.02 --run lenet-$sync-3
    expect_code 0
    expect_bits lenet-1 lenet-$sync-3 6

    it "gives the bits of one process with --sync $sync and batch normalisation"
    train --steps 20 --workers 4 --sync $sync --run bn-$sync
    expect_code 0
    expect_bits one bn-$sync 20
done

it "gives the bits of one process with passes and LARS, too"
train --steps 6 --accumulate 2 --batch 64 --optimizer lars --run passes-1
expect_code 0
train --steps 6 --accumulate 2 --batch 64 --optimizer lars --workers 3 --run passes-3
expect_code 0
expect_bits passes-1 passes-3 6

it "gives the bits of one process for a residual network"
lockstep train --model resnet18 --data synthetic:3x32x32:10:16 --batch 8 --replicas 4 --threads 1 --steps 2 \
    --no-evaluate --run resnet-1
expect_code 0
lockstep train --model resnet18 --data synthetic:3x32x32:10:16 --batch 8 --replicas 4 --threads 1 --steps 2 \
    --no-evaluate --workers 2 --run resnet-2
expect_code 0
expect_bits resnet-1 resnet-2 2

# The largest difference of two models' parameters, in millionths of the largest of them.
cat >apart.py <<'END'
import array, json, sys
def read(path):
    data = open(path, "rb").read()
    at = 8 + int.from_bytes(data[:8], "little")
    names = json.loads(data[8:at])
    names.pop("__metadata__", None)
    tensors = {}
    for name, t in names.items():
        if t["dtype"] == "F32":
            tensors[name] = array.array("f", data[at + t["data_offsets"][0]:at + t["data_offsets"][1]])
    return tensors
a, b = (read(path + "/model.safetensors") for path in sys.argv[1:])
assert a and a.keys() == b.keys()
worst = 0
for name in a:
    size = max(map(abs, a[name])) or 1
    worst = max(worst, max(abs(x - y) for x, y in zip(a[name], b[name])) / size)
print(int(worst * 1e6 + 0.999))
END

it "averages models after every step as gradients are, up to rounding"
lockstep train --model mlp --data mnist --epoch-size 512 --batch 64 --threads 1 --no-evaluate --steps 8 --workers 2 \
    --sync allreduce --run averaged-gradients
expect_code 0
lockstep train --model mlp --data mnist --epoch-size 512 --batch 64 --threads 1 --no-evaluate --steps 8 --workers 2 \
    --sync local --local-steps 1 --run averaged-models
expect_code 0
apart=$(python3 apart.py averaged-gradients/checkpoints/step-00000008 averaged-models/checkpoints/step-00000008 2>err)
expect "${apart:-99}" -le 10

it "begins block momentum with the weights that a run begins with"
lockstep train --model mlp --data mnist --epoch-size 640 --epochs 1 --threads 1 --no-evaluate --run begun
expect_code 0
lockstep train --model mlp --data mnist --steps 9 --batch 64 --workers 2 --threads 1 --sync local --local-steps 2 \
    --block-momentum 0.9 --lr 0 --init begun/checkpoints/step-00000010/model.safetensors --no-evaluate --run kept
expect_code 0
expect "$(python3 apart.py begun/checkpoints/step-00000010 kept/checkpoints/step-00000009 2>err)" = 0

it "leaves running statistics out of block momentum"
for momentum in 0 0.9; do
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:640 --batch 32 --steps 16 \
        --workers 2 --threads 1 --sync local --local-steps 4 --block-momentum $momentum --lr 0 --no-evaluate \
        --run running-$momentum
    expect_code 0
done
expect "$(python3 apart.py running-0/checkpoints/step-00000016 running-0.9/checkpoints/step-00000016 2>err)" = 0

it "evaluates each sample once, also where workers get different shares"
for workers in 1 3; do
    lockstep train --model lenet --data mnist --eval-data synthetic:1x28x28:10:205 --epoch-size 128 --batch 64 \
        --replicas 4 --threads 1 --epochs 1 --workers $workers --run evaluated-$workers
    expect_code 0
    expect_out 'over 41 samples'
done
expect "$(figures evaluated-1 | grep '"eval"')" = "$(figures evaluated-3 | grep '"eval"')"

for kind in openmpi mpich; do
    it "computes the same under mpirun ($kind)"
    if [ ! -e "$(dirname "$program")/lockstep-mpi-$kind.so" ] || ! command -v mpirun.$kind >/dev/null; then
        skip "needs $kind, and a program built with it"
    else
        more=
        [ $kind = mpich ] || more=--oversubscribe
        # shellcheck disable=SC2086
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 mpirun.$kind $more -np 3 \
            "$program" train $many --steps 20 --run under-$kind >out 2>err </dev/null
        code=$?
        expect_code 0
        expect_out '3 on 1 host over mpi'
        expect_bits one under-$kind 20
    fi
done

it "takes a replica for each worker when nobody says how many"
# shellcheck disable=SC2086
lockstep train $small --data synthetic:1x14x14:10:195 --batch 48 --steps 5 --workers 3 --run unasked
expect_code 0
expect_out '3 replicas'
# shellcheck disable=SC2086
lockstep train $small --data synthetic:1x14x14:10:195 --batch 48 --steps 5 --replicas 3 --run asked
expect_code 0
expect_bits asked unasked 5

it "lets rank 0 alone write and speak"
expect "$(grep -c '"kind": "step"' on-8/metrics.jsonl)" = 20
train --steps 20 --workers 8 --run spoken
expect "$(grep -c 'Final evaluation' out)" = 1
expect "$(wc -l <err)" = 0
expect "$(find on-8 -name log.txt | wc -l)" = 1

it "deals a batch that replicas do not divide"
train --batch 50 --steps 8 --run uneven-1
expect_code 0
train --batch 50 --steps 8 --workers 3 --run uneven-3
expect_code 0
expect_bits uneven-1 uneven-3 8

it "refuses a batch with too few samples, once"
train --batch 7 --workers 3 --run few
expect_code 2
expect_error '7.*8'
expect_no_file few

it "refuses more workers than replicas, once"
train --replicas 2 --batch 48 --workers 3 --run crowded
expect_code 2
expect_error 'replicas'
expect_no_file crowded

it "says a wrong file once"
lockstep train --workers 3 --data nowhere/else --run none
expect_code 3
expect_error 'nowhere/else'

it "says once that training diverged"
train --lr 1e30 --steps 20 --workers 3 --run diverged
expect_code 5
expect_error 'step [0-9]+.*diverged'

# --- being stopped ----------------------------------------------------------------------------------------

long="--data synthetic:1x14x14:10:195 --batch 48 --replicas 4 --schedule constant"
# shellcheck disable=SC2086
for how in INT USR1; do
    it "saves on SIG$how to the parent and ends with 75"
    begin 3 $long --epochs 1000000 --run stopped-$how
    within 60 grep -q '"step"' stopped-$how/metrics.jsonl || miss "no step is done"
    kill -$how "$parent"
    end
    expect_code 75
    expect_out 'Go on with: lockstep train --resume --run stopped'
    expect "$(wc -l <err)" = 0
    step=$(sed -n 's/^Stopped by .* after step \([0-9]*\) of.*/\1/p' out)
    expect "${step:-0}" -gt 0
done

it "goes on to the bits of an uninterrupted run"
# shellcheck disable=SC2086
{
    lockstep train --workers 2 --resume --run stopped-USR1 --epochs 1000000 --steps $((step + 10))
    expect_code 0
    expect_out "Going on after step $step"
    lockstep train $small $long --no-evaluate --epochs 1000000 --steps $((step + 10)) --run unstopped
}
expect_bits unstopped stopped-USR1 $((step + 10))

# LeNet's 20 and 50 channels leave padding in every layer, which a codec must not fill.
for how in fp16 bf16 1bit powersgd:2; do
    it "learns with gradients compressed as $how"
    lockstep train --model lenet --data mnist --workers 2 --threads 1 --compress $how --lr 0.01 --steps 120 --run by-$how
    expect_code 0
    top1=$(sed -n 's/^Final evaluation: top-1 \([0-9]*\).*/\1/p' out)
    expect "${top1:-0}" -ge 80
done

it "refuses compression where no gradients travel"
lockstep train --model lenet --data mnist --workers 2 --threads 1 --sync local --compress fp16 --steps 2 --run nothing
expect_code 2
expect_error 'compress fp16.*sync local'

it "takes a signal to all processes at once for one"
# shellcheck disable=SC2086
begin 3 $long --epochs 1000000 --run echoed
kill -USR1 $(pgrep -P "$parent") "$parent"
end
expect_code 75
expect_out 'Go on with'

finish
