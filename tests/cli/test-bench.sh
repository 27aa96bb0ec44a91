#!/bin/sh
. tests/cli/harness.sh

it "prints median, mean, deviation and coefficient of variation"
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 5 --warmup-steps 1 --repeat 2
expect_code 0
for word in median mean sd CV samples/s; do
    expect_out "$word"
done

it "gives them as JSON"
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 5 --warmup-steps 1 --json
expect_code 0
expect "$(json model <out)" = lenet
expect "$(json batch <out)" = 16
expect "$(json workers <out)" = 1
expect "$(json dtype <out)" = f32
for key in threads step_ms_median samples_per_s peak_bytes parameters tensors; do
    expect -n "$(json $key <out)"
done
expect_out '"step_ms": *\['

it "leaves no run directory"
expect_no_file runs

it "measures bf16 where the machine has it, and says so where not"
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 2 --dtype bf16 --json
if [ "$code" = 0 ]; then
    expect "$(json dtype <out)" = bf16
else
    expect_code 2
    expect_error '--dtype bf16: '
fi

it "refuses a type that the backend does not have"
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 2 --backend onednn --dtype fp16
expect_code 2
expect_error '--dtype fp16: .*--backend cuda'

it "measures with data whose number is no multiple of the batch"
lockstep bench --model mlp --data synthetic:1x8x8:4:12 --batch 8 --steps 4 --repeat 1 --threads 1 --json
expect_code 0

finish
