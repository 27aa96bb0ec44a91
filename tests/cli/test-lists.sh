#!/bin/sh
# Lists of image files: the same images in the same order give the losses of the folder.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"
. "$source_root/tests/cli/losses.sh"

classes trees/train 4 ash birch elm
classes trees/val 2 ash birch elm
options="--model mlp --input 3x20x20 --augment none --batch 6 --epochs 3 --threads 1 --no-tune --quiet"

# list PART LABELS...: a line for each image of the part, with the label of its class, in the order of the folder. Paths
# begin with $above.
list() {
    part=$1
    shift
    for class in ash birch elm; do
        for file in trees/"$part"/$class/*.ppm; do
            printf '%s%s%s%s\n' "$above" "$file" "$between" "$1"
        done
        shift
    done
}

it "learns from a folder with train.txt and val.txt what it learns from folders"
train folders --data trees
mkdir lists
between='	' above=../
list train 0 1 2 >lists/train.txt
list val 0 1 2 >lists/val.txt
train numbers --data lists
expect_file folders.losses
expect_same folders.losses numbers.losses

it "takes labels that begin at 1, names, spaces and Windows' line ends"
between=' ' above=
list train 1 2 3 >'my list.txt'
list val 1 2 3 | sed 's/$/\r/' >other.lst
train ones --data 'my list.txt' --eval-data other.lst
expect_same folders.losses ones.losses
list train ash birch elm | sed "s|^|$PWD/|" >lists/absolute.txt
list val ash birch elm >val-names.txt
train names --data lists/absolute.txt --eval-data val-names.txt
expect_same folders.losses names.losses

it "evaluates a list that lacks classes, by their names"
grep elm val-names.txt >elm.txt
lockstep eval runs/names --eval-data elm.txt --json
expect_code 0
expect "$(json samples <out)" = 2
lockstep eval runs/folders --eval-data elm.txt --json
expect_code 0

it "has the same losses with three workers"
train three --data val-names.txt --replicas 3 --workers 3
train alone --data val-names.txt --replicas 3
expect_same three.losses alone.losses

it "says that a single list is also evaluated"
lockstep train --model mlp --input 3x20x20 --data val-names.txt --steps 1 --run single --threads 1
expect_err 'val-names.txt: there is no validation part, so the samples of training are evaluated'

it "describes a list"
lockstep data other.lst
expect_code 0
expect_out 'list'

it "names the line that is no path and label"
printf '../trees/train/ash/1.ppm 0\n\n../trees/train/ash/2.ppm\n' >lists/bad.txt
lockstep train --model mlp --input 3x20x20 --data lists/bad.txt --run bad
expect_code 3
expect_err "lists/bad.txt:3: expected the path of an image, a tab or a space, and its label, found '../trees/train/ash/2.ppm'"

it "names an image that is missing"
printf 'nowhere.ppm 0\n' >lists/bad.txt
lockstep train --model mlp --input 3x20x20 --data lists/bad.txt --run bad
expect_code 3
expect_err 'lists/bad.txt:1: there is no lists/nowhere.ppm; paths are relative to the folder of the list'
: >lists/bad.txt
lockstep train --model mlp --input 3x20x20 --data lists/bad.txt --run bad
expect_code 3
expect_err 'lists/bad.txt: no line in it'

finish
