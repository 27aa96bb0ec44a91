#!/bin/sh
. tests/cli/harness.sh

# 160 samples, 5 steps an epoch.
small="--model $source_root/tests/cli/small.yaml --data synthetic:1x14x14:10:160 --batch 32 --threads 1"
# $small is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $small "$@"
}
# One value of every step of a run.
of_steps() {
    grep '"kind": *"step"' "$2/metrics.jsonl" | sed -E "s/.*\"$1\": ([^,}]*).*/\\1/"
}
# near TOLERANCE FILE FILE: are there as many numbers in both, and those of a line within the tolerance, relative?
near() {
    paste "$2" "$3" | awk -v most="$1" 'NF != 2 || ($1 - $2) ^ 2 > ($1 * most) ^ 2 { bad = 1 } END { exit bad || NR == 0 }' ||
        miss "not equal within $1: $(paste "$2" "$3" | tr '\t\n' '/ ')"
}
expect_losses_of() {
    of_steps loss "$1" >expected
    of_steps loss "$2" >found
    near 1e-3 expected found
}
# expect_rates "OPTIONS" RATE...: two epochs of five steps have these rates.
expect_rates() {
    rm -rf rated
    # Options and their values.
    # shellcheck disable=SC2086
    train --epochs 2 --no-evaluate $1 --run rated
    expect_code 0
    shift
    printf '%s\n' "$@" >expected
    of_steps lr rated >found
    near 1e-6 expected found
}
weights() {
    echo "$1/checkpoints/$(ls "$1/checkpoints" | grep '^step-' | tail -n 1)/model.safetensors"
}

it "leaves configuration, log, metrics and checkpoint in the run directory"
train --epochs 2 --run one
expect_code 0
expect_file one/config.yaml
expect_file one/log.txt
expect_file one/metrics.jsonl
expect_file one/checkpoints/step-00000010/model.safetensors
expect_file one/checkpoints/step-00000010/state.safetensors
expect_file one/checkpoints/step-00000010/state.json

it "says what it is about to do, and where things are"
train --epochs 1 --run said
expect_code 0
expect_out 'Training [0-9]+ parameters in 8 parameter tensors\.'
expect_out 'said/checkpoints/step-00000005'
expect_out 'said/log.txt'

it "prints plain lines when piped"
expect_no_out "$(printf '\033')"
expect_no_out "$(printf '\r')"

it "writes one JSON object a line into metrics.jsonl"
for kind in step epoch eval; do
    grep -q "\"kind\": *\"$kind\"" one/metrics.jsonl || miss "no line of kind $kind"
done
for key in step epoch loss lr top1 top5 samples_per_s; do
    grep '"kind": *"step"' one/metrics.jsonl | head -n 1 | grep -q "\"$key\"" || miss "no $key"
done
expect "$(grep -c '"kind": *"epoch"' one/metrics.jsonl)" = 2

it "counts epochs in metrics.jsonl as the log does, and says when each line was written"
grep '"kind": "epoch"' one/metrics.jsonl | json epoch >found
expect "$(cat found)" = 1
expect "$(tail -n 1 one/metrics.jsonl | json epoch)" = 2
grep -q '^epoch 2/2' one/log.txt || miss "log.txt does not count to 2"
expect "$(grep -cE '"time": "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{3}Z"' one/metrics.jsonl)" = \
    "$(wc -l <one/metrics.jsonl)"

it "begins log.txt with date, host, version and command, and ends it with the exit code"
train --epochs 1 --token "it's mine" --run "with space" --no-evaluate
expect_code 0
head -n 1 "with space/log.txt" | grep -Eq "^Started 20[0-9-]+ [0-9:]+ [+-][0-9]{4}, on $(uname -n), by lockstep [0-9]+\.[0-9]+\.[0-9]+" ||
    miss "the first line is: $(head -n 1 "with space/log.txt")"
sed -n 2p "with space/log.txt" | grep -Fq "  command    $program train --model $source_root/tests/cli/small.yaml" ||
    miss "the second line is: $(sed -n 2p "with space/log.txt")"
sed -n 2p "with space/log.txt" | grep -Fq -- "--token ... --run 'with space' --no-evaluate" || miss "not what was typed"
grep -q mine "with space/log.txt" && miss "log.txt holds the secret"
grep -Fq "  folder     $(pwd -P)" "with space/log.txt" || miss "no folder"
tail -n 1 "with space/log.txt" | grep -Eq '^Ended 20.* with exit code 0: done$' || miss "no last line"

it "heads a resumed run in log.txt again"
train --resume --run "with space" --epochs 2 --schedule constant --no-evaluate
expect_code 0
expect "$(grep -c '^Started' "with space/log.txt")" = 1
grep -Eq '^Resumed 20.* after step 5, on ' "with space/log.txt" || miss "no line says that it was resumed"
expect "$(grep -c '^  command ' "with space/log.txt")" = 2
expect "$(grep -c '^Ended' "with space/log.txt")" = 2

it "gives the same weights for the same seed"
train --epochs 2 --run again
expect_same "$(weights one)" "$(weights again)"

it "gives others for another seed"
train --epochs 2 --seed 7 --run seed
expect_different "$(weights one)" "$(weights seed)"

it "runs its effective configuration again to the same weights"
lockstep train one/config.yaml --run rerun
expect_code 0
expect_same "$(weights one)" "$(weights rerun)"

it "lets the command line overrule the configuration file"
lockstep train one/config.yaml --epochs 1 --run overruled
expect_code 0
expect_file overruled/checkpoints/step-00000005/model.safetensors

# A model without BN and dropout: its gradient is the mean over all samples, however they are dealt. Only roundings differ.
it "computes replicas, and accumulates"
train --model mlp --epochs 1 --no-evaluate --run plain
expect_code 0
train --model mlp --epochs 1 --no-evaluate --replicas 4 --run replicas
expect_code 0
expect_out 'identity .* replicas 4, passes 1,'
expect_losses_of plain replicas
expect_different "$(weights plain)" "$(weights replicas)"
train --model mlp --epochs 1 --no-evaluate --accumulate 2 --run accumulate
expect_code 0
expect_out 'identity .* replicas 1, passes 2,'
expect_losses_of plain accumulate
expect_different "$(weights plain)" "$(weights accumulate)"

it "deals a batch that the replicas do not divide"
train --model mlp --epochs 1 --no-evaluate --replicas 5 --run five
expect_code 0
expect_out 'identity .* replicas 5, passes 1,'
expect_losses_of plain five

it "refuses a batch smaller than the number of replicas"
train --epochs 1 --replicas 33 --run more
expect_code 2
expect_error 'batch 32.*33 replicas'

it "keeps the last checkpoints only"
train --steps 20 --checkpoint-every 4 --keep 2 --run kept
expect_code 0
expect "$(ls kept/checkpoints | grep -c '^step-')" -le 3
expect_file kept/checkpoints/step-00000020/model.safetensors

it "takes up every schedule and warm-up"
expect_rates "--schedule constant" 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05
expect_rates "--schedule every:1:0.5" 0.05 0.05 0.05 0.05 0.05 0.025 0.025 0.025 0.025 0.025
expect_rates "--schedule multistep:1,2" 0.05 0.05 0.05 0.05 0.05 0.005 0.005 0.005 0.005 0.005
expect_rates "--schedule exponential:0.9" 0.05 0.05 0.05 0.05 0.05 0.045 0.045 0.045 0.045 0.045
expect_rates "--schedule cosine" 0.05 0.0487764129 0.0452254249 0.0396946313 0.0327254249 0.025 0.0172745751 \
    0.0103053687 0.00477457514 0.00122358709
expect_rates "--schedule constant --warmup stepping:1" 0.025 0.025 0.025 0.025 0.025 0.05 0.05 0.05 0.05 0.05
expect_rates "--schedule constant --warmup gradual:1 --replicas 2" 0.025 0.025 0.025 0.025 0.025 0.05 0.05 0.05 0.05 0.05
expect_rates "--schedule constant --warmup iterations:3" 0.0125 0.025 0.0375 0.05 0.05 0.05 0.05 0.05 0.05 0.05
expect_rates "--schedule constant --lr-per-256" 0.00625 0.00625 0.00625 0.00625 0.00625 0.00625 0.00625 0.00625 0.00625 \
    0.00625

it "takes up every option that changes what is learnt"
: >learnt
for option in "" "--optimizer lars" "--nesterov" "--momentum 0.5" "--weight-decay 0.01" "--label-smoothing 0.1" \
    "--loss l2" "--no-shuffle" "--dropout 0.2" "--augment crop:2,flip"; do
    rm -rf learns
    # An option and its value.
    # shellcheck disable=SC2086
    train --epochs 2 --no-evaluate --lr 0.001 $option --run learns
    expect_code 0
    sha256sum <"$(weights learns)" >>learnt
done
expect "$(sort -u learnt | wc -l)" = 10

it "notes the number of loader threads beside each step"
train --epochs 1 --loader-threads 3 --run threads3
expect_code 0
expect_out 'machine .* 3 loader threads$'
expect "$(grep -c '"loader_threads": 3[,}]' threads3/metrics.jsonl)" = 6 # five steps, one epoch

it "chooses the number of loader threads by measuring, and says so"
if [ "$(nproc)" -lt 2 ]; then
    skip "one core leaves no choice"
else
    lockstep train --model mlp --data mnist --batch 256 --steps 60 --no-evaluate --run chosen
    expect_code 0
    expect_out 'machine .* loader threads? to begin with'
    expect_out '^Loader threads: [0-9]+, chosen by measuring: one prepares [0-9]+ samples/s'
    grep -q 'Loader threads: .*chosen by measuring' chosen/log.txt || miss "log.txt does not say it"
    grep '"step": 60,' chosen/metrics.jsonl >last
    expect "$(json loader_threads <last)" -ge 1
fi

it "does not claim to choose where there is one core"
core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
taskset -c "$core" "$program" train --model mlp --data mnist --batch 256 --steps 20 --no-evaluate --run one-core >out 2>err
code=$?
expect_code 0
expect_no_out 'chosen by measuring'

it "writes CNTK's epoch line"
train --epochs 1 --log-format cntk --run cntk
expect_out 'Finished Epoch\[1 of 1\]: \[Training\] loss = [0-9.]+ \* 160, metric = [0-9.]+% \* 160 [0-9.]+s \( *[0-9.]+ samples/s\)'

it "writes the thesis's Time/Data line"
train --epochs 1 --log-format thesis --log-every 1 --run thesis
expect_out 'Epoch: \[0\]\[1/5\].*Time [0-9.]+ \([0-9.]+\).*Data [0-9.]+ \([0-9.]+\).*Loss [0-9.]+'

it "starts from the weights of a file"
train --model mlp --steps 2 --run first
train --model mlp --steps 1 --lr 0 --init "$(weights first)" --run second
expect_code 0
expect_same "$(weights first)" "$(weights second)"

it "learns MNIST, which is built in"
lockstep train --steps 80 --no-evaluate --run mnist
expect_code 0
lockstep eval mnist --json
expect_code 0
expect "$(json top1 <out | sed -E 's/^0?\.([0-9]{2}).*/\1/; s/^1.*/100/')" -ge 90

it "numbers the runs that were given no name"
train --steps 1
train --steps 1
expect_file runs/small-synthetic-001/config.yaml
expect_file runs/small-synthetic-002/config.yaml

finish
