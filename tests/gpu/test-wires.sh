#!/bin/sh
# NCCL among processes that share the one card here. NCCL wants a card for each rank of a host, so each rank says that it is another
# host (NCCL_HOSTID), and NCCL goes through sockets: the same calls, not the same speed.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"
if [ "$backend" != cuda ]; then
    it "needs a card"
    skip "this is for cards"
    finish
fi
lockstep doctor
if ! grep -q '^ok  *nccl' out; then
    it "is there"
    skip "libnccl2 is not installed"
    finish
fi

export NCCL_SOCKET_IFNAME=lo
# hosts N ARGUMENTS...: a run on N ranks that NCCL takes for N hosts
# shellcheck disable=SC2016 # the shell of each rank expands it
each='NCCL_HOSTID=host-$LOCKSTEP_WORKER_RANK exec "$0" "$@"'
hosts() {
    ranks=$1
    shift
    lockstep run -n "$ranks" -- sh -c "$each" "$program" train "$@"
}

# 70 samples an epoch: the last step of each has six, fewer than passes. The first two steps go through the host.
run="--backend $backend --model $source_root/tests/cli/small-bn.yaml --threads 1 --data synthetic:1x28x28:10:160 --epoch-size 70
    --batch 32 --epochs 4 --replicas 8 --quiet"

for dtype in f32 bf16 fp16; do
    clip="--clip-norm 0.5"
    [ $dtype != bf16 ] || clip="--optimizer adamw --lr 0.001"
    # $run and $clip are lists of words.
    # shellcheck disable=SC2086
    lockstep train $run --dtype $dtype $clip --run one-$dtype
    layouts="2:pipeline:2 3:pipeline:3 4:pipeline:4 4:data:2,pipeline:2"
    [ $dtype = f32 ] || layouts="3:pipeline:3"
    for layout in $layouts; do
        it "carries tensors from stage to stage in $dtype on ${layout%%:*} processes with ${layout#*:}"
        # shellcheck disable=SC2086
        hosts "${layout%%:*}" $run --dtype $dtype $clip --parallel "${layout#*:}" --collective nccl --run staged
        expect_code 0
        as_one one-$dtype staged 12 confusion.json plan.txt
        rm -rf staged
    done
done

it "goes on from there alone, and the other way round"
# shellcheck disable=SC2086
hosts 3 $run --clip-norm 0.5 --parallel pipeline:3 --collective nccl --stop-after 2 --run moved
expect_code 75
lockstep train --resume --run moved --threads 1 --workers 1 --parallel data --collective auto --stop-after 3 --quiet
expect_code 75
hosts 2 --resume --run moved --threads 1 --parallel pipeline:2 --collective nccl --quiet
expect_code 0
expect_bits one-f32 moved 12

it "reports how long stages were idle"
# shellcheck disable=SC2086
lockstep run -n 2 -- sh -c "$each" "$program" bench --backend "$backend" --model resnet18 --input 3x64x64 --batch 64 --replicas 4 \
    --parallel pipeline:2 --collective nccl --steps 10 --repeat 2
expect_code 0
expect_out 'idle [0-9.]+%'

it "sums for two processes, to the bits of one with two replicas"
sums="--backend $backend --model $source_root/tests/cli/small-bn.yaml --threads 1 --data synthetic:1x28x28:10:160 --batch 32
    --steps 12 --quiet"
# shellcheck disable=SC2086
lockstep train $sums --replicas 2 --run alone
# shellcheck disable=SC2086
hosts 2 $sums --collective nccl --run summed
expect_code 0
expect_near alone summed 0
expect_bits alone summed 12

it "sums for four, nearly as one does"
# shellcheck disable=SC2086
lockstep train $sums --replicas 4 --run alone-4
# shellcheck disable=SC2086
hosts 4 $sums --collective nccl --run summed-4
expect_code 0
expect_near alone-4 summed-4 0.001

it "names a stage that was killed and ends the others"
# shellcheck disable=SC2086
"$program" run -n 3 -- sh -c "$each" "$program" train $small --backend "$backend" --data synthetic:1x14x14:10:160 --batch 48 \
    --replicas 4 --epochs 1000000 --deadline 5 --parallel pipeline:3 --collective nccl --no-evaluate --run killed >out 2>err &
parent=$!
within 120 test -s killed/metrics.jsonl || miss "the workers do not train"
sleep 1 # past the steps that go through the host
mark
victim=$(worker 1)
kill -9 "$victim"
end
expect_code 137 # that of the one that ended first
expect "$took" -le 20
! grep -q 'did not end by themselves' err || miss "a rank had to be killed"
expect_err 'rank 1 .*stage 1 of 3'

finish
