#!/bin/sh
# --dtype auto: which type is chosen, that runs record it, and that whatever follows a run follows its type.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
run="$small --data synthetic:3x32x32:10 --batch 8 --no-evaluate"

# shellcheck disable=SC2046,SC2086  # $run is a list of words
{
# The type of a run, from its configuration and from the identity of its plan.
dtype_of() {
    sed -n 's/^dtype: *\([a-z0-9]*\).*/\1/p' "$1/config.yaml"
    sed -n '1s/.* dtype=\([a-z0-9]*\) .*/\1/p' "$1/plan.txt"
}
expect_dtype() {
    expect "$(dtype_of "$1" | tr '\n' ' ')" = "$2 $2 "
}

it "takes f32 where nothing that is allowed is faster"
ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2 lockstep train $run --backend onednn --dtype auto --steps 2 --run old
expect_code 0
expect_error '--dtype auto: f32, nothing else that is allowed is faster here'
expect_dtype old f32
lockstep train $run --backend onednn --dtype auto:f32 --steps 1 --run only
expect_code 0
expect_dtype only f32
lockstep train $run --backend ref --dtype auto --steps 1 --run plain
expect_code 0
expect_dtype plain f32

it "takes bf16 where the processor multiplies it"
lockstep train $run --backend onednn --dtype auto:bf16+f32 --steps 2 --run new
expect_code 0
chosen=$(dtype_of new | head -n 1)
if grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then
    expect "$chosen" = bf16
    expect_error '--dtype auto:bf16[+]f32: bf16, because '
else
    expect "$chosen" = f32
fi
expect_dtype new "$chosen"

it "computes the bits of the type that it chose"
lockstep train $run --backend onednn --dtype "$chosen" --steps 2 --run given
expect_code 0
expect_bits new given 2

it "stays with a run's type: --resume, its config.yaml, --plan"
lockstep train --resume old --steps 3 --dtype auto
expect_code 0
expect_err '--dtype auto: f32, as the run has it'
expect_dtype old f32
lockstep train --resume old --steps 4
expect_code 0
expect_dtype old f32
lockstep train old/config.yaml --dtype auto --run again
expect_code 0
expect_err '--dtype auto: f32, as the run has it'
expect_dtype again f32
lockstep train new/config.yaml --run copied
expect_code 0
expect_dtype copied "$chosen"
lockstep train $run --backend onednn --dtype auto --plan old --steps 1 --run planned
expect_code 0
expect_dtype planned f32

it "leaves a run's type that is not allowed, and says what changes"
lockstep train --resume old --steps 5 --dtype auto:bf16
if [ "$code" = 0 ]; then
    expect_err '--dtype f32 is now bf16'
    expect_dtype old bf16
else
    expect_err '--dtype (auto:)?bf16: '
fi

it "chooses once for all workers"
lockstep train $run --backend onednn --dtype auto --workers 2 --steps 2 --run two
expect_code 0
expect "$(grep -c -e '--dtype auto: ' err)" = 1
expect_dtype two "$chosen"
lockstep train $run --backend onednn --dtype "$chosen" --workers 2 --steps 2 --run two-given
expect_code 0
expect_bits two two-given 2
lockstep train --resume two --workers 2 --steps 3 --dtype auto
expect_code 0
expect_err "--dtype auto: $chosen, as the run has it"

it "shows the type in plan and bench, and in a table of several"
lockstep plan $small --backend onednn --dtype auto --json
expect_code 0
expect "$(json dtype <out)" = "$chosen"
lockstep bench $small --backend onednn --dtype auto --batch 4 --steps 1 --repeat 1 --json
expect_code 0
expect "$(json dtype <out)" = "$chosen"
lockstep bench $small --backend onednn --dtype auto,auto:f32 --batch 4 --steps 1 --repeat 1
expect_code 0
expect_out "^$chosen .*"
expect_out '^f32 .*'

it "evaluates and predicts with a type that it chooses"
lockstep eval new --dtype auto --data synthetic:3x32x32:10
expect_code 0
expect_err "--dtype auto: $chosen, "

it "refuses lists that are none"
for list in auto: auto:f32+ auto:f32+b16 auto:f32,bf16 auto:f32+auto automatic f32:bf16 auto:fp16 auto:tf32+fp16; do
    lockstep train $run --backend onednn --dtype $list --steps 1 --run bad
    expect_code 2
    expect_error '--dtype'
    expect_no_file bad
done
}
finish
