#!/bin/sh
. tests/cli/harness.sh

train() {
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:160 --batch 32 --threads 1 "$@"
}

it "stops with 5 when the loss is not a number any more"
train --steps 50 --lr 1e30 --run diverged
expect_code 5
expect_error 'step [0-9]+.*(loss|learning rate|--lr)'

it "leaves no checkpoint of a diverged model"
grep -q NaN diverged/metrics.jsonl && miss "metrics.jsonl holds NaN, which is not JSON"
expect_no_file diverged/checkpoints/step-00000050

it "names a run directory that cannot be made"
: >file
train --steps 1 --run file/run
expect_code 1
expect_error 'file/run'

it "names a run directory that cannot be written"
mkdir closed
chmod 555 closed
if [ "$(id -u)" = 0 ]; then
    skip "root may write everywhere"
else
    train --steps 1 --run closed/run
    expect_code 1
    expect_error 'closed/run'
fi

it "ends with one line and without half a checkpoint when the disk is full"
mkdir small
release_scratch() {
    umount "$scratch/small" 2>/dev/null
}
if mount -t tmpfs -o size=24k lockstep-test small 2>/dev/null; then
    train --steps 10 --run small/run
    expect_code 1
    expect_error 'small/run.*(No space left|full)'
    expect "$(find small/run -name '*.safetensors*' | wc -l)" = 0
    umount small
else
    skip "a small disk needs root"
fi

it "keeps the checkpoint it has when the next one does not fit"
if mount -t tmpfs -o size=256k lockstep-test small 2>/dev/null; then
    train --steps 5 --run small/run
    expect_code 0
    head -c 1m /dev/zero >small/ballast 2>/dev/null
    train --steps 10 --run small/run --resume
    expect_code 1
    rm small/ballast
    expect_file small/run/checkpoints/step-00000005/model.safetensors
    train --steps 10 --run small/run --resume
    expect_code 0
    umount small
else
    skip "a small disk needs root"
fi

train --steps 5 --run good >/dev/null
checkpoint=good/checkpoints/step-00000005
for part in model.safetensors state.safetensors state.json; do
    for damage in truncated flipped missing; do
        it "refuses a checkpoint whose $part is $damage"
        rm -rf bad
        cp -r good bad
        broken_file=bad/checkpoints/step-00000005/$part
        size=$(wc -c <"$broken_file")
        case $damage in
            truncated) truncate -s $((size - 1)) "$broken_file" ;;
            flipped) printf '\377' | dd of="$broken_file" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null ;;
            missing) rm "$broken_file" ;;
        esac
        train --steps 10 --run bad --resume
        expect_code 3
        expect_err "$part"
    done
done

it "goes on from the checkpoint before a damaged one"
train --steps 10 --checkpoint-every 5 --run older
truncate -s -1 older/checkpoints/step-00000010/model.safetensors
train --steps 10 --run older --resume
expect_code 0
expect_err 'step-00000010/model.safetensors: damaged'
expect_out 'step-00000005'

it "refuses weights of another model"
lockstep train --model mlp --data synthetic:1x28x28:10:160 --batch 32 --steps 1 \
    --init $checkpoint/model.safetensors --run other
expect_code 3
expect_error 'model.safetensors'

it "refuses weights that are no safetensors file"
echo hello >hello.safetensors
lockstep train --model mlp --data synthetic:1x28x28:10:160 --batch 32 --steps 1 --init hello.safetensors --run hello
expect_code 3
expect_error 'hello.safetensors'

it "refuses a batch that no memory holds"
lockstep train --model vgg16 --data synthetic:3x224x224:1000 --batch 1000000 --steps 1 --run huge
expect_code 2
expect_error 'features.0.*1000000x64x224x224'

finish
