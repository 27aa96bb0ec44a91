#!/bin/sh
# The completion for bash: what it offers for a command line.
. tests/cli/harness.sh

"$program" help --completion >lockstep.bash
# offers WORDS...: what stands in COMPREPLY for the last of them, one a line
offers() {
    bash -c '. ./lockstep.bash; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep
        [ ${#COMPREPLY[@]} = 0 ] || printf "%s\n" "${COMPREPLY[@]}"' bash lockstep.bash lockstep "$@" >out 2>err
    [ ! -s err ] || miss "bash complains"
}
# expect_offers WORD...: exactly these, in any order
expect_offers() {
    for word in "$@"; do
        printf '%s\n' "$word"
    done | sort >expected
    sort out >found
    expect_same found expected
}
mkdir -p runs/lenet-mnist-001/checkpoints/step-00000005 "my run/checkpoints" photos/train nets
touch runs/lenet-mnist-001/checkpoints/step-00000005/state.json mine.yaml notes.txt weights.safetensors nets/deep.yml

it "completes commands and options"
offers tr
expect_offers train
offers train --label
expect_offers --label-smoothing
offers train --no-sh
expect_offers --no-shuffle
offers models --y
expect_offers --yaml

it "completes every choice that the options have"
for option in sync compress dtype backend optimizer schedule warmup collective decode loss log-format; do
    offers train --$option ""
    [ "$(wc -l <out)" -ge 2 ] || miss "nothing is offered for --$option"
done
offers train --sync o
expect_offers overlap
offers train --sync = o
expect_offers overlap
offers train --dtype =
expect_offers auto f32 tf32 bf16 fp16

it "completes models, as the program lists them, and model files"
offers train --model ""
"$program" models --json | grep -o '"name": "[^"]*"' | sed 's/.*: "//; s/"//' >known
while read -r model; do
    grep -qx "$model" out || miss "$model is not offered"
done <known
grep -qx mine.yaml out || miss "mine.yaml is not offered"
grep -qx notes.txt out && miss "notes.txt is offered"
offers bench --model resnet1
expect_offers resnet18 resnet101 resnet152
offers models show vgg11_
expect_offers vgg11_bn
offers models ""
expect_offers show

it "completes the commands of data"
offers data che
expect_offers check
offers data fetch c
expect_offers cifar10 cifar100
offers help data ""
grep -qx check out || miss "check is not offered"

it "completes data sets and folders"
offers train --data mn
expect_offers mnist
offers train --data syn
expect_offers synthetic:
offers train --data synthetic :
expect_offers
offers data ph
expect_offers photos

it "completes run directories"
offers eval ""
expect_offers runs/lenet-mnist-001 'my\ run' weights.safetensors
offers train --run len
expect_offers runs/lenet-mnist-001
offers train --resume runs/lenet-mnist-001/checkpoints/
expect_offers runs/lenet-mnist-001/checkpoints/step-00000005
offers predict my
expect_offers 'my\ run'

it "leaves pictures, after the model, to bash"
offers predict runs/lenet-mnist-001 ""
expect_offers
offers predict --run "my run" p
expect_offers

it "completes configurations for train"
offers train m
expect_offers mine.yaml "my run"

it "completes words of --augment, also after a comma"
offers train --augment cr
expect_offers crop:
offers train --augment flip,ce
expect_offers flip,center
offers train --augment crop : 4,fl # as bash cuts crop:4,fl
expect_offers 4,flip

it "offers nothing for numbers"
offers train --batch ""
expect_offers

it "completes the topics of help"
offers help au
expect_offers augment
offers help ops max
expect_offers maxpool
offers help "do"
expect_offers doctor

finish
