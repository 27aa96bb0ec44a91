#!/bin/sh
# Names never move the cursor: control characters from files, folders and options are spelled, UTF-8 stays as it is.
. tests/cli/harness.sh

images=$source_root/tests/cli/images
escape=$(printf '\033')
c1=$(printf '\302\233') # CSI in one character
odd="a${escape}[31m${c1}2J"
run="run-${escape}[31m"
plain=$(printf 'Gr\303\274n')

# No byte of a control character, in the log neither.
expect_clean() {
    cat out err "$@" >all
    LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" all && miss "a control character"
    LC_ALL=C grep -q "$(printf '\302[\200-\237]')" all && miss "a C1 control character"
    :
}

for part in train val; do
    mkdir -p "photos/$part/$odd" "photos/$part/$plain"
    cp "$images/bars.jpg" "photos/$part/$odd/1.jpg"
    cp "$images/ring.png" "photos/$part/$plain/1.png"
done
cp "$images/bars.jpg" "$odd.jpg"

it "spells them in the names of classes and files"
lockstep train --model lenet --data photos --input 3x28x28 --augment none --batch 2 --steps 1 --threads 1 --run "$run"
expect_code 0
expect_clean "$run/log.txt"
expect_out 'run-\\x1b\[31m'
lockstep predict "$run" "$odd.jpg"
expect_code 0
expect_clean
expect_out '^a\\x1b\[31m\\xc2\\x9b2J\.jpg'
expect_out "^  $plain "
expect_out '^  a\\x1b\[31m\\xc2\\x9b2J '
lockstep predict "$run" "$odd.jpg" --json
expect_code 0
expect_clean
expect_out 'a\\u001[bB]\[31m\\u009b2J'
expect_out "$plain"
lockstep data photos
expect_code 0
expect_clean
expect_out "$plain"

it "spells them in errors, which stay one line"
lockstep predict "$run" "$(printf 'no\nlockstep: error: all is well\r.jpg')"
expect_code 3
expect_error 'no\\x0alockstep: error: all is well\\x0d\.jpg: '
expect_clean
lockstep train --model "$odd.yaml"
expect_clean
lockstep "$odd"
expect_clean

it "spells them in the names of model files, and takes none in layers"
printf 'input: 1x28x28\nclasses: 10\nlayers:\n  - {name: fc1, op: dense, out: classes}\n' >"$odd.yaml"
for way in "" --yaml --json; do
    # No word where there is none.
    # shellcheck disable=SC2086
    lockstep models show "$odd.yaml" $way
    expect_code 0
    expect_clean
    expect_out fc1
done
for name_of_layer in 'a\e[2J' 'a\x7f' 'a\x9b2J'; do
    printf 'input: 1x28x28\nclasses: 10\nlayers:\n  - {name: "%s", op: dense, out: classes}\n' "$name_of_layer" >bad.yaml
    lockstep models show bad.yaml
    expect_code 3
    expect_error "bad.yaml:4: (a layer's name holds a control character|layer 'a.*: a name has 1 to 200 letters)"
    expect_clean
done
printf 'input: 1x28x28\nclasses: 10\nlayers:\n  - {name: a, op: "x\\e[31m"}\n' >wrong.yaml
lockstep models show wrong.yaml
expect_code 3
expect_clean
expect_error 'wrong.yaml:4'

finish
