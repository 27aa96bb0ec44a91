#!/bin/sh
# Training from other weights: another head, frozen parameters, rates by name and by depth.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

net=$source_root/tests/cli/small-bn.yaml
trunk='^(conv1|bn1|layer1)'
python=${PYTHON:-python3}
if ! "$python" -c '' 2>/dev/null; then
    it "trains from other weights"
    skip "there is no Python to cut MNIST with"
    finish
fi
"$python" "$source_root/tests/cli/mnist_digits.py" "$source_root/data/mnist" low 01234 3200 200
"$python" "$source_root/tests/cli/mnist_digits.py" "$source_root/data/mnist" "high digits" 56789 24 400

weights() {
    printf '%s\n' "$1"/checkpoints/step-*/model.safetensors | tail -n 1
}

tensors() {
    "$python" "$source_root/tests/cli/tensors.py" list "$(weights "$1")"
}

# top1 RUN: of its last evaluation, in whole percent.
top1() {
    sed -n 's/^Final evaluation: top-1 \([0-9]*\).*/\1/p' "$1/log.txt"
}

# tune RUN [options]: a few steps on a few images of other digits.
tune() {
    run=$1
    shift
    lockstep train --model "$net" --data "high digits" --batch 12 --steps 6 --lr 0.02 --schedule constant --dropout 0 \
        --threads 1 --keep 1 --run "$run" "$@"
}

it "beats training from scratch with a network that has seen other digits"
lockstep train --model "$net" --data low --batch 32 --steps 100 --lr 0.05 --classes 6 --threads 1 --quiet --run "pre trained"
expect_code 0
tune scratch
expect_code 0
tune tuned --init "pre trained"
expect_code 0
expect_out '^  head       fc starts anew: it is for 6 classes there, 5 here'
expect "$(top1 tuned)" -ge $(($(top1 scratch) + 15))

it "takes a checkpoint and a file as well as a run, with the same bits"
tune from-checkpoint --init "$(dirname "$(weights "pre trained")")"
tune from-file --init "$(weights "pre trained")"
cmp -s "$(weights tuned)" "$(weights from-checkpoint)" || miss "a checkpoint gives other weights"
cmp -s "$(weights tuned)" "$(weights from-file)" || miss "a file gives other weights"

it "says that classes have other names where the head stays"
classes "trees" 2 ash birch
classes "other trees" 2 ash cedar
lockstep train --model mlp --data trees --input 1x8x8 --batch 4 --steps 1 --no-evaluate --quiet --run trees-1
expect_code 0
lockstep train --model mlp --data "other trees" --input 1x8x8 --batch 4 --steps 1 --no-evaluate --init trees-1 --run trees-2
expect_code 0
expect_error "warning: --init trees-1: its classes have other names, and the head stays as it is: class 1 is 'birch' there, 'cedar' here"
lockstep train --model mlp --data trees --input 1x8x8 --batch 4 --steps 1 --no-evaluate --init trees-1 --run trees-3
expect_code 0
expect "$(wc -l <err)" = 0

it "freezes parameters and the statistics of BN below them"
tune frozen --init "pre trained" --freeze "$trunk"
expect_code 0
expect_out '^  frozen     10 of 14 parameter tensors; 3 BN layers keep their running statistics'
expect "$(top1 frozen)" -ge $(($(top1 scratch) + 10))
tensors "pre trained" | grep -E "$trunk" | grep -v tracked >before
tensors frozen | grep -E "$trunk" | grep -v tracked >after
expect "$(wc -l <before)" = 16
expect_same before after
expect "$(tensors frozen | grep -cE '^fc')" = 4
tensors tuned | grep -E '^fc1' >before
tensors frozen | grep -E '^fc1' >after
expect_different before after

it "computes no gradient below the first trained layer"
lockstep plan --model "$net" --batch 8 --freeze "$trunk"
expect_code 0
expect "$(grep -cE 'backward +[a-z_]+ +(conv1|bn1|pool1|layer1)' out)" = 0
expect "$(grep -c 'dense_bwd_weights' out)" = 2
expect "$(grep -c 'dense_bwd_data' out)" = 1
expect "$(grep -c 'bn_running' out)" = 0

it "leaves BN above a trained layer as it trains, without updates"
tune above --init "pre trained" --freeze 'bn'
expect_code 0
expect_out '0 BN layers keep'
tensors "pre trained" | grep -E 'bn.*(weight|bias) ' >before
tensors above | grep -E 'bn.*(weight|bias) ' >after
expect_same before after
tensors "pre trained" | grep running >before
tensors above | grep running >after
expect_different before after

it "freezes weights without biases, and biases without weights"
for part in weight bias; do
    tune only-$part --init "pre trained" --freeze "(layer1.1.conv|fc1).$part"
    expect_code 0
    for name_of in weight bias; do
        tensors "pre trained" | grep -E "(layer1.1.conv|fc1).$name_of " >before
        tensors only-$part | grep -E "(layer1.1.conv|fc1).$name_of " >after
        if [ $part = $name_of ]; then expect_same before after; else expect_different before after; fi
    done
done

it "gives the same bits on one worker and two, and after a resume, with all of it switched on"
all="--init pre-link --freeze ^(conv1|bn1) --lr-groups ^fc[.]=2,layer1[.]0=0.5 --layer-decay 0.8 --replicas 2 --dropout 0.2"
ln -s "pre trained" pre-link
# shellcheck disable=SC2086 # the options are words
tune one $all
expect_code 0
# shellcheck disable=SC2086
tune two $all --workers 2
expect_code 0
cmp -s "$(weights one)" "$(weights two)" || miss "two workers give other weights"
# shellcheck disable=SC2086
tune part $all --steps 6 --stop-after 1
expect_code 75
lockstep train --run part --resume --quiet
expect_code 0
expect_file part/checkpoints/step-00000006/model.safetensors
cmp -s "$(weights one)" part/checkpoints/step-00000006/model.safetensors || miss "the resumed run has other weights"

it "takes the names that torchvision's files of DenseNets have"
for dot in . ''; do
    cat >dense$dot.yaml <<END
input: 1x28x28
classes: 10
layers:
  - {name: b.denselayer1.norm${dot}1, op: bn}
  - {name: b.denselayer1.conv${dot}1, op: conv, out: 4, kernel: 3, stride: 4}
  - {name: fc, op: dense, out: classes}
END
done
lockstep train --model dense..yaml --data low --steps 1 --no-evaluate --quiet --run dense-old
expect_code 0
lockstep train --model dense.yaml --data "high digits" --steps 1 --no-evaluate --init dense-old --run dense-new
expect_code 0
lockstep train --model dense..yaml --data "high digits" --steps 1 --no-evaluate --quiet --init dense-old --run dense-same
expect_code 0
lockstep export "$(weights dense-old)" --model dense.yaml --onnx dense.onnx --quiet
expect_code 0

it "takes the names that PyTorch's wrappers write"
for wrapper in module. _orig_mod.module.; do
    sed "s/name: /name: $wrapper/" dense..yaml >wrapped.yaml
    rm -rf wrapped
    lockstep train --model wrapped.yaml --data low --steps 1 --no-evaluate --quiet --run wrapped
    expect_code 0
    lockstep train --model dense.yaml --data low --steps 1 --lr 0 --weight-decay 0 --no-evaluate --init wrapped --run unwrapped
    expect_code 0
    tensors wrapped | grep fc.weight | sed 's/.* //' >before
    tensors unwrapped | grep fc.weight | sed 's/.* //' >after
    expect_same before after
    rm -rf unwrapped
done

# step RUN [options]: one plain step, in which a change of weights is proportional to the rate.
step() {
    run=$1
    shift
    tune "$run" --init tuned --steps 1 --momentum 0 --weight-decay 0 --no-evaluate "$@"
    expect_code 0
}

# ratio RUN REGEX X
ratio() {
    "$python" "$source_root/tests/cli/tensors.py" ratio "$(weights tuned)" "$(weights plain)" "$(weights "$1")" "$2" "$3" \
        2>why || miss "$2 of $1: $(tail -n 1 why)"
}

it "has learning rates by name: the first match counts"
step plain
step groups --lr-groups '^fc1=0.25,^fc=4,conv1|x{1,2}=0.5'
ratio groups '^fc1' 0.25
ratio groups '^fc\.' 4
ratio groups '^conv1' 0.5
ratio groups '^layer1' 1

it "has learning rates that fall from block to block"
step decay --layer-decay 0.5
ratio decay '^fc\.' 1
ratio decay '^fc1' 0.5
ratio decay '^layer1\.1' 0.25
ratio decay '^layer1\.0' 0.125
ratio decay '^(conv1|bn1)' 0.0625

it "counts BN to the block that goes on behind it, or else to the block before"
cat >dense-blocks.yaml <<'END'
input: 1x28x28
classes: 6
layers:
  - {name: f.conv0, op: conv, out: 4, kernel: 3, stride: 4, bias: false}
  - {name: f.norm0, op: bn}
  - {name: f.b.denselayer1.norm1, op: bn}
  - {name: f.b.denselayer1.conv1, op: conv, out: 4, kernel: 3, pad: 1, bias: false}
  - {name: f.b.denselayer2.norm1, op: bn}
  - {name: f.b.denselayer2.relu1, op: relu}
  - {name: f.b.denselayer2.conv1, op: conv, out: 4, kernel: 3, pad: 1, bias: false}
  - {name: f.norm5, op: bn}
  - {name: fc, op: dense, out: classes}
END
blocks() {
    lockstep train --model dense-blocks.yaml --data low --batch 32 --steps 1 --schedule constant --momentum 0 --threads 1 \
        --weight-decay 0 --no-evaluate --quiet "$@"
    expect_code 0
}
blocks --lr 0 --run start
for run in plain decay; do
    rm -rf $run
    blocks --init start --lr 0.5 --run $run --layer-decay "$([ $run = plain ] && echo 1 || echo 0.5)"
done
by_block() {
    "$python" "$source_root/tests/cli/tensors.py" ratio "$(weights start)" "$(weights plain)" "$(weights decay)" "$1" "$2" \
        2>why || miss "$1: $(tail -n 1 why)"
}
by_block '^fc' 1
by_block '^f\.(b\.denselayer2|norm5)' 0.5
by_block '^f\.b\.denselayer1' 0.25
by_block '^f\.(conv0|norm0)' 0.125

for optimizer in adamw lars; do
    it "does so with $optimizer"
    rm -rf plain groups
    tune plain --init tuned --steps 1 --optimizer $optimizer --weight-decay 0 --no-evaluate
    tune groups --init tuned --steps 1 --optimizer $optimizer --weight-decay 0 --no-evaluate --lr-groups 'fc=0.25'
    expect_code 0
    ratio groups '^fc' 0.25
    ratio groups '^layer1' 1
done

# refused MESSAGE [options]: one line, and no run.
refused() {
    message=$1
    shift
    tune refused "$@"
    expect_code 2
    expect_error "$message"
    expect_no_file refused
}

it "refuses what matches nothing or everything, and what is no expression"
refused "freeze 'nothing'.*no parameter.*conv1.weight" --freeze nothing
refused "freeze '\.': every parameter matches" --freeze .
refused "freeze '\('.*POSIX" --freeze '('
refused "lr-groups 'nothing': no parameter" --lr-groups fc=1,nothing=2
refused "expected REGEX=NUMBER" --lr-groups fc
refused "expected REGEX=NUMBER" --lr-groups fc=x
refused "not above 0" --lr-groups fc=0
refused "layer-decay" --layer-decay 2

it "refuses weights of another architecture"
lockstep train --model lenet --data "high digits" --steps 1 --init tuned --run refused
expect_code 3
expect_error 'another model'
expect_no_file refused
sed 's/out: 16/out: 24/' "$net" >wider.yaml # the same names, as resnet18 and resnet50 have
lockstep train --model wider.yaml --data "high digits" --steps 1 --init tuned --run refused
expect_code 3
expect_error 'tensor .* is .*, but the model has .*; is it a file of another model, .* Its metadata name .*small-bn'
expect_no_file refused
lockstep train --model "$net" --data "high digits" --steps 1 --init nowhere --run refused
expect_code 3
expect_error 'nowhere: no such'
: >weights.pth
lockstep train --model "$net" --data "high digits" --steps 1 --init weights.pth --run refused
expect_code 3
expect_error 'weights.pth: a file of PyTorch; convert it'
expect_no_file refused

it "refuses weights that are not finite, for training and for export"
cp "$(weights tuned)" nan.safetensors
printf '\377\377\377\377' | dd of=nan.safetensors bs=1 seek=$(($(wc -c <nan.safetensors) - 4)) conv=notrunc 2>err
lockstep train --model "$net" --data "high digits" --steps 1 --init nan.safetensors --run refused
expect_code 3
expect_error 'nan.safetensors: tensor .* has a value that is not finite'
expect_no_file refused
lockstep export nan.safetensors --onnx nan.onnx
expect_code 3
expect_error 'is not finite'
expect_no_file nan.onnx

finish
