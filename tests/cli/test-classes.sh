#!/bin/sh
# Classes are matched by name, whatever their order and number.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

classes trees/train 4 ash birch cedar elm fir oak yew
classes trees/val 2 ash birch cedar elm fir oak yew
classes some 3 yew elm birch
classes renamed 2 ash birch cedarr elm fir oak yew
options="--model mlp --input 3x20x20 --augment none --batch 14 --epochs 25 --lr 0.01 --threads 1"
# The share of files that predict puts into the class of their folder, as eval prints it.
predicted() {
    lockstep predict --run run --json "$@"
    expect_code 0
    right=$(tr -d '\n' <out | grep -oE '"file": *"[^"]*", *"top": *\[ *\{ *"class": *"[^"]*"' |
        sed -E 's/.*\/([^/]*)\/[^/]*", *"top".*"class": *"([^"]*)"/\1 \2/' | awk '$1 == $2' | wc -l)
}

it "learns seven classes"
# $options is a list of words.
# shellcheck disable=SC2086
lockstep train $options --data trees --run run
expect_code 0
lockstep eval run --json
expect "$(json top1 <out)" = 1.0

it "evaluates three of them, in a folder of their own, as predict sees them"
lockstep eval run --eval-data some --json
expect_code 0
expect "$(json samples <out)" = 9
expect "$(json top1 <out)" = 1.0
predicted some/*/*.ppm
expect "$right" = 9

it "names the classes that are missing, as a note"
lockstep eval run --eval-data some
expect_code 0
expect_out 'some: 4 of the model.s 7 classes have no sample there: ash, cedar, fir, oak\.'

it "names a class that the model does not know, and the one that is meant"
lockstep eval run --eval-data renamed --json
expect_code 3
expect_err "renamed: the model has no class 'cedarr' \(did you mean 'cedar'\?\); its classes are ash, birch, cedar, elm"
expect_no_out top1

it "does so once when several processes evaluate"
lockstep eval run --eval-data renamed --workers 3
expect_code 3
expect "$(grep -c "the model has no class 'cedarr'" err)" = 1
lockstep eval run --eval-data some --workers 3 --json
expect_code 0
expect "$(json top1 <out)" = 1.0

it "trains and evaluates on folders with other classes by name too"
# shellcheck disable=SC2086
lockstep train $options --data trees/train --eval-data some --run other
expect_code 0
lockstep eval other --json
expect "$(json top1 <out)" = 1.0
grep -q '"kind": *"eval".*"top1": *1[.,]' other/metrics.jsonl || miss "training evaluates otherwise"
# shellcheck disable=SC2086
lockstep train $options --data trees/train --eval-data renamed --run never
expect_code 3
expect_err "cedarr.*did you mean 'cedar'"

it "keeps the names of the classes that have one where --classes is larger"
# shellcheck disable=SC2086
lockstep train $options --data trees --classes 12 --run wide
expect_code 0
lockstep predict --run wide trees/val/yew/1.ppm
expect_out '^  yew '
lockstep eval wide --eval-data some --json
expect "$(json top1 <out)" = 1.0

it "matches folders that are called by numbers with a model that knows its classes by number"
lockstep train --model mlp --steps 150 --batch 64 --quiet --threads 1 --no-evaluate --run digits
expect_code 0
# The only folder, and still class 1.
mkdir -p digits-of/1
awk 'BEGIN { printf "P6\n28 28\n255\n"
    for (y = 0; y < 28; y++) for (x = 0; x < 28; x++) {
        on = x > 12 && x < 16 && y > 4 && y < 24
        for (c = 0; c < 3; c++) printf "%c", on ? 255 : 1 } }' >digits-of/1/one.ppm
lockstep eval digits --eval-data digits-of --json
expect_code 0
expect "$(json top1 <out)" = 1.0

it "says that classes without names are counted in order"
lockstep eval run --data synthetic:3x20x20:2:20
expect_code 0
expect_out "synthetic:3x20x20:2:20: the data has no class names: its 2 classes count as the model's first ones"

it "matches names that are not UTF-8"
latin=$(printf 'caf\351')
mkdir -p "bars/train/$latin" bars/train/ash "bar/$latin"
for i in 1 2 3; do
    photo 3 $i 20 >"bars/train/$latin/$i.ppm"
    photo 6 $i 20 >bars/train/ash/$i.ppm
    photo 3 $i 20 >"bar/$latin/$i.ppm"
done
# shellcheck disable=SC2086
lockstep train $options --data bars --no-evaluate --run latin
expect_code 0
lockstep eval latin --eval-data bar --json
expect_code 0
expect "$(json top1 <out)" = 1.0

# A miniature of Tiny ImageNet: classes are wnids, and words.txt gives two of them the same words.
tiny() {
    mkdir -p "$1/val/images"
    : >"$1/val/val_annotations.txt"
    : >"$1/wnids.txt"
    folder=$1
    shift
    for wnid in "$@"; do
        echo "$wnid" >>"$folder/wnids.txt"
        mkdir -p "$folder/train/$wnid/images"
        for i in 1 2 3; do
            photo "${wnid#n0}" $i 64 >"$folder/train/$wnid/images/$i.ppm"
        done
        photo "${wnid#n0}" 9 64 >"$folder/val/images/$wnid.ppm"
        printf '%s.ppm\t%s\t0\t0\t1\t1\n' "$wnid" "$wnid" >>"$folder/val/val_annotations.txt"
    done
    printf 'n01\tcrane\nn02\tcrane\nn03\tgoldfish\nn05\tcup\n' >"$folder/words.txt"
}

it "matches the wnids of Tiny ImageNet, in its own layout and in a folder for each"
tiny tiny-1 n01 n02 n03 n05
tiny tiny-2 n05 n02
lockstep train --model mlp --data tiny-1 --batch 12 --epochs 25 --lr 0.01 --augment none --quiet --threads 1 --run tiny
expect_code 0
lockstep eval tiny --eval-data tiny-2 --json
expect_code 0
expect "$(json samples <out)" = 2
expect "$(json top1 <out)" = 1.0
mkdir -p by-wnid
cp -r tiny-1/train/n02 tiny-1/train/n05 by-wnid
lockstep eval tiny --eval-data by-wnid --json
expect_code 0
expect "$(json top1 <out)" = 1.0

finish
