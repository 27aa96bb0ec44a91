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
for key in threads step_ms_median step_cpu_ms samples_per_s peak_bytes parameters tensors; do
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

it "keeps to the instructions that ONEDNN_MAX_CPU_ISA allows"
export ONEDNN_MAX_CPU_ISA=AVX2
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 2 --dtype bf16
unset ONEDNN_MAX_CPU_ISA
expect_code 2
expect_error '--dtype bf16: .*AVX-512'

it "refuses a type that the backend does not have"
lockstep bench --model lenet --data synthetic:1x28x28:10 --batch 16 --steps 2 --backend onednn --dtype fp16
expect_code 2
expect_error '--dtype fp16: .*--backend cuda'

it "measures with data whose number is no multiple of the batch"
lockstep bench --model mlp --data synthetic:1x8x8:4:12 --batch 8 --steps 4 --repeat 1 --threads 1 --json
expect_code 0

# The peaks of the machine. Their values are what the machine does today: only their relations are checked.
profile="bench --model mlp --data synthetic:1x8x8:4:12 --batch 8 --steps 2 --repeat 1 --threads 1 --backend onednn --profile"
peaks=.cache/lockstep/peaks.json
# $profile is a list of words.
# shellcheck disable=SC2086
{
    it "compares each node, each op and the step with what the machine can do"
    lockstep $profile
    expect_code 0
    expect_err '^lockstep: measuring the peaks of this machine'
    expect_out '^This machine reaches [0-9.]+ GB/s and [0-9.]+ TFLOP/s in f32 on 1 thread \(measured [0-9-]+\)'
    expect_out '^of its roofline: [0-9.]+ of [0-9.]+ ms'
    expect_out '^op +nodes +ms +share +MB +GB/s +TFLOP/s +of roofline$'
    expect_out '^dense +3 +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9]+%$'
    expect_out '^layer +op .* of roofline +kernel'
    expect_file $peaks

    it "measures them once"
    cp $peaks first.json
    lockstep $profile --json
    expect_code 0
    expect "$(grep -c measuring err)" = 0
    expect "$(grep -c '"kind": "node"' out)" = "$(grep -c '"roofline_ms": [0-9.e+-]*}' out)"
    tail -n 1 out >last
    expect "$(json kind <last)" = peaks
    for key in bytes_per_second operations_per_second step_ms roofline_ms roofline_share; do
        expect -n "$(json $key <last)"
    done
    expect "$(json dtype <last)" = f32

    it "measures them again where the cache is damaged, and keeps those of other machines"
    echo '{"another machine": {"bytes_per_second": 1.0, "operations_per_second": 2.0}}' >$peaks
    lockstep $profile
    expect_code 0
    expect_err measuring
    expect "$(grep -c '"another machine": {' $peaks)" = 1
    expect "$(grep -c 'onednn, .* 1 threads, f32, dense 2048": {' $peaks)" = 1
    head -c 60 first.json >$peaks
    lockstep $profile
    expect_code 0
    expect_err measuring
    expect "$(head -n 1 $peaks)" = "{"
    lockstep $profile
    expect "$(grep -c measuring err)" = 0

    it "raises a peak that a node of the step exceeds"
    sed -i 's/"operations_per_second": .*/"operations_per_second": 1000.0/' $peaks
    lockstep $profile --json
    expect_code 0
    expect "$(grep -c '"operations_per_second": 1000.0' $peaks)" = 0

    it "shows a profile without a cache"
    XDG_CACHE_HOME=/proc/none lockstep $profile
    expect_code 0
    expect_out 'This machine reaches'
}

finish
