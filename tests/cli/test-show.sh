#!/bin/sh
# lockstep data show: the pictures are what training sees.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"
: "${PYTHON:=python3}"
check=$source_root/tests/cli/sheet_check.py
if ! "$PYTHON" -c 'import zlib' 2>err; then
    it "shows samples"
    skip "there is no Python"
    finish
    exit
fi
python_has() {
    "$PYTHON" -c "import $1" 2>/dev/null
}
sheet() {
    "$PYTHON" "$check" "$@" >said 2>&1 || miss "$(tail -n 1 said)"
}

classes photos/train 9 ash birch "cedar <b> été"
classes photos/val 1 ash birch "cedar <b> été"

it "writes a PNG"
lockstep data show
expect_code 0
expect_out '^samples.png: 32 of 60000 samples, 1x28x28, augment none, seed 1, epoch 1$'
expect "$(head -c 4 samples.png | tail -c 3)" = PNG
lockstep data show photos --samples 5 -o "a b.png"
expect_code 0
expect_out '^a b.png: 5 of 27 samples, 3x224x224, augment rrc,flip'

it "writes the same bytes for the same seed, with any number of threads, and others for another seed"
for threads in 1 3; do
    lockstep data show photos --input 3x40x40 --samples 20 -o "$threads.html" --loader-threads $threads --quiet
    expect_code 0
    expect "$(cat out err)" = ""
done
expect_same 1.html 3.html
lockstep data show photos --input 3x40x40 --samples 20 -o other.html --seed 2
cmp -s 1.html other.html && miss "the seed changes nothing"
"$program" data show photos --input 3x40x40 --samples 5 -o - >piped.png
"$program" data show photos --input 3x40x40 --samples 5 -o 5.png --quiet
expect_same piped.png 5.png

it "shows what a run sees in its first epoch"
lockstep train --model mlp --data photos --input 3x40x40 --batch 9 --steps 1 --tensorboard --run seen --no-evaluate
expect_code 0
sheet trained 1.html seen/tensorboard/*
lockstep data show photos --input 3x40x40 --samples 20 -o other.html --augment none
"$PYTHON" "$check" trained other.html seen/tensorboard/* >said 2>&1 && miss "the augmentation changes nothing"
lockstep data show photos --input 3x40x40 --samples 20 -o part.html --val-split 0.3
expect_code 2
lockstep data show photos/train --input 3x40x40 --samples 20 -o part.html --val-split 0.3
expect_code 0
lockstep train --model mlp --data photos/train --val-split 0.3 --input 3x40x40 --batch 9 --steps 1 --tensorboard --run split \
    --no-evaluate
sheet trained part.html split/tensorboard/*

it "names class, number and file of each sample, and numbers in order without shuffling"
lockstep data show photos --input 3x8x8 --no-shuffle --samples 100 -o all.html
expect_code 0
expect_out 'all.html: 27 of 27 samples'
sheet list all.html
expect "$(wc -l <said)" = 27
expect "$(head -n 1 said)" = "0 ash"
expect "$(tail -n 1 said)" = "26 cedar <b> été"
grep -q 'title="photos/train/ash/1.ppm"' all.html || miss "no file is named"

it "shows exact pixels of CIFAR's records, cropped and mirrored"
if python_has PIL; then
    mkdir cifar
    "$PYTHON" -c 'import random
draw = random.Random(3)
for i in (1, 2, 3, 4, 5):
    open(f"cifar/data_batch_{i}.bin", "wb").write(b"".join(bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(8)))'
    cp cifar/data_batch_1.bin cifar/test_batch.bin
    lockstep data show cifar --samples 24 -o cifar.html
    expect_code 0
    sheet crops cifar.html cifar/data_batch_?.bin
    lockstep data show cifar --samples 24 -o cifar.png
    sheet png cifar.html cifar.png
else
    skip "Pillow is not installed"
fi

it "refuses other files, bad lists and more than one data set, and leaves nothing behind"
lockstep data show photos -o sheet.gif
expect_code 2
expect_error 'sheet.gif.*\.png or \.html'
lockstep data show photos photos
expect_code 2
lockstep data show photos --augment flop
expect_code 2
lockstep data show nowhere
expect_code 3
expect_error nowhere
lockstep data show photos --samples 0
expect_code 2
lockstep data show photos --samples 20 -o nowhere/sheet.png
expect_code 1
expect_error 'nowhere/sheet.png'
mkdir bad bad/a bad/b
cp photos/train/ash/1.ppm bad/a/1.ppm
cp photos/train/ash/2.ppm bad/b/2.ppm
head -c 90 photos/train/ash/3.ppm >bad/b/3.ppm
lockstep data show bad -o bad.png
expect_code 3
expect_error 'bad/b/3.ppm'
expect "$(ls bad.png* 2>/dev/null)" = ""
lockstep data show bad -o bad.png --on-bad-sample skip
expect_code 0

it "renders in a browser: light and dark, wide and narrow, without an error"
if python_has selenium && command -v chromedriver >/dev/null && command -v chromium >/dev/null; then
    "$PYTHON" "$source_root/tests/cli/sheet_browser.py" all.html 1.html >said 2>&1 || miss "$(grep -v "^#" said | tail -n 5)"
else
    skip "chromium, chromedriver or selenium is not installed"
fi

finish
