#!/bin/sh
# lockstep data convert: every format to every other, without loss, and smaller where asked; other programs read the result.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"
. "$source_root/tests/cli/losses.sh"
. "$source_root/tests/cli/workers.sh"

python=${PYTHON:-python3}
check="$source_root/tests/cli/converted.py"
classes trees/train 5 ash birch "élan vert"
classes trees/val 2 ash birch "élan vert"
mkdir -p trees/train/ash/deep && mv trees/train/ash/5.ppm "trees/train/ash/deep/5 b.ppm"
options="--model mlp --input 3x20x20 --augment none --batch 6 --epochs 2 --threads 1 --no-tune --quiet"

convert() {
    lockstep data convert "$@"
    expect_code 0
}

it "writes packed data that trains as the folder does"
train folders --data trees
expect_file folders.losses
convert trees trees.packed
expect_out '^trees.packed: packed, 15 samples in train, 6 samples in val, '
expect_file trees.packed/train.packed
train packed --data trees.packed
expect_same folders.losses packed.losses
convert trees pixels --to packed --store pixels
train pixels --data pixels
expect_same folders.losses pixels.losses
train files --data pixels/train.packed --eval-data pixels/val.packed
expect_same folders.losses files.losses

it "writes tar shards and TFRecords that train as the folder does"
convert trees trees-tar --shards 2
expect_file trees-tar/train-000001.tar
expect_no_file trees-tar/train-000002.tar
train tar --data trees-tar
expect_same folders.losses tar.losses
convert trees-tar records --to tfrecord --shards 3
expect_file records/train-00002-of-00003
expect_file records/validation-00000-of-00003
train records --data records
expect_same folders.losses records.losses

it "keeps the names of classes and files on the way back to folders"
for from in trees.packed trees-tar records; do
    convert "$from" "back-$from" --to folder
    expect "$(ls "back-$from/train")" = "$(ls trees/train)"
    train "back-$from" --data "back-$from"
    expect_same folders.losses "back-$from.losses"
done
(cd trees && find . -type f | sort) >before
(cd back-trees.packed && find . -type f ! -name '.lockstep*' | sort) >after
expect_same before after
cmp "trees/train/ash/deep/5 b.ppm" "back-trees.packed/train/ash/deep/5 b.ppm" || miss "a file has changed"

it "has the same losses with three workers, and after a resume"
train alone --data trees --replicas 3
train three --data trees.packed --replicas 3 --workers 3
expect_same alone.losses three.losses
train three-pixels --data pixels --replicas 3 --workers 3
expect_same alone.losses three-pixels.losses
# shellcheck disable=SC2086
lockstep train $options --data pixels --run stopped --checkpoint-every 1 --keep 100
expect_code 0
rm -r stopped/checkpoints/step-0000000[3-9] stopped/checkpoints/best
lockstep train --resume --run stopped --quiet
expect_code 0
expect "$(losses stopped)" = "$(losses runs/folders)"

it "splits packed data as the folder that it comes from"
cp -r trees/train plain
convert plain plain.packed
expect_file plain.packed/all.packed
train split --data plain --val-split 0.3
train split-packed --data plain.packed --val-split 0.3
expect_same split.losses split-packed.losses

it "packs data that is not made of files: size, colour, classes and normalisation stay"
convert synthetic:1x6x5:3:40 s.packed
train synthetic --data synthetic:1x6x5:3:40 --input 1x6x5
train synthetic-packed --data s.packed --input 1x6x5
expect_same synthetic.losses synthetic-packed.losses
convert synthetic:1x6x5:3:40 png.packed --store file
train png-packed --data png.packed --input 1x6x5
expect_same synthetic.losses png-packed.losses

it "is read by Python's tarfile, webdataset and a reader of TFRecords"
if ! "$python" -c 'import PIL' 2>pil.log; then
    skip "needs Pillow"
else
    "$python" "$check" tar trees-tar trees || miss "the tar files are not right"
    "$python" "$check" tfrecord records trees || miss "the TFRecords are not right"
fi

it "resizes as Pillow does"
if ! "$python" -c 'import PIL' 2>pil.log; then
    skip "needs Pillow"
else
    "$python" "$check" photos photos
    convert photos exact.packed --resize 25x30
    convert photos shorter.packed --resize 16
    "$python" "$check" pixels exact.packed photos 25 30 || miss "not Pillow's pixels"
    "$python" "$check" pixels shorter.packed photos 16 || miss "not Pillow's pixels"
    convert photos small --to folder --resize 12x10 --quality 80
    "$python" "$check" jpegs small 12 10 || miss "not JPEGs of that size"
    convert photos small.packed --resize 12 --quality 50
    "$python" "$check" encoded small.packed || miss "no JPEGs"
    lockstep data exact.packed
    expect_out '^train +4 .* 30x25 '
    convert photos even --to tar
    lockstep data even
    expect_out '^train +4 '
    expect_out '^test +4 '
fi

it "does the same with one thread and with four"
convert trees one --to tar --loader-threads 1 --shard-mb 1
convert trees four --to tar --loader-threads 4 --shard-mb 1
cmp one/train-000000.tar four/train-000000.tar || miss "the files differ"

it "replaces its own result, and nothing else"
convert trees one --to packed
expect_file one/train.packed
expect_no_file one/train-000000.tar
mkdir other && echo mine >other/notes
lockstep data convert trees other --to packed
expect_code 2
expect_error 'other: it holds files that .lockstep data convert. has not written; give another folder, or --overwrite'
expect_file other/notes
convert trees other --to packed --overwrite
expect_no_file other/notes
lockstep data convert trees trees --to tar --overwrite
expect_code 2
expect_error 'trees lies in .*trees and would be replaced'
lockstep data convert trees/train . --to tar --overwrite
expect_code 2
lockstep data convert trees trees/sub --to tar
expect_code 2
echo text >file
lockstep data convert trees file --to tar
expect_code 1
expect_error 'file: it is a file; give the name of a folder'
expect_file file

it "leaves nothing when it is interrupted, and a killed one can be run again"
hold data convert synthetic:3x64x64:10:2000000 endless.packed
within 60 test -s endless.packed.lockstep-new/train.packed || miss "it does not begin"
kill -INT "$child"
let_go
expect_code 75
expect "$(ls -d endless* 2>ls.log)" = ""
hold data convert synthetic:3x64x64:10:2000000 endless.packed
within 60 test -s endless.packed.lockstep-new/train.packed || miss "it does not begin"
lockstep data convert trees endless.packed
expect_code 1
expect_error 'endless.packed: another lockstep is writing it now'
kill -KILL "$child"
let_go
convert trees endless.packed
expect "$(ls -d endless*)" = endless.packed

it "names a broken image, or leaves it out"
cp -r trees broken
echo nothing >broken/train/birch/3.ppm
lockstep data convert broken broken.packed
expect_code 3
expect_error 'broken/train/birch/3.ppm: '
expect "$(ls -d broken.packed* 2>ls.log)" = ""
lockstep data convert broken broken.packed --on-bad-sample skip
expect_code 0
expect_out '14 samples in train'
expect_err 'broken/train/birch/3.ppm: .*; left out'
printf '\377\330\377\300\000\021\010\303\120\303\120\003\001\042\000\002\021\001\003\021\001' >broken/train/birch/3.jpg
rm broken/train/birch/3.ppm
lockstep data convert broken huge --to tar
expect_code 3
expect_error 'broken/train/birch/3.jpg: 50000 x 50000 pixels are more than'

it "takes the other part from --eval-data, writes one part, and reads what it cannot write"
(cd trees/train && find . -name '*.ppm' | sort | awk -F/ '{ print $0 "\t" $2 }') >trees/train/list.txt
(cd trees/val && find . -name '*.ppm' | sort | awk -F/ '{ print $0 "\t" $2 }') >trees/val/list.txt
convert trees/train/list.txt lists.packed --eval-data trees/val/list.txt
train lists --data lists.packed
expect_same folders.losses lists.losses
convert trees part --to packed --part val
expect "$(ls part)" = val.packed
lockstep data convert lists.packed/train.packed part --to packed --part val
expect_code 2
expect_error '--part val: .* has no parts'

it "names a folder that cannot be written"
mkdir -m 555 closed
if [ "$(id -u)" = 0 ] && ! command -v setpriv >setpriv.log; then
    skip "root may write everywhere, and there is no setpriv"
else
    chmod 755 .
    drop=
    [ "$(id -u)" != 0 ] || drop="setpriv --reuid=65534 --clear-groups --bounding-set=-all"
    # $drop is a list of words.
    # shellcheck disable=SC2086
    $drop "$program" data convert trees closed/x.packed >out 2>err
    code=$?
    expect_code 1
    expect_error 'closed/x.packed: cannot be created: .*closed: Permission denied'
fi

it "names damage of a packed file"
cp -r trees.packed damaged
printf x | dd of=damaged/train.packed bs=1 seek=400 conv=notrunc 2>dd.log
lockstep data damaged
expect_code 3
expect_err 'damaged/train.packed: ash/1.ppm at byte 256: its checksum is wrong'
head -c 2000 trees.packed/train.packed >damaged/train.packed
lockstep data damaged
expect_code 3
expect_err 'damaged/train.packed: expected [0-9]+ bytes, found 2000: the file is cut off'

it "ends in order when a packed file becomes shorter during training"
cp -r pixels shrinking
hold train --model mlp --input 3x20x20 --augment none --batch 6 --epochs 100000 --threads 1 --no-tune --log-every 1 \
    --data shrinking --run shrinking-run --no-evaluate
within 60 test -s shrinking-run/metrics.jsonl || miss "the run does not begin"
: >shrinking/train.packed
let_go
expect_code 3
expect_err 'shrinking/train.packed: .*the file became shorter'

it "says what is wrong with the words and options"
lockstep data convert trees
expect_code 2
lockstep data convert trees out
expect_code 2
expect_error 'which format\? Add --to folder, tar, tfrecord or packed'
lockstep data convert trees out --to packed --resize 0x5
expect_code 2
expect_error '--resize 0x5: expected HxW'
lockstep data convert trees out --to packed --shards 3
expect_code 2
lockstep data convert trees out --to tar --store pixels
expect_code 2
lockstep data convert nowhere out --to tar
expect_code 3
expect "$(ls -d out* 2>ls.log)" = out

finish
