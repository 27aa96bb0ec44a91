#!/bin/sh
# bench --loader and bench --with-input.
. tests/cli/harness.sh

it "measures the loader alone"
lockstep bench --loader --data mnist --batch 32 --steps 3 --repeat 2 --loader-threads 2
expect_code 0
expect_out 'loader alone: mnist, augment none, input 1x28x28, batch 32, 2 loader threads'
for word in images/s 'of one thread' 'of one core' median CV; do
    expect_out "$word"
done

it "gives it as JSON"
lockstep bench --loader --data synthetic:3x32x32:10 --augment crop:4,flip --batch 32 --steps 3 --repeat 2 --json
expect_code 0
expect "$(json kind <out)" = loader
expect "$(json augment <out)" = crop:4,flip
for key in images_per_s images_per_s_of_thread images_per_s_of_core loader_threads; do
    expect -n "$(json $key <out)"
done

it "measures a list of numbers of threads, as a table and as CSV"
lockstep bench --loader --data mnist --batch 32 --steps 2 --repeat 1 --loader-threads 1,2 -o table.csv
expect_code 0
expect_out 'loader-threads  of one core'
expect "$(sed -n 1p table.csv | tr , '\n' | grep -c -E '^(loader_threads|data|augment|per_core)$')" = 4
expect "$(wc -l <table.csv)" = 3

it "names a broken image"
mkdir -p broken/train/a broken/train/b
printf 'no image' >broken/train/a/1.jpg
printf 'no image' >broken/train/b/1.jpg
lockstep bench --loader --data broken --input 3x16x16 --batch 2 --steps 1
expect_code 3
expect_error 'broken/train/./1.jpg: not an image'

it "measures one thing at a time"
lockstep bench --loader --workers 2
expect_code 2
expect_error 'leave --workers out'
lockstep bench --loader --with-input
expect_code 2
expect_error 'leave --with-input out'
lockstep bench --loader --scale 1,2
expect_code 2
expect_error 'leave --scale out'

it "measures steps with real input, and how long they wait for it"
lockstep bench --with-input --model mlp --data mnist --batch 32 --steps 3 --repeat 2
expect_code 0
expect_out 'waiting for input: [0-9.]*% of the time, [0-9]* loader thread'
lockstep bench --with-input --model mlp --data mnist --batch 32 --steps 2 --repeat 1 --replicas 2 --accumulate 2 --json
expect_code 0
expect_out '"input_wait": '

it "measures them with several processes and lists"
lockstep bench --with-input --model mlp --data mnist --batch 32 --steps 2 --repeat 1 --workers 1,2 --threads 1
expect_code 0
expect_out 'input wait'

it "refuses a batch that is larger than the data"
lockstep bench --with-input --model mlp --data synthetic:1x8x8:2:16 --batch 32 --steps 2
expect_code 2
expect_error '--batch 32: synthetic:1x8x8:2:16 has only 16 samples'

finish
