#!/bin/sh
# liblockstep-infer from outside: the example, beside predict, and several models and threads at once.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

export PKG_CONFIG_PATH="${program%/*}"
if ! pkg-config --exists lockstep-infer 2>/dev/null || [ ! -e "${program%/*}/liblockstep-infer.a" ]; then
    it "links a program with liblockstep-infer"
    skip "the library or pkg-config is not there"
    finish
fi

if [ "$(nm "${program%/*}/liblockstep-infer.a" 2>/dev/null | grep -c '__[at]san_')" -gt 0 ]; then
    it "links a program with liblockstep-infer"
    skip "the library was built with a sanitizer"
    finish
fi

# build SOURCE PROGRAM
build() {
    # shellcheck disable=SC2046 # flags are words
    cc -O2 -Wall -Wextra -Werror "$1" -o "$2" $(pkg-config --cflags --libs lockstep-infer) >out 2>err
    code=$?
}

classes photos/train 4 ash birch cedar
photo 3 9 40 >"my photo ü.ppm"
lockstep train --model lenet --data photos --input 3x28x28 --batch 4 --steps 6 --no-evaluate --quiet --run "run one" 2>/dev/null
lockstep train --model resnet18 --data photos --input 3x32x32 --batch 4 --steps 1 --no-evaluate --quiet --run two 2>/dev/null

it "builds the example, which prints what predict prints"
build "$source_root/examples/classify/classify.c" classify
expect_code 0
for run in "run one" two two/checkpoints/step-00000001 two/checkpoints/step-00000001/model.safetensors; do
    ./classify "$run" "my photo ü.ppm" "$source_root/tests/cli/images/bars.jpg" >theirs 2>err || miss "classify $run failed"
    : >ours
    for image in "my photo ü.ppm" "$source_root/tests/cli/images/bars.jpg"; do
        lockstep predict "$run" "$image" --quiet
        cat out >>ours
    done
    expect "$(wc -l <ours)" = 8
    expect_same ours theirs
done

it "answers for damaged files, and goes on"
: >empty.jpg
head -c 200 "$source_root/tests/cli/images/bars.jpg" >half.jpg
./classify two empty.jpg half.jpg nowhere.jpg "my photo ü.ppm" >out 2>err
code=$?
expect_code 1
expect "$(wc -l <err)" = 3
expect_out 'my photo'

it "says what is wrong with a model, and prints nothing of its own"
./classify nowhere "my photo ü.ppm" >out 2>err
code=$?
expect_code 1
expect_error '^nowhere: no such run directory'
./classify photos "my photo ü.ppm" >out 2>err
code=$?
expect_code 1
expect "$(wc -l <err)" = 1

it "gives each thread the answers of a thread alone"
build "$source_root/tests/probes/infer_probe.c" probe
expect_code 0
./probe "run one" two "my photo ü.ppm" >out 2>err
code=$?
expect_code 0
expect_out '^same'

finish
