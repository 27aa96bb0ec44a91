#!/bin/sh
. tests/cli/harness.sh

it "lists the commands without arguments"
lockstep
expect_code 0
expect_out 'train'

it "explains itself with --help"
lockstep --help
expect_code 0
for command in train eval predict bench models plan data doctor; do
    expect_out "^ *$command "
done

it "has the same text under help"
lockstep help
expect_code 0
expect_out 'train'

it "says its version"
lockstep --version
expect_code 0
expect_out '^lockstep [0-9]+\.[0-9]+\.[0-9]+'

for command in train eval predict bench models plan data doctor; do
    it "$command --help lists its options"
    lockstep "$command" --help
    expect_code 0
    expect_out '--[a-z]'
done

it "prints a man page"
lockstep help --man
expect_code 0
expect_out '^\.TH LOCKSTEP 1'
expect_out 'weight.*decay'

it "prints a completion that bash takes"
lockstep help --completion
expect_code 0
expect_out 'complete .*lockstep'
bash -n out || miss "bash refuses it"

it "names the nearest command"
lockstep trian
expect_code 2
expect_error "trian.*train"

it "names the nearest option"
lockstep train --bacth 64
expect_code 2
expect_error "bacth.*--batch"

it "names the nearest model"
lockstep train --model resnet81 --data synthetic:3x32x32:10
expect_code 2
expect_error "resnet81.*resnet18"

it "wants a value where an option has one"
lockstep train --batch
expect_code 2
expect_error "batch"

for value in "--batch 0" "--batch twelve" "--batch 12x" "--batch -3" "--batch 99999999999999999999" "--lr fast" \
    "--lr nan" "--momentum" "--input 3x64" "--input 3x0x64" "--schedule sometimes" "--schedule every:0" \
    "--schedule multistep:30,20" "--warmup slow:3" "--dtype f16" "--replicas 0" "--data synthetic:3x32" \
    "--optimizer adm" "--augment crob:4" "--label-smoothing 2" "--dropout 1.5" "--threads -1"; do
    it "refuses $value"
    # The text is an option and its value.
    # shellcheck disable=SC2086
    lockstep train --data synthetic:3x32x32:10 --model mlp --steps 1 $value --run bad
    expect_code 2
    expect_error "$(echo "$value" | sed -E 's/^--([a-z-]+).*/\1/')"
    expect_no_file bad/checkpoints
done

it "reads options from the environment"
LOCKSTEP_BATCH=abc lockstep train --data synthetic:3x32x32:10
expect_code 2
expect_error "LOCKSTEP_BATCH"

it "names line and key of a mistake in a configuration file"
printf 'model: lenet\nbacth: 64\n' >wrong.yaml
lockstep train wrong.yaml
expect_code 2
expect_error "wrong.yaml:2.*bacth.*batch"

it "says that a configuration file is missing"
lockstep train nowhere.yaml
expect_code 3
expect_error "nowhere.yaml"

finish
