#!/bin/sh
. tests/cli/harness.sh

images=$source_root/tests/cli/images
for part in train val; do
    mkdir -p photos/$part/bars photos/$part/ring
    for i in 1 2 3 4; do
        cp "$images/bars.jpg" photos/$part/bars/$i.jpg
        cp "$images/ring.png" photos/$part/ring/$i.png
    done
done

it "learns two images apart"
lockstep train --model lenet --data photos --input 3x28x28 --augment none --batch 8 --steps 30 --lr 0.01 --run run
expect_code 0

it "evaluates a run"
lockstep eval run
expect_code 0
expect_out '100(\.0+)?%'

it "evaluates it as JSON"
lockstep eval --run run --json
expect_code 0
expect "$(json samples <out)" = 8
expect "$(json top1 <out | cut -c1)" = 1
expect "$(json top5 <out | cut -c1)" = 1

it "predicts JPEG and PNG by class name"
lockstep predict --run run "$images/bars.jpg" "$images/ring.png"
expect_code 0
grep -A 1 'bars.jpg' out | grep -q 'bars.*[0-9]' || miss "bars.jpg is not bars"
grep -A 1 'ring.png' out | grep -q 'ring.*[0-9]' || miss "ring.png is not ring"

it "predicts a PPM"
{
    printf 'P6\n28 28\n255\n'
    head -c $((28 * 28 * 3)) /dev/zero
} >black.ppm
lockstep predict --run run black.ppm
expect_code 0
expect_out 'black.ppm'

it "keeps every image in JSON, also one whose name is not UTF-8"
odd=$(printf 'odd\351.png')
cp "$images/ring.png" "$odd"
lockstep predict run "$images/bars.jpg" "$odd" --json
expect_code 0
expect "$(grep -c '"file"' out)" = 2
expect_out 'odd\\\\xe9\.png'

it "aligns names that are not ASCII"
cp -r photos words
mv words/train/bars words/train/Stäbe
mv words/val/bars words/val/Stäbe
lockstep train --model lenet --data words --input 3x28x28 --augment none --batch 8 --steps 1 --run words-run
expect_code 0
lockstep predict words-run "$images/bars.jpg"
expect_code 0
expect "$(grep -c 'Stäbe' out)" = 1
expect "$(sed -n 's/ä/a/; /%$/p' out | awk '{ print length }' | sort -u | wc -l)" = 1

it "names an image that is broken, and one that is not there"
head -c 300 "$images/bars.jpg" >half.jpg
lockstep predict --run run half.jpg
expect_code 3
expect_error 'half.jpg'
lockstep predict --run run nowhere.png
expect_code 3
expect_error 'nowhere.png'

it "wants an image"
lockstep predict --run run
expect_code 2
expect_error 'image|file'

it "evaluates, predicts and exports a run that saves and removes checkpoints all the time, on all ranks the same one"
"$program" train --model lenet --data photos --input 3x28x28 --augment none --batch 8 --steps 100000 --lr 0.01 \
    --checkpoint-every 1 --keep 1 --threads 1 --run busy >busy.out 2>busy.err </dev/null &
busy=$!
tries=0
until [ -e busy/checkpoints/best/state.json ] || [ "$tries" = 600 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
for round in 1 2 3; do
    lockstep eval busy --threads 1
    expect_code 0
    lockstep eval busy --workers 2 --threads 1
    expect_code 0
    lockstep predict busy "$images/bars.jpg"
    expect_code 0
    lockstep export busy --onnx busy.onnx
    expect_code 0
    lockstep train --init busy --model lenet --data photos --input 3x28x28 --batch 8 --steps 1
    expect_code 0
done
kill "$busy"
{ wait "$busy"; } 2>/dev/null

it "evaluates the best checkpoint by its link, and says which one that is"
lockstep eval busy/checkpoints/best/
expect_code 0
expect_out 'Evaluating busy/checkpoints/step-[0-9]*/model.safetensors'

it "says that there is no run"
lockstep eval nowhere
expect_code 3
expect_error 'nowhere'

finish
