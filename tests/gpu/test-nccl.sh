#!/bin/sh
# Sums by NCCL, as far as one card goes: a process alone takes the same way through its graph as many would.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"

# $small is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $small --backend "$backend" --data synthetic:1x14x14:10:195 --batch 48 --schedule constant "$@"
}

it "is there"
lockstep doctor
if grep -q '^missing  *nccl  *NCCL was not found' out; then
    skip "libnccl2 is not installed"
    finish
fi
expect_out '^ok +nccl +NCCL 2\.'

for dtype in f32 bf16 fp16; do
    it "changes no bit of a process alone in $dtype"
    train --steps 12 --dtype $dtype --run plain-$dtype
    expect_code 0
    train --steps 12 --dtype $dtype --collective nccl --run nccl-$dtype
    expect_code 0
    expect_near plain-$dtype nccl-$dtype 0
    expect_bits plain-$dtype nccl-$dtype 12
done

it "changes none with replicas and passes, nor with many small sums"
train --steps 6 --replicas 2 --accumulate 2 --run plain-passes
expect_code 0
train --steps 6 --replicas 2 --accumulate 2 --collective nccl --bucket-mb 0.001 --run nccl-passes
expect_code 0
expect_bits plain-passes nccl-passes 6
train --steps 12 --collective nccl --sync allreduce --run nccl-tensors
expect_code 0
expect_bits plain-f32 nccl-tensors 12

it "goes on to the same bits"
train --steps 5 --collective nccl --run moved
expect_code 0
train --steps 12 --run moved --resume
expect_code 0
expect_bits plain-f32 moved 12

it "refuses two processes on one card, and says what to do"
mark
train --steps 2 --workers 2 --collective nccl --deadline 20 --run two
expect_code 2
expect_err 'ranks 0 and 1 compute on the same card'
expect_err 'leave --collective out'
expect $((($(date +%s%N) - since) / 1000000000)) -lt 60

it "measures steps with it"
lockstep bench --model lenet --backend "$backend" --steps 5 --repeat 2 --collective nccl
expect_code 0
expect_out 'samples'

it "says so where the library is missing"
mkdir empty
echo "no library" >empty/libnccl.so.2
LD_LIBRARY_PATH=$PWD/empty${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} train --steps 2 --collective nccl --run none
expect_code 2
expect_err 'NCCL was not found; install libnccl2, or leave --collective out'

finish
