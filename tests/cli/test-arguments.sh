#!/bin/sh
# Words that are not options: each works, or says which command does it.
. tests/cli/harness.sh

images=$source_root/tests/cli/images
for part in train val; do
    mkdir -p photos/$part/bars photos/$part/ring
    for i in 1 2; do
        cp "$images/bars.jpg" photos/$part/bars/$i.jpg
        cp "$images/ring.png" photos/$part/ring/$i.png
    done
done
"$program" models show lenet --yaml >mine.yaml
printf 'batch: 4\nsteps: 2\n' >short.yaml

it "trains a model file that stands alone"
lockstep train mine.yaml --data photos --input 3x28x28 --augment none --batch 4 --steps 2 --run run
expect_code 0
grep -q '^model: .*/mine.yaml' run/config.yaml || miss "config.yaml has another model"

it "takes a configuration and a model, in any order"
lockstep train short.yaml mine.yaml --data photos --input 3x28x28 --run two
expect_code 0
lockstep plan mine.yaml short.yaml --quiet
expect_code 0

it "knows a model by its content, also one with a mistake"
printf 'input: 1x28x28\nclasses: 10\nlayers:\n  - {name: a, op: dens, out: classes}\n' >typo.yaml
lockstep train typo.yaml
expect_code 3
expect_error "typo.yaml:4: .*dens.*dense"

it "refuses two of a kind"
lockstep train mine.yaml --model lenet
expect_code 2
expect_error "two models.*mine.yaml.*--model lenet"
lockstep train short.yaml run/config.yaml
expect_code 2
expect_error "short.yaml.*run/config.yaml.*two configurations"

it "says so when a configuration is given as the model"
lockstep train --model short.yaml
expect_code 3
expect_error "short.yaml:1: .*lockstep train .*short.yaml"

# explains WORDS PATTERN: exit code 2, and one line that holds the command to type
explains() {
    it "explains: lockstep $1"
    # shellcheck disable=SC2086
    lockstep $1
    expect_code 2
    expect_error "$2"
}
explains "train resnet18" "lockstep train --model resnet18"
explains "train resnet81" "--model resnet18"
explains "train mnist" "lockstep train --data mnist"
explains "train synthetic:3x8x8:2" "lockstep train --data synthetic:3x8x8:2"
explains "train photos" "lockstep train --data photos"
explains "train run" "lockstep train --run run --resume.*lockstep train run/config.yaml"
explains "train run/checkpoints/best" "lockstep train --resume run/checkpoints/best"
explains "train run/checkpoints/best/model.safetensors" "lockstep train --init run/"
mkdir new
touch new/config.yaml new/log.txt
explains "train new" "'new' is a run directory"
it "says that a run has no checkpoint yet"
lockstep predict new photos/val/bars/1.jpg
expect_code 3
expect_error "new.*checkpoint"
explains "train epochs 5" "--epochs"
explains "train help" "lockstep train --help"
explains "train xyzzy" "--model NAME.*--data"
explains "bench vgg11" "lockstep bench --model vgg11"
explains "plan run" "lockstep plan run/config.yaml"
explains "doctor now" "doctor --help"
explains "eval mine.yaml" "mine.yaml.*lockstep eval RUN"
explains "eval resnet18" "lockstep eval RUN"
explains "eval photos" "lockstep eval RUN --eval-data photos"
explains "eval run photos" "lockstep eval run --eval-data photos"
explains "eval run two" "one model"
explains "eval run --run two" "two models"
explains "predict" "lockstep predict RUN IMAGE"
explains "predict run" "lockstep predict run IMAGE"
explains "predict photos/val/bars/1.jpg" "lockstep predict RUN photos/val/bars/1.jpg"
explains "predict photos" "lockstep predict RUN photos"
explains "predict run two photos/val/bars/1.jpg" "two models"
explains "predict resnet18 photos/val/bars/1.jpg" "model without weights"

it "predicts with a run, a checkpoint or a file as the first word, or any other"
for model in run run/checkpoints/best run/checkpoints/best/model.safetensors; do
    lockstep predict "$model" photos/val/bars/1.jpg
    expect_code 0
    expect "$(sed -n 2p out)" = photos/val/bars/1.jpg
done
lockstep predict photos/val/bars/1.jpg run
expect_code 0
LOCKSTEP_RUN=nowhere lockstep predict run photos/val/bars/1.jpg
expect_code 0

it "predicts all images of a folder, sorted"
lockstep predict run photos/val --json
expect_code 0
grep -o '"photos/val/[^"]*"' out | tr -d '"' >found
find photos/val -type f | sort >expected
expect_same found expected

it "names a folder without images"
mkdir empty
lockstep predict run empty
expect_code 3
expect_error "empty: no images"

finish
