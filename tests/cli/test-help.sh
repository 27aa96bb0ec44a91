#!/bin/sh
. tests/cli/harness.sh

it "lists the commands without arguments"
lockstep
expect_code 0
expect_out 'train'

it "explains itself with --help"
lockstep --help
expect_code 0
for command in train eval predict bench sweep models plan data doctor; do
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

for command in train eval predict bench sweep models plan data doctor; do
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

it "lists the topics of help, also in the manual page"
lockstep help
for topic in augment checkpoint metrics ops; do
    expect_out "^  $topic  "
    "$program" help --man | grep -q "^\.B $topic\$" || miss "$topic is not in the manual page"
done

it "names the nearest topic, and all"
lockstep help opps
expect_code 2
expect_error "opps.*did you mean ops.*train.*augment.*metrics"
lockstep help train more
expect_code 2
expect_error "more"

it "has the same text under help COMMAND as under COMMAND --help"
lockstep help eval
cp out first
lockstep eval --help
expect_same out first

it "fits into a narrow terminal"
if script -qec true /dev/null </dev/null >out 2>err; then
    script -qec "stty cols 60; '$program' help" /dev/null </dev/null >out 2>err
    expect_out 'Exit codes: 0 done'
    expect "$(tr -d '\r' <out | awk 'length > 60' | wc -l)" = 0
    script -qec "stty cols 70; '$program' help train" /dev/null </dev/null >out 2>err
    expect "$(tr -d '\r' <out | awk 'length > 70' | wc -l)" = 0
else
    skip "script (util-linux) makes no terminal here"
fi

it "fits into 80 columns"
for topic in "" train eval predict bench models plan data doctor augment ops "ops conv" checkpoint metrics; do
    # shellcheck disable=SC2086
    lockstep help $topic
    expect_code 0
    expect "$(awk 'length > 80' out)" = ""
done

it "documents every word of --augment, and what auto stands for"
lockstep help augment
expect_code 0
for word in crop:PAD flip 'rrc\[:SIZE\]' resize:SIDE 'center\[:SIZE\]'; do
    expect_out "^  $word +[a-z]"
done
expect_out '^  CIFAR.* crop:4,flip +none'
expect_out '^  folders.* rrc,flip +resize:256,center'

it "lists the words of --augment where one is unknown"
lockstep train --augment flop
expect_code 2
expect_error "flop.*did you mean 'flip'.*resize:SIDE.*rrc.*crop:PAD.*center.*flip.*help augment"

it "documents every op that a model has, with every attribute"
lockstep help ops
expect_code 0
cp out ops
for model in alexnet mobilenet_v2 resnet18 vgg16-cntk alexnet-cntk; do
    "$program" models show $model --yaml
done >layers.yaml
grep -o 'op: [a-z_0-9]*' layers.yaml | sort -u | cut -c 5- >used
expect "$(wc -l <used)" -ge 8
while read -r op; do
    grep -Eq "^  $op( |\$)" ops || miss "$op is not explained"
done <used
grep -e '- {' layers.yaml | grep -o ', [a-z_]*:' | sort -u | tr -d ', :' >used
while read -r key; do
    grep -Eq "^ +$key  " ops || miss "$key is not explained"
done <used

it "explains one op"
lockstep help ops conv
expect_code 0
expect_out '^ +kernel +window .*[Ww]hole number from 1'
expect_out '^ +bias .*True or false \(true\)'
expect_out '\{name: conv1, op: conv, out: 64, kernel: 3\}'
lockstep help ops cnov
expect_code 2
expect_error "cnov.*did you mean conv.*dense.*flatten"

it "lists the ops and attributes that there are, where one is unknown"
printf 'input: 1x8x8\nclasses: 2\nlayers:\n  - {name: a, op: tanh}\n' >tanh.yaml
lockstep models show tanh.yaml
expect_code 3
expect_error "tanh.yaml:4: .*tanh.*conv, dense, bn.*relu, relu6, silu.* and gelu"
printf 'input: 1x8x8\nclasses: 2\nlayers:\n  - {name: a, op: dense, units: 2}\n' >units.yaml
lockstep models show units.yaml
expect_code 3
expect_error "units.yaml:4: .*units.*dense has.*out and bias"

it "documents all that a run leaves behind"
lockstep train --model mlp --data synthetic:1x8x8:2:32 --batch 16 --steps 2 --run left
expect_code 0
lockstep help checkpoint
cp out words
for file in left/* left/checkpoints/best/*; do
    grep -Eq "^  $(basename "$file")( |\$)" words || miss "the file $file is not explained"
done
head -c 4000 left/checkpoints/best/model.safetensors | grep -ao '"__metadata__":{[^}]*}' | head -n 1 |
    grep -o '"[a-z_.]*":"' | tr -d '":' | sed 's/^__metadata__//' >keys
grep -o '^  "[a-z_0-9]*"' left/checkpoints/best/state.json | tr -d '" ' >>keys
expect "$(wc -l <keys)" -ge 18
while read -r key; do
    grep -Eq "^  $key( |\$)" words || miss "the key $key is not explained"
done <keys

it "documents every key of metrics.jsonl"
lockstep help metrics
cp out words
grep -o '"[a-z_0-9]*":' left/metrics.jsonl | sort -u | tr -d '":' >keys
expect "$(wc -l <keys)" -ge 14
while read -r key; do
    grep -Eq "^  $key( |\$)" words || miss "the key $key is not explained"
done <keys

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
