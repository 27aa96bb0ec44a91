#!/bin/sh
# What is not a regular file is named and never waited for; links in shared folders are not written through; temporary
# files that a killed process left are removed, and nobody else's.
. tests/cli/harness.sh

images=$source_root/tests/cli/images
small="--model mlp --data mnist --threads 1 --batch 8 --steps 2 --backend onednn"
mkfifo pipe

# The limit only ends a program that hangs.
briefly() {
    timeout -k 5 60 "$program" "$@" >out 2>err </dev/null
    code=$?
}

# $small is a list of words.
# shellcheck disable=SC2086
train() {
    briefly train $small "$@"
}

train --run run
[ $code = 0 ] || { cat err; exit 1; }
model=$(echo run/checkpoints/step-*/model.safetensors)

it "refuses a FIFO as a configuration, a model, a plan or a plan cache, by name"
mkfifo pipe.yaml
briefly train pipe.yaml
expect_code 3
expect_error 'pipe.yaml: a FIFO \(named pipe\), not a regular file'
briefly train --model pipe.yaml --data mnist
expect_code 3
expect_error 'pipe.yaml: a FIFO'
train --tune --plan-cache pipe --run cached
expect_err 'pipe: a FIFO'
expect "$code" != 124
train --plan pipe --run planned
expect_code 3
expect_err 'pipe: a FIFO'

it "refuses one as a picture, and still answers for the others"
briefly predict run pipe "$images/ring.png" --quiet
expect_code 3
expect_error 'pipe: a FIFO'
expect_out 'ring.png'

it "names folders, devices and sockets for what they are"
briefly train --model mlp --data mnist --steps 1 --init /dev/zero
expect_code 3
expect_error '/dev/zero: a character device, not a regular file'
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("plug.yaml")'
briefly train plug.yaml
expect_code 3
expect_error 'plug.yaml: a socket, not a regular file'
mkdir -p folder.yaml
briefly train --model folder.yaml
expect_code 3
expect_error 'folder.yaml: a folder'

it "refuses one in a data set"
mkdir idx
for file in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
    mkfifo "idx/$file-ubyte"
done
briefly train --model mlp --data idx --steps 1
expect_code 3
expect_error 'ubyte: a FIFO'
mkdir -p photos/train/bars photos/train/ring photos/val/bars photos/val/ring
cp "$images/bars.jpg" photos/train/bars/1.jpg
cp "$images/bars.jpg" photos/val/bars/1.jpg
cp "$images/ring.png" photos/val/ring/1.png
mkfifo photos/train/ring/1.png
briefly train --model lenet --data photos --input 3x28x28 --augment none --batch 2 --steps 1 --run piped
expect "$code" != 124
expect "$code" != 0
expect_err '1.png: a FIFO|ring: .*no images'

it "refuses one in a checkpoint and as a lock"
cp -r run broken
rm "broken/${model#run/}"
mkfifo "broken/${model#run/}"
briefly eval broken
expect_code 3
expect_err 'model.safetensors: a FIFO'
mkdir locked
mkfifo locked/lock
train --run locked
expect_code 1
expect_error 'locked/lock: a FIFO'
rm locked/lock
ln -s nowhere locked/lock
train --run locked
expect_code 1
expect_error 'locked/lock: a symbolic link'

it "appends neither through a link nor to a FIFO"
echo precious >precious
for file in log.txt metrics.jsonl; do
    cp -r run "linked-$file"
    rm "linked-$file/$file"
    ln -s ../precious "linked-$file/$file"
    train --run "linked-$file" --resume --steps 4
    expect "$code" != 124
    expect "$(cat precious)" = precious
    cp -r run "piped-$file"
    rm "piped-$file/$file"
    mkfifo "piped-$file/$file"
    train --run "piped-$file" --resume --steps 4
    expect "$code" != 124
    expect "$code" != 0
    expect_err "$file: .*a FIFO"
done

it "writes no temporary file through a link that waits under its name"
mkdir -m 777 shared
# Every number that the next process can have within these tests, as far as a link each goes.
last=$(sh -c 'echo $$')
python3 - "$last" <<'END'
import os, sys
last, most = int(sys.argv[1]), int(open("/proc/sys/kernel/pid_max").read())
for pid in range(last + 1, min(last + 3000, most)):
    os.symlink("../precious", f"shared/plans.tmp-{pid}")
END
train --tune --plan-cache shared/plans --run tuned
expect_code 0
expect "$(cat precious)" = precious
expect_file shared/plans
expect "$(find shared -name 'plans.tmp-*' ! -type l | wc -l)" = 0
rm -rf shared

it "removes what killed processes left in a run and beside the plan cache, and nothing else"
mkdir -p left/checkpoints/step-00000009.tmp shared
cp -r run/. left/
gone=999999999
for path in left/config.yaml left/metrics.jsonl left/plan.txt left/model.yaml shared/plans; do
    : >"$path.tmp-4194305"
    : >"$path.tmp-$gone-0123456789abcdef"
done
: >left/checkpoints/step-00000009.tmp/model.safetensors.tmp-$gone-0123456789abcdef
kept="left/notes.tmp-$gone left/config.yaml.tmp-old left/checkpoints/step-notes.tmp shared/other.tmp-$gone-0123456789abcdef
shared/plans.tmp-$gone-0123 shared/plans.tmp-$$"
for path in $kept; do
    : >"$path"
done
exec 4>"shared/plans.tmp-$gone-fedcba9876543210"
flock -s 4
train --tune --run left --resume --steps 4 --plan-cache shared/plans
expect_code 0
for path in $kept "shared/plans.tmp-$gone-fedcba9876543210"; do
    [ -e "$path" ] || miss "$path is gone"
done
expect "$(find left shared -name '*.tmp-4194305' -o -name "*.tmp-$gone-0123456789abcdef" | sort | tr '\n' ' ')" = \
    "shared/other.tmp-$gone-0123456789abcdef "
expect_no_file left/checkpoints/step-00000009.tmp
exec 4>&-
train --tune --run left --resume --steps 6 --plan-cache shared/plans
expect_no_file "shared/plans.tmp-$gone-fedcba9876543210"

finish
