#!/bin/sh
. tests/cli/harness.sh

it "shows nodes, kernels, memory and reorders of a training step"
lockstep plan --model lenet --data synthetic:1x28x28:10 --batch 32
expect_code 0
expect_out 'conv'
expect_out 'sgd'
expect_out '[Pp]eak'
expect_out '[Rr]eorder'

it "plans without training anything"
expect_no_file runs

it "plans every activation its own room with --no-reuse"
lockstep plan --model resnet18 --input 3x32x32 --batch 4 --no-reuse
expect_code 0

it "plans for the workers and the layout of train"
cat >wide.yaml <<END
input: 1x14x14
classes: 10
layers:
  - {name: c1, op: conv, out: 20, kernel: 3, stride: 2, pad: 1}
  - {name: r1, op: relu}
  - {name: f1, op: dense, out: 4100}
  - {name: f2, op: dense, out: classes}
END
wide="plan --model wide.yaml --batch 16 --threads 1"
# shellcheck disable=SC2086
{
    lockstep $wide --parallel dense:2
    expect_code 0
    expect_out 'Each of 2 workers: .* parameters \(rows\) \+ [0-9.]+ MiB exchanged'
    lockstep $wide --workers 2 --json
    whole=$(sed -n 's/.*"parameter_bytes": \([0-9]*\).*/\1/p' out)
    lockstep $wide --workers 2 --parallel dense:2 --json
    rows=$(sed -n 's/.*"parameter_bytes": \([0-9]*\).*/\1/p' out)
    expect $((rows * 100 / whole)) = 51
    lockstep $wide --replicas 6 --workers 4 --parallel pipeline:2
    expect_code 0
    expect_out '2 groups of 2 stages, 3 passes a step: at least 25.0%'
    lockstep $wide --replicas 1 --workers 2 --parallel pipeline:2
    expect_code 0
    expect_out '2 stages, 1 pass a step'
    lockstep $wide --workers 3 --parallel pipeline:2
    expect_code 2
    expect_error 'layout of 2 processes, and there are 3'
    lockstep $wide --replicas 1 --parallel data:2,pipeline:2
    expect_code 2
    expect_error '2 pipelines cannot share 1 replica; give --replicas 2 or more'
    lockstep train --model wide.yaml --data synthetic:1x14x14:10 --replicas 1 --workers 4 --parallel pipeline:2 --run never
    expect_code 2
    expect_error '2 pipelines cannot share 1 replica; give --replicas 2 or more'
    lockstep $wide --parallel pipeline:2 --shard state
    expect_code 2
    expect_error 'not with --parallel pipeline:2'
    lockstep $wide --parallel dense:2 --optimizer lars
    expect_code 2
    expect_error 'updates a layer as a whole'
}

it "takes no Winograd where maps have one pixel"
LOCKSTEP_PLAN_CACHE=cache lockstep plan --model resnet18 --input 3x32x32 --batch 8
expect_code 0
expect_out 'conv_bwd_weights.*layer4.1.conv2'
expect_no_out 'conv_bwd_weights.*layer4.1.conv2.*wino'

it "gives the same bits with and without reuse of memory"
for reuse in reuse no-reuse; do
    lockstep train --model vgg11-cifar --data synthetic:3x32x32:10:32 --batch 8 --steps 3 --"$reuse" --run "$reuse"
    expect_code 0
done
expect_same reuse/checkpoints/step-00000003/model.safetensors no-reuse/checkpoints/step-00000003/model.safetensors

finish
