#!/bin/sh
# An image that cannot be read ends a run, but what was trained until then is saved, and goes on once it is mended.
. tests/cli/harness.sh

# 80 images to train with, 16 to evaluate on, noise of 12x12 in two classes.
python3 - <<'END'
import os, random
random.seed(7)
for part, count in (("train", 40), ("val", 8)):
    for c in "ab":
        os.makedirs(f"photos/{part}/{c}")
        for i in range(count):
            pixels = bytes(random.randrange(256) // (1 + (c == "b")) for _ in range(12 * 12 * 3))
            with open(f"photos/{part}/{c}/{i:02}.ppm", "wb") as f:
                f.write(b"P6\n12 12\n255\n" + pixels)
END
options="--model $source_root/tests/cli/small.yaml --data photos --batch 8 --threads 1 --schedule constant --replicas 2"
options="$options --epochs 3 --checkpoint-every 1000"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
weights() {
    sha256sum <"$1/checkpoints/step-$(printf %08d "$2")/model.safetensors"
}
# The image cannot be read, though it has the right size; and can again.
break_image() {
    cp "photos/$1" kept
    head -c 100 kept >"photos/$1"
}
mend_image() {
    cp kept "photos/$1"
}
train --run whole || exit 1

# tried RUN ARGUMENTS: a run that meets a broken image, is mended, and goes on. The step it saved is $step.
tried() {
    tried_run=$1
    shift
    break_image "$image"
    train --run "$tried_run" "$@"
    expect_code 3
    expect_error "$image"
    cp err said
    expect_out "Saved $tried_run/checkpoints/step-[0-9]*, after step [0-9]* of 30"
    expect_out "continue with: lockstep train --resume --run $tried_run"
    step=$(sed -n 's/.*, after step \([0-9]*\) of 30\./\1/p' out)
    expect "${step:-0}" -gt 0
    expect "$(grep -c '"kind": *"step"' "$tried_run/metrics.jsonl")" = "$step"
    expect_no_file "$tried_run/lock"
    mend_image "$image"
    lockstep train --run "$tried_run" --resume "$@"
    expect_code 0
}

image=train/b/17.ppm
it "saves the last step before an image that cannot be read, and goes on to the same bits when it is mended"
tried alone
expect "$(weights alone 30)" = "$(weights whole 30)"

it "says the same again while it is broken"
break_image $image
train --run again
expect_code 3
lockstep train --run again --resume
expect_code 3
expect_error "$image"
mend_image $image
lockstep train --run again --resume
expect_code 0
expect "$(weights again 30)" = "$(weights whole 30)"

it "saves nothing, and starts again, where the first step cannot be read"
break_image $image
train --run first --batch 80
expect_code 3
expect_error "$image"
expect_out "continue with: lockstep train --resume --run first"
expect_no_file first/checkpoints
mend_image $image
lockstep train --run first --resume
expect_code 0

it "says it once in several processes, all of which cannot read their first step"
cp -r photos all-kept
for file in photos/train/*/*.ppm; do
    echo broken >"$file"
done
train --run first-2 --workers 2
expect_code 3
expect_error 'photos/train'
expect_out "continue with: lockstep train --resume --run first-2"
expect "$(grep -c 'Ended .* with exit code 3' first-2/log.txt)" = 1
rm -r photos
mv all-kept photos
lockstep train --run first-2 --resume
expect_code 0
expect "$(weights first-2 30)" = "$(weights whole 30)"

for sync in gather allreduce overlap server; do
    it "saves it in two processes with --sync $sync, to the same bits"
    tried "two-$sync" --workers 2 --sync $sync
    expect "$(weights "two-$sync" 30)" = "$(weights whole 30)"
done

it "saves it with more passes than a ring of slots has"
tried passes --accumulate 4 --workers 2
train --accumulate 4 --run passes-whole
expect "$(weights passes 30)" = "$(weights passes-whole 30)"

it "saves it in one process in the middle of a step's passes"
tried pieces --accumulate 4
expect "$(weights pieces 30)" = "$(weights passes-whole 30)"

it "names the rank that cannot read it, on any rank"
: >ranks
for i in 21 22 23 24; do
    image=train/a/$i.ppm
    tried "rank-$i" --workers 2
    cat said >>ranks
    expect "$(weights "rank-$i" 30)" = "$(weights whole 30)"
done
grep -q 'error: rank 1 (' ranks || miss "it is never rank 1"
grep -q 'error: photos' ranks || miss "it is never rank 0"
image=train/b/17.ppm

it "saves it in two processes that go their own way"
tried local --workers 2 --sync local --local-steps 4

it "saves it in processes with a server"
options=$(echo "$options" | sed 's/ --replicas 2//')
for sync in async cutoff; do
    # shellcheck disable=SC2086
    {
        break_image "$image"
        train --run "served-$sync" --workers 3 --servers 1 --sync $sync
        expect_code 3
        expect_error "$image"
        expect_out "Saved served-$sync/checkpoints/step-"
        mend_image "$image"
        lockstep train --run "served-$sync" --resume --workers 3
        expect_code 0
    }
done

image=val/b/03.ppm
it "saves before an image to evaluate on that cannot be read"
options="$options --replicas 2"
tried evaluated
expect "$step" = 10
expect "$(weights evaluated 30)" = "$(weights whole 30)"
tried evaluated-2 --workers 2
expect "$(weights evaluated-2 30)" = "$(weights whole 30)"

# ends RUN ARGUMENTS: the evaluation behind the last of 7 steps, within an epoch, fails; it is made up once, and no more.
ends() {
    ends_run=$1
    shift
    break_image "$image"
    train --run "$ends_run" --steps 7 "$@"
    expect_code 3
    expect_out "Saved $ends_run/checkpoints/step-00000007, after step 7 of 7"
    before=$(weights "$ends_run" 7)
    mend_image "$image"
    lockstep train --run "$ends_run" --resume "$@"
    expect_code 0
    expect_out '^Final evaluation: .* over 16 samples'
    expect "$(weights "$ends_run" 7)" = "$before"
    expect "$(grep -c '"kind": *"eval"' "$ends_run/metrics.jsonl")" = 1
    expect "$(grep -c '"kind": *"step"' "$ends_run/metrics.jsonl")" = 7
    lockstep train --run "$ends_run" --resume "$@"
    expect_code 0
    expect_out 'Nothing is left to do: 7 of 7 steps are done'
}
it "makes up the evaluation at the end of --steps"
ends ended
ends ended-2 --workers 2
lockstep train --run ended --resume --steps 30
expect_code 0
expect "$(weights ended 30)" = "$(weights whole 30)"

it "does without it where more steps are asked for, or none is wanted"
for more in "--steps 30" "--steps 7 --no-evaluate"; do
    rm -rf more
    break_image "$image"
    train --run more --steps 7
    expect_code 3
    mend_image "$image"
    # shellcheck disable=SC2086
    lockstep train --run more --resume $more
    expect_code 0
done
expect_out 'Nothing is left to do'
train --run plain-7 --steps 7 --no-evaluate
expect "$(weights more 7)" = "$(weights plain-7 7)"

finish
