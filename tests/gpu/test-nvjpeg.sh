#!/bin/sh
# JPEGs decoded on the card, --decode gpu and hardware, held against the CPU's. (Pixels: test_decoder.)
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/gpu/gpu.sh"

# The fuzzers' files begin with a byte that is not the image's.
for part in train test; do
    mkdir -p set/$part/bars set/$part/mixed
    for i in 1 2 3 4 5 6; do
        cp "$source_root/tests/cli/images/bars.jpg" set/$part/bars/$i.jpg
    done
    for kind in rgb grey progressive cmyk; do
        tail -c +2 "$source_root/tests/fuzz/corpus/image/$kind.jpg" >set/$part/mixed/$kind.jpg
    done
done

# figures FILE: mean and deviation of all channels of both parts, in 1/255, one a line
figures() {
    tr -d '\n ' <"$1" | grep -oE '"(mean|deviation)":\[[^]]*\]' | sed 's/.*\[//; s/\]//' | tr , '\n' | awk '{ print 255 * $1 }'
}

# $1: what decodes
train() {
    lockstep train --backend "$backend" --model lenet --data set --input 3x28x28 --batch 5 --steps 12 --threads 1 --lr 0.001 \
        --schedule constant --augment rrc,flip --no-evaluate --decode "$1" --run "$2"
    expect_code 0
}

train cpu by-cpu
for decoder in gpu hardware; do
    lockstep data set --decode $decoder --json
    if [ $decoder = hardware ] && [ $code != 0 ]; then
        it "decodes by JPEG engines"
        skip "$(cat err)"
        continue
    fi
    cp out by-$decoder.json

    it "reads every image of a folder with --decode $decoder, nearly as the CPU does"
    expect_code 0
    lockstep data set --json
    expect_code 0
    figures out >figures-cpu
    figures by-$decoder.json >figures-$decoder
    expect "$(wc -l <figures-cpu)" = 12
    paste figures-cpu figures-$decoder | awk '{ d = $1 - $2; if (d > 2 || d < -2 || NF != 2) exit 1 }' ||
        miss "$(paste figures-cpu figures-$decoder)"

    it "trains nearly as with the CPU's, and says how many it was left, with --decode $decoder"
    train $decoder by-$decoder
    expect_near by-cpu by-$decoder 5e-2
    grep -q 'JPEGs were decoded by the CPU' by-$decoder/log.txt || miss "log.txt does not say how many were left"

    it "gives the same bits again, with any number of loader threads, with --decode $decoder"
    for threads in 1 4; do
        lockstep train --backend "$backend" --model lenet --data set --input 3x28x28 --batch 5 --steps 12 --threads 1 \
            --no-evaluate --decode $decoder --loader-threads $threads --run $decoder-$threads
        expect_code 0
    done
    expect_bits $decoder-1 $decoder-4 12

    it "gives the bits of one process on two, with --decode $decoder"
    for workers in 1 2; do
        lockstep train --backend "$backend" --model lenet --data set --input 3x28x28 --batch 4 --replicas 2 --steps 6 --threads 1 \
            --no-evaluate --decode $decoder --workers $workers --run $decoder-of-$workers
        expect_code 0
    done
    expect_bits $decoder-of-1 $decoder-of-2 6

    it "names a worker that was killed and ends the others, with --decode $decoder"
    begin 3 --backend "$backend" --model lenet --data set --input 3x28x28 --batch 6 --lr 0.001 --schedule constant \
        --augment rrc,flip --epochs 1000000 --deadline 5 --decode $decoder --run killed-$decoder
    kill_one

    it "names broken files as ever with --decode $decoder"
    rm -rf broken && cp -r set broken
    size=$(wc -c <broken/train/bars/2.jpg)
    head -c $((size / 2)) set/train/bars/2.jpg >broken/train/bars/2.jpg
    { head -c $((size * 2 / 3)) set/train/bars/4.jpg && printf '\377\331'; } >broken/train/bars/4.jpg
    lockstep data broken
    expect_code 3
    grep bars err >broken-cpu
    expect "$(wc -l <broken-cpu)" = 2
    lockstep data broken --decode $decoder
    expect_code 3
    grep bars err >broken-$decoder
    expect_same broken-cpu broken-$decoder
done

finish
