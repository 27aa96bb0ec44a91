#!/bin/sh
# Data as it lies around: broken files, files that are no images, odd names, links.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

short="--model mlp --input 3x20x20 --batch 8 --replicas 4 --threads 1 --epochs 2"

# The value of a key on all lines of a kind of metrics.jsonl.
values() {
    grep "\"kind\": \"$2\"" "$1/metrics.jsonl" | grep -oE "\"$3\": [0-9.]*" | tr '\n' ' '
}

it "trains on names with spaces and UTF-8, nested folders, a class with one image and links"
classes data/train 9 ash "birch tree" 'tilleul à grandes feuilles'
mkdir -p data/train/fir/deep/deeper far
photo 5 1 20 >data/train/fir/deep/deeper/only.ppm
mv data/train/ash/3.ppm far/three.ppm
ln -s ../../../far/three.ppm data/train/ash/3.ppm
mv "data/train/birch tree" far/birch
ln -s ../../far/birch "data/train/birch tree"
classes data/val 3 ash "birch tree" 'tilleul à grandes feuilles'
lockstep data data --json
expect_code 0
expect "$(json count <out)" = 28
# shellcheck disable=SC2086
lockstep train $short --data data --run whole
expect_code 0
expect_out '28 samples, 4 classes'
expect "$(values whole epoch broken)" = ""

it "leaves out links that lead back to where they are"
ln -s . data/train/ash/itself
ln -s .. data/train/ash/above
ln -s ../../.. data/train/ash/far-above
mkdir "data/train/fir/deep/a b"
ln -s ../../.. "data/train/fir/deep/a b/back"
lockstep data data --json
expect_code 0
expect "$(json count <out)" = 28
expect_err 'data/train/ash/itself: a link to a folder that it lies in'
expect_err 'data/train/ash/far-above: a link'
expect_err 'deep/a b/back: a link'
rm data/train/ash/itself data/train/ash/above data/train/ash/far-above "data/train/fir/deep/a b/back"

it "counts files that are no images and warns of images that it does not read"
echo x >data/train/ash/Thumbs.db
echo x >"data/train/fir/deep/read me.txt"
echo x >data/train/ash/.hidden
echo x >data/train/ash/1.tif
lockstep data data --json
expect_code 0
expect "$(json ignored <out)" = 2
expect_error '1 image files are left out.*ash/1.tif'
# shellcheck disable=SC2086
lockstep train $short --data data --run noted
expect_code 0
expect "$(grep -c '  ignored    2 files without the extension of an image (the first: data/train/ash/Thumbs.db)' noted/log.txt)" = 1
rm data/train/ash/1.tif

it "ends at a broken sample by default"
head -c 200 data/train/ash/2.ppm >cut
cp cut data/train/ash/2.ppm
: >"data/train/tilleul à grandes feuilles/9.ppm"
ln -s nowhere.ppm data/train/ash/gone.ppm
rm data/train/ash/9.ppm
echo nonsense >data/val/ash/1.ppm
# shellcheck disable=SC2086
lockstep train $short --data data --run fails
expect_code 3
expect_err 'ppm: '

it "replaces broken samples with --on-bad-sample skip, on any number of workers and threads"
# shellcheck disable=SC2086
lockstep train $short --data data --on-bad-sample skip --loader-threads 1 --checkpoint-every 2 --keep 9 --run one
expect_code 0
expect_out '8 samples in .*, 1 broken left out'
expect_out 'Broken samples: 3 of training replaced, 1 of evaluation left out'
expect "$(values one epoch broken)" = '"broken": 3 "broken": 3 '
expect "$(values one eval broken)" = '"broken": 1 "broken": 1 '
expect "$(grep -c 'Broken sample, replaced: data/train/ash/2.ppm: truncated PPM' one/log.txt)" = 1
expect "$(grep -c 'Broken sample, replaced: ' one/log.txt)" = 3
expect "$(grep -c 'Broken sample, left out: data/val/ash/1.ppm: ' one/log.txt)" = 1
for workers in 2 4; do
    # shellcheck disable=SC2086
    lockstep train $short --data data --on-bad-sample skip --loader-threads 3 --workers $workers --run many$workers
    expect_code 0
    expect_same one/checkpoints/step-00000008/model.safetensors many$workers/checkpoints/step-00000008/model.safetensors
    expect "$(values many$workers epoch broken)" = '"broken": 3 "broken": 3 '
    expect "$(values many$workers eval broken)" = '"broken": 1 "broken": 1 '
    expect "$(values many$workers eval loss)" = "$(values one eval loss)"
    expect "$(grep -c 'Broken sample, replaced: ' many$workers/log.txt)" = 3
    expect "$(grep -c 'Broken sample, left out: ' many$workers/log.txt)" = 1
done

it "goes on within an epoch to the same bits and counts"
cp -r one/checkpoints/step-00000002 middle
lockstep train --resume middle --run resumed --workers 2
expect_code 0
expect_same one/checkpoints/step-00000008/model.safetensors resumed/checkpoints/step-00000008/model.safetensors
expect "$(values resumed epoch broken)" = '"broken": 3 "broken": 3 '

it "evaluates what can be read"
lockstep eval one --data data --json --workers 3
expect_code 0
expect "$(json samples <out)" = 8
expect "$(json broken <out)" = 1
lockstep eval one --data data --on-bad-sample fail
expect_code 3
expect_error 'data/val/ash/1.ppm: '

it "refuses data that cannot be read at all"
cp -rL data dead 2>/dev/null
find dead/train -name '*.ppm' -exec cp cut {} \;
# shellcheck disable=SC2086
lockstep train $short --data dead --on-bad-sample skip --run dies
expect_code 3
expect_err 'samples in a row, from this one on, cannot be read; the last: truncated PPM'
find dead/val -name '*.ppm' -exec cp cut {} \;
lockstep eval one --data dead --workers 2
expect_code 3
expect_err 'dead: none of the 9 samples to evaluate can be read'

it "holds a share of the samples back with --val-split, the same ones when files are added"
classes bare 40 ash "birch tree" oak
# shellcheck disable=SC2086
lockstep train $short --lr 0.0002 --data bare --val-split 0.2 --run split
expect_code 0
expect_out '  split      0.2 of the samples'
held=$(sed -nE 's/.*evaluated on ([0-9]+)$/\1/p' out)
trained=$(sed -nE 's/.*\(folder\): ([0-9]+) samples.*/\1/p' out)
expect "$held" -gt 10 && expect "$held" -lt 40
expect $((held + trained)) = 120
expect "$(values split eval samples)" = "\"samples\": $held \"samples\": $held "
lockstep eval split --json
expect_code 0
expect "$(json samples <out)" = "$held"
expect "$(json loss <out)" = "$(grep '"kind": "eval"' split/metrics.jsonl | tail -n 1 | json loss)"
lockstep eval split --val-split 0 --json
expect "$(json samples <out)" = 120
cp -r bare more
classes more 44 fir ash
# shellcheck disable=SC2086
lockstep train $short --data more --val-split 0.2 --run more-split
expect_code 0
# Without the samples that were added, the parts are those of before.
rm -r more/fir more/ash/4[1-4].ppm
lockstep eval split --data more --json
expect "$(json samples <out)" = "$held"

it "splits lists, and the training part where there is no other"
mkdir only && mv more only/train
lockstep eval split --data only --json
expect_code 0
expect "$(json samples <out)" = "$held"
(cd only/train && find . -name '*.ppm' | awk -F/ '{print $0 "\t" $2}' | sort >../../all.txt)
cp all.txt only/train/list.txt
lockstep train --model mlp --input 3x20x20 --epochs 1 --data only/train/list.txt --val-split 0.3 --run listed
expect_code 0
expect_out 'list\): [0-9]+ samples, 3 classes, evaluated on [0-9]+'

it "goes on with the same split"
lockstep train --resume --run split --epochs 3
expect_code 0
expect "$(values split eval samples)" = "\"samples\": $held \"samples\": $held \"samples\": $held "

it "refuses --val-split where there is a validation part, and shares that leave nothing"
lockstep train --data mnist --val-split 0.1 --run no
expect_code 2
expect_error 'mnist has a validation part of its own'
lockstep train --data only/train --val-split 0.1 --eval-data data --run no
expect_code 2
expect_error 'give one of them'
lockstep train --data only/train --val-split 1e-9 --run no
expect_code 2
expect_error 'none of the 120 samples of only/train is left for validation; give a larger share'
lockstep train --data only/train --val-split 1 --run no
expect_code 2
expect_no_file no

finish
