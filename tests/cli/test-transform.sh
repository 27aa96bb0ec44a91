#!/bin/sh
# train, eval and predict see an image in the same way, and say which.
. tests/cli/harness.sh

# scene CLASS SEED WIDTH HEIGHT: a picture whose middle is unlike its edges, so that another crop is another picture.
scene() {
    printf 'P6\n%d %d\n255\n' "$3" "$4"
    awk -v class="$1" -v seed="$2" -v width="$3" -v height="$4" 'BEGIN {
        for (y = 0; y < height; y++)
            for (x = 0; x < width; x++) {
                far = (x - width / 2) ^ 2 / width ^ 2 + (y - height / 2) ^ 2 / height ^ 2
                for (c = 0; c < 3; c++)
                    printf "%c", 20 + int(80 * far * (c + 1)) % 70 + (c == class ? 80 : 0) + (x * 3 + y * 5 + seed * 11) % 50
            }
    }'
}
for part in train val; do
    for class in 0 1 2; do
        mkdir -p scenes/$part/$class
        for i in 1 2 3; do
            scene $class $i $((30 + 9 * i)) $((60 - 7 * i)) >scenes/$part/$class/$i.ppm
        done
    done
done

# train_with RUN OPTIONS...: hardly trained, so that every probability counts.
train_with() {
    run=$1
    shift
    lockstep train --model lenet --data scenes --input 3x28x28 --batch 9 --steps 3 --lr 0.001 --threads 1 --run "$run" "$@"
    expect_code 0
}

# Loss of eval, and the mean of -log of what predict gives the right class. With 3 classes, it names them all.
same_loss() {
    run=$1
    shift
    lockstep eval "$run" --json "$@"
    expect_code 0
    evaluated=$(json loss <out)
    lockstep predict --run "$run" --json "$@" scenes/val/*/*.ppm
    expect_code 0
    predicted=$(tr -d '\n ' <out | sed 's/"file"/\n&/g' | sed -nE 's/.*val\/([0-9])\/.*/\1 &/p' | awk '{
        if (match($0, "\"class\":\"" $1 "\",\"index\":[0-9]+,\"probability\":[0-9.e-]+")) {
            n++
            found = substr($0, RSTART, RLENGTH)
            sub(/.*:/, "", found)
            sum -= log(found)
        } } END { printf "%.5f", n == 9 ? sum / n : -1 }')
    difference=$(awk -v a="$evaluated" -v b="$predicted" 'BEGIN { d = a - b; print (d < 2e-5 && d > -2e-5) ? "none" : a " and " b }')
    expect "$difference" = none
}

# What the last evaluation of the training said.
trained_loss() {
    grep '"eval"' "$1/metrics.jsonl" | tail -n 1 | json loss
}

for augment in auto none crop:2,flip rrc,flip resize:40,center; do
    it "evaluates as it predicts, with --augment $augment"
    train_with "run-$augment" --augment "$augment"
    same_loss "run-$augment"
    expect "$(printf %.5f "$evaluated")" = "$(printf %.5f "$(trained_loss "run-$augment")")"
done

it "does so with a grey model too"
train_with grey --input 1x28x28
same_loss grey

it "says what is seen, in each command"
train_with plain
expect_out '^  evaluated  shorter side to 32, centre 28x28; mean 0\.485 0\.456 0\.406, deviation'
lockstep eval plain
expect_out 'Each image: shorter side to 32, centre 28x28; mean'
lockstep predict --run plain scenes/val/0/1.ppm
expect_out 'Each image: shorter side to 32, centre 28x28; mean'
lockstep eval plain --json
expect_out '"transform": \{"resize": "32", "crop": "28x28", "input": \[3, 28, 28\], "mean"'
lockstep predict --run plain --json scenes/val/0/1.ppm
expect_out '"transform": "shorter side to 32, centre 28x28; mean'

it "takes another transform, for training, evaluation and prediction"
train_with framed --eval-resize 36 --eval-crop 20x24
expect_out 'shorter side to 36, centre 20x24 scaled to 28x28'
same_loss framed
expect_no_out 'shorter side to 32'
expect "$(printf %.5f "$evaluated")" = "$(printf %.5f "$(trained_loss framed)")"
same_loss plain --eval-resize 36 --eval-crop 20x24
lockstep eval plain --json
before=$(json loss <out)
lockstep eval plain --json --eval-resize 50
expect "$(json loss <out)" != "$before"
lockstep eval plain --json --eval-crop none
expect_out '"resize": "none", "crop": "none"'
same_loss plain --eval-crop none

it "keeps the transform in the model's file"
cp framed/checkpoints/step-00000003/model.safetensors alone.safetensors
lockstep eval --init alone.safetensors --data scenes --json
expect_code 0
expect_out '"resize": "36", "crop": "20x24"'

it "refuses a transform that cannot be read, wherever it is accepted"
for command in "train --data scenes" "eval plain" "predict --run plain scenes/val/0/1.ppm" "bench --model lenet --steps 1"; do
    # $command is a list of words.
    # shellcheck disable=SC2086
    lockstep $command --augment flipp
    expect_code 2
    expect_err "'flipp' is not known, did you mean 'flip'"
done
for command in "train --data scenes" "eval plain" "predict --run plain scenes/val/0/1.ppm"; do
    # shellcheck disable=SC2086
    lockstep $command --eval-resize big
    expect_code 2
    expect_error '--eval-resize big: expected'
    # shellcheck disable=SC2086
    lockstep $command --eval-crop 20x
    expect_code 2
    expect_error '--eval-crop 20x: expected'
done

finish
