#!/bin/sh
# bench on a card: the roofline of a profile, and the largest batch.
. tests/cli/harness.sh
. "$source_root/tests/gpu/gpu.sh"
types="f32 tf32 bf16 fp16"
[ "$backend" = cuda ] || types="f32 bf16"

for dtype in $types; do
    it "compares a step in $dtype with the peaks of the card"
    lockstep bench --backend "$backend" --model resnet18 --input 3x32x32 --batch 64 --steps 3 --repeat 1 --dtype "$dtype" --profile
    expect_code 0
    expect_out "^This machine reaches [0-9.]+ GB/s and [0-9.]+ TFLOP/s in $dtype.*measured"
    expect_out '^conv .*%$'
    lockstep bench --backend "$backend" --model resnet18 --input 3x32x32 --batch 64 --steps 3 --repeat 1 --dtype "$dtype" --profile --json
    expect_code 0
    expect "$(grep -c measuring err)" = 0
    tail -n 1 out >last
    expect "$(json kind <last)" = peaks
    # No card moves less than a gigabyte a second, nor computes more than an exaflop.
    awk -v b="$(json bytes_per_second <last)" -v o="$(json operations_per_second <last)" \
        'BEGIN { exit !(b > 1e9 && b < 1e15 && o > 1e9 && o < 1e18) }' || miss "peaks: $(cat last)"
done

it "shows how much of a step each card computes and sums"
lockstep bench --backend "$backend" --model resnet18 --input 3x32x32 --batch 64 --steps 3 --repeat 1 --workers 2 --profile
expect_code 0
expect_out '^rank +host +step ms +compute +communication +overlapped +exposed +late +other$'
# compute, communication, overlapped, exposed, late and other: none is more than the step, and there is computing.
sed -n '/^[01] .*%$/s/%//gp' out | awk '
    { rows++; for (i = 4; i <= 9; i++) if ($i < -1 || $i > 101) bad = 1; if ($4 <= 0) bad = 1
      if ($4 + $7 + $8 + $9 < 99 || $4 + $7 + $8 + $9 > 101) bad = 1 }
    END { exit !(rows == 2 && !bad) }' || miss "shares: $(grep '^[01] .*%$' out)"

it "finds the largest batch by plans alone, and measures it"
if [ "$backend" != cuda ]; then
    skip "needs a card"
else
    lockstep bench --backend cuda --model resnet18 --data synthetic:3x32x32:10:4096 --batch max --steps 2 --repeat 1 --dtype bf16 --json
    expect_code 0
    expect_out '"batch": 4096'
    expect_out '"largest": true'
    expect "$(grep -c 'lockstep: lockstep:' err)" = 0
fi

finish
