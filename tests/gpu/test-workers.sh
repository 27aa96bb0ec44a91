#!/bin/sh
# Several processes that share the one card compute what one process does.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"

many="$small --backend $backend --data synthetic:1x14x14:10:195 --batch 48 --replicas 4 --schedule constant"
# $many is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $many "$@"
}

cards="the cards"
[ "$backend" = cuda ] || cards="the host"

train --steps 12 --run one
for workers in 2 4; do
    for sync in gather allreduce overlap server; do
        it "gives the bits of one process on $workers workers with --sync $sync"
        train --steps 12 --workers $workers --sync $sync --run $sync-$workers
        expect_code 0
        expect_bits one $sync-$workers 12
        case $sync in
        allreduce | overlap) expect_out "bucket.*, summed by $cards\$" ;;
        *) expect_out 'bucket.*, summed by the host$' ;;
        esac
    done
done

it "gives them by the host's memory, too"
train --steps 12 --workers 2 --collective tree --run host
expect_code 0
expect_out 'summed by the host$'
expect_bits one host 12

it "gives them where one worker has more replicas than others"
train --steps 12 --workers 3 --run uneven
expect_code 0
expect_out "summed by $cards\$"
expect_bits one uneven 12

it "gives them where a rank has two parts of the sum, which is left to the host"
train --steps 12 --replicas 6 --run six
expect_code 0
train --steps 12 --replicas 6 --workers 4 --run parts
expect_code 0
expect_out 'summed by the host$'
expect_bits six parts 12

it "gives them with many small sums, each in as many ranges as workers"
train --steps 12 --workers 4 --bucket-mb 0.001 --run buckets
expect_code 0
expect_out "[0-9][0-9]* buckets, summed by $cards\$"
expect_bits one buckets 12

it "gives them when a step has fewer samples than there are workers"
train --steps 100 --batch 4 --run few-1
expect_code 0
train --steps 100 --batch 4 --workers 4 --run few-4
expect_code 0
expect_out "summed by $cards\$"
expect_bits few-1 few-4 100

it "gives the bits of one process with passes and LARS, too"
train --steps 6 --accumulate 2 --batch 64 --optimizer lars --run passes-1
expect_code 0
train --steps 6 --accumulate 2 --batch 64 --optimizer lars --workers 2 --run passes-2
expect_code 0
expect_bits passes-1 passes-2 6

it "gives the bits of one process in bf16"
train --steps 6 --dtype bf16 --run half-1
expect_code 0
train --steps 6 --dtype bf16 --workers 2 --run half-2
expect_code 0
expect_bits half-1 half-2 6

it "goes on from 4 workers on 1 to the same bits"
train --steps 5 --workers 4 --run moved
expect_code 0
train --steps 12 --run moved --resume
expect_code 0
expect_bits one moved 12

it "leaves out the same steps in fp16, whoever sums"
if [ "$backend" = cuda ]; then
    for scale in 0 4096 16777216; do
        train --steps 12 --dtype fp16 --loss-scale $scale --run scaled-1
        expect_code 0
        [ $scale != 16777216 ] || expect_out '^Loss scale: 12 steps were left out .*a lower --loss-scale'
        for way in auto tree; do
            train --steps 12 --dtype fp16 --loss-scale $scale --workers 2 --collective $way --run scaled-$way
            expect_code 0
            expect_bits scaled-1 scaled-$way 12
        done
        rm -rf scaled-1 scaled-auto scaled-tree
    done
else
    skip "fp16 is for cards"
fi

for sync in async local; do
    it "trains with --sync $sync"
    lockstep train --backend "$backend" --model lenet --data mnist --steps 200 --batch 64 --workers 2 --threads 1 --sync $sync \
        --run free-$sync
    expect_code 0
    top1=$(sed -n 's/^Final evaluation: top-1 \([0-9]*\)\..*/\1/p' out)
    expect "${top1:-0}" -ge 85
done

it "stops all workers together"
begin 2 --backend "$backend" --data synthetic:1x14x14:10:195 --batch 48 --replicas 4 --schedule constant --epochs 1000000 \
    --checkpoint-every 5 --keep 1 --run stopped
kill -USR1 "$parent"
end
expect_code 75
expect_out 'Stopped by .* after step'

for way in auto tree; do
    it "names a worker that was killed and ends the others, with --collective $way"
    begin 3 --backend "$backend" --data synthetic:1x14x14:10:160 --batch 48 --epochs 1000000 --deadline 5 --collective $way \
        --run killed-$way
    kill_one
    gone "$victim" || miss "worker 1 is still there"
done

finish
