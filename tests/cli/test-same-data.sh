#!/bin/sh
# A run goes on with the data it was started with, and all ranks have the same; what differs is named.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

classes trees/train 4 ash elm yew
classes trees/val 2 ash elm yew
cp -r trees trees-as-they-were
options="--model mlp --input 3x20x20 --augment none --batch 6 --schedule constant --threads 1"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
# Go on from the run's only checkpoint, in a copy of the run.
resume() {
    rm -rf going
    cp -r run going
    train --steps 9 --run going --resume "$@"
}
restore() {
    rm -rf trees
    cp -r trees-as-they-were trees
}
weights() {
    printf '%s/checkpoints/step-%08d/model.safetensors' "$1" "$2"
}

it "goes on with the same data, also where it was moved"
train --data trees --steps 9 --run straight
train --data trees --steps 5 --run run
expect_code 0
expect_file run/checkpoints/step-00000005/data.json
resume
expect_code 0
expect_same "$(weights straight 9)" "$(weights going 9)"
mkdir -p other/place
mv trees other/place/woods
resume --data other/place/woods/
expect_code 0
expect "$(wc -c <err)" = 0
expect_same "$(weights straight 9)" "$(weights going 9)"
restore

refused() {
    resume
    expect_code 3
    expect_error "step-00000005: the training data is not that of the run: $1.*--init .*step-00000005/model.safetensors"
    restore
}

it "names the class of a file that is gone, or new"
rm trees/train/elm/3.ppm
refused "class 'elm': 4 samples then, 3 now\."
cp trees/train/elm/3.ppm trees/train/elm/5.ppm
refused "class 'elm': 4 samples then, 5 now\."

it "names the number of classes when an empty one is new"
mkdir trees/train/zebrawood
resume
expect_code 3
expect_err 'the training data is not that of the run: 3 classes then, 4 now\.'
restore

it "goes on when the folder of the training data has another name, or is given by itself"
mv trees/train trees/Training
resume
expect_code 0
expect_same "$(weights straight 9)" "$(weights going 9)"
mv trees/Training trees/only
resume --data trees/only --eval-data trees/val
expect_code 0
! grep -q 'other data than before' err || miss "the same data counts as other data"
expect_same "$(weights straight 9)" "$(weights going 9)"
restore

it "names a class that was renamed"
mv trees/train/yew trees/train/zelkova
mv trees/val/yew trees/val/zelkova
resume
expect_code 3
expect_err "class 'yew': 4 samples then, 0 now; class 'zelkova': 0 samples then, 4 now"
restore

it "names the class of a file that was renamed"
mv trees/train/ash/1.ppm trees/train/ash/0.ppm
refused "class 'ash': files of other names"

it "names the class of a file that has another size, and goes on: it may have been broken"
photo 1 9 24 >trees/train/ash/1.ppm
resume
expect_code 0
expect_err "warning: files of the training data have another size than before: class 'ash': the same samples"
restore

it "counts what it does not name"
for class in ash elm yew; do
    rm trees/train/$class/1.ppm
done
mkdir trees/train/a trees/train/b
photo 1 1 20 >trees/train/a/1.ppm
photo 1 1 20 >trees/train/b/1.ppm
refused ".*; and [0-9] more differences"

it "goes on where only the data for evaluation changed, and says so"
rm trees/val/elm/1.ppm
resume
expect_code 0
expect_err "warning: evaluation is on other data than before: class 'elm': 2 samples then, 1 now"
restore

it "goes on from a checkpoint that knows nothing of its data"
rm -rf old
cp -r run old
rm old/checkpoints/step-00000005/data.json
train --steps 9 --run old --resume
expect_code 0

# idx FOLDER BYTE: twelve images of 4 x 4 in three classes, the last byte of the images as given.
idx() {
    mkdir -p "$1"
    for part in train t10k; do
        {
            printf '\000\000\010\003\000\000\000\014\000\000\000\004\000\000\000\004'
            head -c 191 /dev/zero | tr '\000' a
            printf '%s' "$2"
        } >"$1/$part-images-idx3-ubyte"
        printf '\000\000\010\001\000\000\000\014\000\001\002\000\001\002\000\001\002\000\001\002' >"$1/$part-labels-idx1-ubyte"
    done
}

it "looks into files that hold many samples"
idx digits a
lockstep train --model mlp --data digits --batch 6 --steps 3 --threads 1 --run idx
expect_code 0
idx digits b
lockstep train --run idx --resume --steps 5
expect_code 3
expect_err "class '2': the same samples with other content"
idx digits a
lockstep train --run idx --resume --steps 5
expect_code 0

# On a file system of its own for each, the same path may hold other data.
# ranks COMMAND FOLDER0 FOLDER1 OPTIONS...
ranks() {
    command=$1 folder_0=$2 folder_1=$3
    shift 3
    rm -rf meet both
    pids=''
    for rank in 0 1; do
        [ $rank = 0 ] && data=$folder_0 || data=$folder_1
        # shellcheck disable=SC2086
        "$program" $command "$@" --data "$data" --rank $rank --num-nodes 2 --rendezvous "file://$scratch/meet" \
            --threads 1 >out.$rank 2>err.$rank </dev/null &
        pids="$pids $!"
    done
    codes=''
    for pid in $pids; do
        wait "$pid"
        codes="$codes $?"
    done
    cat out.0 out.1 >out
    cp err.0 err
}

it "lets ranks have the same data in different places"
cp -r trees mounted-elsewhere
ranks train trees mounted-elsewhere --model mlp --input 3x20x20 --augment none --batch 6 --steps 3 --run both
expect "$codes" = " 0 0"

it "names the rank with other data, and in what, before the first step"
mv mounted-elsewhere/train/yew mounted-elsewhere/train/box
mv mounted-elsewhere/val/yew mounted-elsewhere/val/box
ranks train trees mounted-elsewhere --model mlp --input 3x20x20 --augment none --batch 6 --steps 3 --run both
expect "$codes" = " 3 3"
expect_err "rank 1 .*its training data is not that of rank 0: class 'yew': 4 samples at rank 0, 0 here; class 'box'"
expect_no_file both/metrics.jsonl
ranks train mnist synthetic:1x28x28:10 --model mlp --batch 6 --steps 3 --run both
expect "$codes" = " 3 3"
expect_err "rank 1 .*format mnist at rank 0, synthetic here"

it "does so when several evaluate"
rm -rf mounted-elsewhere
cp -r trees mounted-elsewhere
rm mounted-elsewhere/val/ash/2.ppm
ranks "eval run" trees mounted-elsewhere
expect "$codes" = " 3 3"
expect_err "rank 1 .*its test data is not that of rank 0: class 'ash': 2 samples at rank 0, 1 here"

finish
