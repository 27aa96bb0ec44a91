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
