#!/bin/sh
# Effects of --augment: bits independent of workers, loader threads, resume.
. tests/cli/harness.sh

effects=crop:4,flip,rotate:15,jitter:0.4:0.4:0.4:0.1,trivial,erase:0.5
cat >net.yaml <<'END'
input: 3x32x32
classes: 4
layers:
  - {name: conv, op: conv, out: 8, kernel: 3, stride: 2, pad: 1}
  - {name: silu, op: silu}
  - {name: mean, op: adaptive_avgpool}
  - {name: fc, op: dense, out: classes}
END

# run_of RUN OPTIONS...
run_of() {
    run=$1
    shift
    lockstep train --model net.yaml --data synthetic:3x32x32:4:96 --batch 16 --replicas 2 --threads 1 --epochs 2 --no-evaluate \
        --schedule constant --run "$run" "$@"
}

it "prints the effects that a run has, and trains to other weights with them"
run_of plain --augment crop:4,flip
expect_code 0
run_of one --augment "$effects"
expect_code 0
expect_out 'augment +random crops after padding by 4, flips, rotate:15,jitter:0.4:0.4:0.4:0.1,trivial,erase:0.5;'
expect "$(cmp -s plain/checkpoints/step-00000012/model.safetensors one/checkpoints/step-00000012/model.safetensors; echo $?)" = 1

it "computes the same bits on two workers and three loader threads"
run_of two --augment "$effects" --workers 2 --loader-threads 3
expect_code 0
expect_same one/checkpoints/step-00000012/model.safetensors two/checkpoints/step-00000012/model.safetensors

it "computes the same bits after a resume within an epoch"
run_of three --augment "$effects" --steps 4
expect_code 0
lockstep train --run three --resume --epochs 2 --steps 12
expect_code 0
expect_same one/checkpoints/step-00000012/model.safetensors three/checkpoints/step-00000012/model.safetensors

it "computes the same bits with mixup and cutmix on two workers, and after a resume"
run_of mixed --augment flip --mixup 0.2 --cutmix 1
expect_code 0
run_of mixed2 --augment flip --mixup 0.2 --cutmix 1 --workers 2 --loader-threads 2
expect_code 0
expect_same mixed/checkpoints/step-00000012/model.safetensors mixed2/checkpoints/step-00000012/model.safetensors
run_of mixed3 --augment flip --mixup 0.2 --cutmix 1 --steps 5
expect_code 0
lockstep train --run mixed3 --resume --epochs 2 --steps 12
expect_code 0
expect_same mixed/checkpoints/step-00000012/model.safetensors mixed3/checkpoints/step-00000012/model.safetensors
run_of unmixed --augment flip
expect_code 0
expect "$(cmp -s mixed/checkpoints/step-00000012/model.safetensors unmixed/checkpoints/step-00000012/model.safetensors; echo $?)" = 1

it "computes the first convolution behind mixup with a fast kernel, from one and from three channels"
for data in "lenet --data synthetic:1x28x28:10" "vgg11-cifar --data synthetic:3x32x32:10"; do
    # $data is a list of words.
    # shellcheck disable=SC2086
    lockstep plan --model $data --mixup 0.2 --backend onednn
    expect_code 0
    expect "$(grep -c ' ref' out)" = 0
done

it "refuses mixup with a loss that has no mixture of labels"
run_of wrong-loss --mixup 0.2 --loss l2
expect_code 2
expect_error '--mixup and --cutmix need --loss xent'

it "names a number out of its range"
run_of wrong --augment rotate:270
expect_code 2
expect_error "rotate:270.*from 0 to 180"

it "explains the effects"
lockstep help augment
expect_code 0
for word in rotate:DEGREES 'jitter:B\[:C:S:H\]' trivial 'erase\[:P\]'; do
    expect_out "^  $word"
done

finish
