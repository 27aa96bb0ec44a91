#!/bin/sh
# The same command gives the same bits, whatever the plan cache holds and whatever else the machine does.
. tests/cli/harness.sh
unset LOCKSTEP_TUNE

# Convolutions for which direct and Winograd kernels compete, and dense layers with two kernels.
cat >model.yaml <<'END'
input: 3x16x16
classes: 10
layers:
  - {name: conv1, op: conv, out: 32, kernel: 3, pad: 1}
  - {name: relu1, op: relu}
  - {name: conv2, op: conv, out: 64, kernel: 3, pad: 1}
  - {name: relu2, op: relu}
  - {name: pool2, op: maxpool, kernel: 2, stride: 2}
  - {name: conv3, op: conv, out: 64, kernel: 3, pad: 1}
  - {name: pool3, op: maxpool, kernel: 4, stride: 4}
  - {name: conv4, op: conv, out: 64, kernel: 3, pad: 1}
  - {name: fc1, op: dense, out: 128}
  - {name: relu5, op: relu}
  - {name: fc2, op: dense, out: classes}
END
train() {
    lockstep train --model "$scratch/model.yaml" --data synthetic:3x16x16:10:64 --batch 32 --threads 2 "$@"
}
# Of the momentum, which has every gradient in it, and no metadata that name the run.
sum() {
    cat "$1"/checkpoints/step-*/state.safetensors | sha256sum
}
identity() {
    sed -n 's/^  identity *//p' "$1/log.txt" | tail -n 1
}

it "gives the same bits time after time, whatever a plan cache holds"
train --tune --plan-cache measured --run tuned
expect_code 0
expect_err 'lockstep: measuring kernels on this processor'
expect_file measured
sed 's/|winograd:[a-z0-9]*|/|jit:avx512_core|/' measured >strange
for cache in none measured strange; do
    train --plan-cache "$cache" --run "with-$cache"
    expect_code 0
    expect "$(sum with-none)" = "$(sum "with-$cache")"
    expect "$(identity with-none)" = "$(identity "with-$cache")"
done
expect_no_file none
(unset HOME XDG_CACHE_HOME && exec "$program" train --model "$scratch/model.yaml" --data synthetic:3x16x16:10:64 \
    --batch 32 --threads 2 --run homeless) >out 2>err
expect "$(sum with-none)" = "$(sum homeless)"

it "gives the same bits on a busy machine"
for _ in 1 2 3 4; do
    while :; do :; done &
    busy="${busy:-} $!"
done
train --run busy
expect "$(sum with-none)" = "$(sum busy)"
# $busy is a list of words.
# shellcheck disable=SC2086
kill $busy
wait
mv with-none fresh-1

it "computes with what it measures: the same plan gives the same bits again"
train --tune --plan-cache measured --run tuned-again
expect "$(sum tuned)" = "$(sum tuned-again)"
expect "$(identity tuned)" = "$(identity tuned-again)"
train --plan tuned --run tuned-planned
expect "$(sum tuned)" = "$(sum tuned-planned)"

it "prints what decides the bits, and keeps it in the run and the checkpoint"
identity fresh-1 | grep -qE '^[0-9a-f]{8}: backend onednn, .*dtype f32, threads 2, replicas 1, .*plan [0-9a-f]{16}$' ||
    miss "not so: $(identity fresh-1)"
grep -q '"identity": "backend=onednn .*threads=2 ' fresh-1/checkpoints/step-*/state.json || miss "not in state.json"
expect "$(head -c 19 fresh-1/plan.txt)" = "# identity backend="

# A plan with another kernel than this machine would choose: direct instead of Winograd.
other_plan() {
    sed '/ bwd_data /! s/|winograd:[a-z0-9]*|/|jit:avx512_core|/' fresh-1/plan.txt
}

it "computes with the plan of a run, or a file, that --plan names"
train --plan fresh-1 --run planned
expect_code 0
expect "$(sum fresh-1)" = "$(sum planned)"
expect "$(identity fresh-1)" = "$(identity planned)"
if grep -q '|winograd:avx512' fresh-1/plan.txt; then
    other_plan >plan.txt
    train --plan plan.txt --run direct
    expect_code 0
    [ "$(sum fresh-1)" != "$(sum direct)" ] || miss "another plan gave the same bits"
    expect "$(cut -d'|' -f2,3 <plan.txt | tail -n +2)" = "$(cut -d'|' -f2,3 <direct/plan.txt | tail -n +2)"
    mkdir elsewhere
    (cd elsewhere && exec "$program" train ../direct/config.yaml --run ../again) >out 2>err
    expect "$(sum direct)" = "$(sum again)"
    lockstep plan fresh-1/config.yaml
    usual=$(grep -c winograd out)
    lockstep plan direct/config.yaml
    expect_code 0
    [ "$(grep -c winograd out)" -lt "$usual" ] || miss "plan shows other kernels than the run's"
    train --steps 1 --plan plan.txt --run halves
    lockstep train --steps 10 --run halves --resume
    expect_code 0
    expect "$(sum direct)" = "$(sum halves)"
fi

it "takes the number of threads from the plan, and refuses another"
lockstep train --model model.yaml --data synthetic:3x16x16:10:64 --batch 32 --plan fresh-1/plan.txt --run threads
expect_code 0
expect "$(sum fresh-1)" = "$(sum threads)"
train --threads 1 --plan fresh-1 --run refused
expect_code 2
expect_error 'threads 1.*fresh-1 is for 2 threads'

it "takes them from the plan with several workers, too"
train --replicas 2 --run replicas
expect_code 0
for workers in 1 2; do
    lockstep train --model model.yaml --data synthetic:3x16x16:10:64 --batch 32 --replicas 2 --workers $workers \
        --plan replicas --run "replicas-$workers"
    expect_code 0
    expect "$(sum replicas)" = "$(sum "replicas-$workers")"
done

it "says that a run is not computed as before when its configuration is run with other threads"
lockstep train fresh-1/config.yaml --threads 1 --run fewer
expect_code 0
expect_err 'warning: not computed as in .*/fresh-1 \(threads 2, now 1\).*--plan .*/fresh-1'
lockstep train fresh-1/config.yaml --run as-many
expect_code 0
expect "$(wc -c <err)" = 0
expect "$(sum fresh-1)" = "$(sum as-many)"

it "says nothing of the plan when another batch is asked for"
lockstep train fresh-1/config.yaml --batch 16 --run smaller
expect_code 0
expect "$(wc -c <err)" = 0

it "chooses kernels anew when the plan of a run is damaged"
cp -r fresh-1 damaged
echo hello >damaged/plan.txt
lockstep train damaged/config.yaml --run mended
expect_code 0
expect_error 'warning: .*damaged/plan.txt: not a plan.*; kernels are chosen anew'
expect "$(sum fresh-1)" = "$(sum mended)"

it "refuses a plan that does not fit"
train --batch 16 --plan fresh-1 --run refused
expect_code 3
expect_error "layer conv1: --plan names no kernel for .*another model, batch"
sed 's/|winograd:[a-z0-9]*|/|winograd:z80|/; s/|[a-z_0-9]*:gemm:jit|/|gemm:z80|/' fresh-1/plan.txt >z80.txt
train --plan z80.txt --run refused
expect_code 3
expect_error "layer [a-z0-9]*: --plan wants the kernel '[a-z]*:z80'"
train --plan nowhere --run refused
expect_code 3
expect_error 'nowhere: no such plan'
echo hello >hello.txt
train --plan hello.txt --run refused
expect_code 3
expect_error 'hello.txt: not a plan'
expect_no_file refused

it "names what is different in a resumed run"
train --schedule constant --steps 1 --run resumed
lockstep train --run resumed --resume --threads 1 --steps 2
expect_code 0
expect_err 'not computed as before \(threads 2, now 1'

finish
