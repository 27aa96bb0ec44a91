#!/bin/sh
. tests/cli/harness.sh

it "lists the built-in models"
lockstep models
expect_code 0
for model in mlp lenet convnet alexnet alexnet-cntk vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg16_bn vgg16-cntk vgg11-cifar \
    resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d wide_resnet50_2 densenet121 squeezenet1_1 mobilenet_v2 \
    mobilenet_v3_small mobilenet_v3_large efficientnet_b0; do
    expect_out "(^|[^a-z0-9_-])$model([^a-z0-9_-]|$)"
done

it "lists them as JSON"
lockstep models --json
expect_code 0
expect_out '"resnet50"'

# Counts of torchvision's models and of those in CNTK's reports: name, input, classes, parameters, tensors.
while read -r model input classes parameters tensors; do
    it "$model at $input with $classes classes has $parameters parameters in $tensors tensors"
    lockstep models show "$model" --input "$input" --classes "$classes" --json
    expect_code 0
    expect "$(json parameters <out)" = "$parameters"
    expect "$(json tensors <out)" = "$tensors"
    expect "$(json macs <out)" -gt 0
done <<'END'
alexnet-cntk 3x64x64 200 25171464 16
alexnet-cntk 3x224x224 200 72357384 16
vgg16-cntk 3x64x64 200 40708104 32
alexnet 3x224x224 1000 61100840 16
vgg11 3x224x224 1000 132863336 22
vgg16 3x224x224 1000 138357544 32
resnet18 3x224x224 1000 11689512 62
resnet34 3x224x224 1000 21797672 110
resnet50 3x224x224 1000 25557032 161
mobilenet_v2 3x224x224 1000 3504872 158
resnext50_32x4d 3x224x224 1000 25028904 161
efficientnet_b0 3x224x224 1000 5288548 213
END

it "counts depend on the classes, not on the input, where a model pools adaptively"
lockstep models show resnet18 --input 3x64x64 --classes 10 --json
expect "$(json parameters <out)" = 11181642

it "prints a model as a YAML layer list that trains as it is"
lockstep models show lenet --yaml
expect_code 0
cp out lenet.yaml
lockstep train --model lenet.yaml --data synthetic:1x28x28:10:64 --batch 32 --steps 2 --run yaml
expect_code 0
lockstep train --model lenet --data synthetic:1x28x28:10:64 --batch 32 --steps 2 --run built-in
expect_code 0
for run in yaml built-in; do
    # The header names the model; the values are the file's tail.
    tail -c $((1663370 * 4)) $run/checkpoints/step-00000002/model.safetensors >$run.values
done
expect_same yaml.values built-in.values

it "trains a hand-written model of every activation, squeeze-and-excitation and stochastic depth"
cat >excite.yaml <<'END'
input: 1x28x28
classes: 10
init: {conv: kaiming_in, dense: kaiming_uniform}
layers:
  - {name: conv1, op: conv, out: 12, kernel: 3, stride: 2, pad: 1}
  - {name: silu1, op: silu}
  - {name: mean, op: adaptive_avgpool}
  - {name: fc1, op: conv, out: 6, kernel: 1}
  - {name: gelu1, op: gelu}
  - {name: fc2, op: conv, out: 12, kernel: 1}
  - {name: gate, op: sigmoid}
  - {name: excited, op: mul, from: [silu1, gate]}
  - {name: conv2, op: conv, out: 12, kernel: 3, pad: 1, groups: 3}
  - {name: drop, op: drop_path, p: 0.5}
  - {name: sum, op: add, from: [excited, drop]}
  - {name: swish, op: act, act: hardswish}
  - {name: pool, op: maxpool, kernel: 3, stride: 2, ceil: true}
  - {name: clipped, op: hardsigmoid}
  - {name: both, op: concat, from: [pool, clipped]}
  - {name: fc, op: dense, out: classes}
END
excite() {
    lockstep train --model excite.yaml --data synthetic:1x28x28:10:128 --batch 32 --steps 4 --replicas 4 --threads 1 \
        --no-evaluate "$@"
    expect_code 0
}
excite --run excite1
excite --run excite2 --workers 2
expect_same excite1/checkpoints/step-00000004/model.safetensors excite2/checkpoints/step-00000004/model.safetensors
lockstep models show excite.yaml --yaml
expect_code 0
cp out again.yaml
lockstep models show again.yaml --yaml
expect_code 0
tail -n +2 out >second
tail -n +2 again.yaml >first
expect_same first second

it "names the two shapes that do not go together in a mul"
sed 's/from: \[silu1, gate\]/from: [silu1, conv1]/' excite.yaml >unlike.yaml
lockstep models show unlike.yaml
expect_code 3
expect_error 'unlike.yaml:12: layer excited: its second input is 1x12x14x14, expected 1x12x1x1'

it "names the line of a mistake in a model file"
sed 's/op: conv/op: covn/; s/conv:/covn:/' lenet.yaml >wrong.yaml
lockstep train --model wrong.yaml --data synthetic:1x28x28:10:64 --batch 32 --steps 1 --run wrong
expect_code 3
expect_error 'wrong.yaml:[0-9]+.*covn.*conv'

it "refuses a model that shrinks its input to nothing"
lockstep models show vgg16 --input 3x16x16 --classes 10
expect_code 2
expect_error 'features.30.*1x1'

it "prints one form, not one of two that were asked for"
lockstep models show lenet --yaml --json
expect_code 2
expect_error '--yaml and --json'

it "names the nearest model"
lockstep models show mobilenet_v9
expect_code 2
expect_error 'mobilenet_v9.*mobilenet_v2'

finish
