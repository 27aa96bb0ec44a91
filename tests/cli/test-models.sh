#!/bin/sh
. tests/cli/harness.sh

it "lists the built-in models"
lockstep models
expect_code 0
for model in mlp lenet convnet alexnet alexnet-cntk vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg16_bn vgg16-cntk vgg11-cifar \
    resnet18 resnet34 resnet50 resnet101 mobilenet_v2; do
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
lockstep models show mobilenet_v3
expect_code 2
expect_error 'mobilenet_v3.*mobilenet_v2'

finish
