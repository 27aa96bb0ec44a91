#!/bin/sh
# Recipes do not rot: their files train, their commands parse, and what they name is there.
. tests/cli/harness.sh
cp -r "$source_root/recipes" recipes
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN
absent=$scratch/absent

# shellcheck disable=SC2016 # no expansions meant
# commands FILE: the commands of its ```sh blocks, one on each line, without comments.
commands() {
    sed -n '/^```sh$/,/^```$/ { /^```/d; p; }' "$1" |
        sed -e ':more' -e '/\\$/ { N; s/\\\n */ /; b more' -e '}' -e 's/  *#.*//' -e '/^$/d'
}

# parses COMMAND OPTIONS...: the command takes its options and gets as far as the data, which is not there.
parses() {
    lockstep "$@" --data "$absent"
    case $code in 2 | 3) ;; *) miss "lockstep $* ends with $code" ;; esac
    grep -q "$absent: no such folder" out err || miss "lockstep $* does not get as far as its data"
}

names_files() {
    for word in "$@"; do
        case $word in
        -* | *=* | *://* | *'*'*) ;;
        *.sbatch | *.yaml) [ -e "$word" ] || miss "no file $word" ;;
        esac
    done
}

# try_command LINE: one line of a README.
# shellcheck disable=SC2086 # lines are lists of words
try_command() {
    case $1 in
    # It would wait for the others.
    *--master-ip*)
        lockstep ${1#lockstep } --help
        expect_code 0
        ;;
    'lockstep train '* | 'lockstep bench '*) parses ${1#lockstep } ;;
    mpirun*' lockstep '*) parses ${1#* lockstep } ;;
    'lockstep sweep '*) names_files $1 ;;
    'lockstep '*)
        lockstep ${1#lockstep } --help
        expect_code 0
        ;;
    *sbatch*) names_files $1 ;;
    esac
}

for readme in recipes/*/README.md; do
    folder=${readme%/README.md}
    it "parses the commands of $readme"
    commands "$readme" >"$scratch/lines"
    # Commands are for the recipe's own folder, or for the one that recipes are in.
    grep -q ' recipes/' lines || cd "$folder" || exit 1
    : >out
    : >err
    while read -r line; do
        try_command "$line" </dev/null
    done <"$scratch/lines"
    cd "$scratch" || exit 1
    [ -s lines ] || miss "$readme has no commands"
done

it "parses the runs of card.list"
cd recipes || exit 1
# shellcheck disable=SC2086 # $options is a list of words
while read -r run data options; do
    case $run in
    '#'*) ;;
    bench-*) parses bench $options ;;
    *)
        case $data in - | cifar-10-batches-bin | tiny-imagenet-200) ;; *) miss "$run: no data set $data" ;; esac
        parses train $options
        ;;
    esac </dev/null
done <card.list
expect "$(cut -d ' ' -f 1 card.list | grep -v '#' | sort | uniq -d)" = ""
cd "$scratch" || exit 1

it "shows the models that recipes name"
# shellcheck disable=SC2094 # show names a model
sed -n 's/^ *model: //p' recipes/*/*.yaml | grep -v 'yaml$' | sort -u >models
while read -r model; do
    lockstep models show "$model"
    expect_code 0
done <models

for file in recipes/*/*.yaml; do
    it "takes $file"
    if grep -q '^layers:' "$file"; then
        lockstep models show "$file"
        expect_code 0
    elif grep -q '^lr-groups:' "$file"; then
        skip "its groups are of its own model"
    elif ! grep -q '^grid:' "$file"; then
        lockstep train "$file" --model mlp --data synthetic:1x8x8:10:4096 --input 1x8x8 --augment crop:1,flip \
            --eval-resize auto --eval-crop auto --no-zero-init-residual --steps 1 --no-evaluate --threads 1 --run one
        expect_code 0
        rm -rf one
    fi
done

it "runs card.list within a time, and keeps what is done"
if ! command -v bash >/dev/null || ! command -v flock >/dev/null; then
    skip "needs bash and flock"
else
    mkdir data
    ONLY='^mnist-1$|^large' PROGRAM=$program BACKEND=onednn ALSO="--model mlp --steps 3 --no-evaluate" RUNS=kept \
        recipes/run-on-card data "the output" 60 >out 2>err
    expect $? = 0
    expect "$(cut -d , -f 1-2 'the output/summary.csv')" = "name,code
mnist-1,0"
    expect "$(tar tf 'the output/runs.tar' | sort | tr '\n' ' ')" = "mnist-1/ mnist-1/config.yaml mnist-1/log.txt mnist-1/metrics.jsonl.gz "
    ONLY='^mnist-1$' PROGRAM=$program BACKEND=onednn RUNS=late recipes/run-on-card data none 0 >out 2>err
    expect_file none/summary.csv
    expect "$(grep -c 'mnist-1: no time left' none/progress.txt)" = 1
    recipes/run-on-card absent more >out 2>err
    expect $? = 1
fi

finish
