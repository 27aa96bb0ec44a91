# shellcheck shell=sh
# Runs whose losses are compared. Sourced after harness.sh.
#
#   train NAME ARGUMENTS    a run in runs/NAME, with the options $options; the losses of its steps and evaluations: NAME.losses

losses() {
    grep -oE '"kind": "(step|eval)".*"loss": [^,]*' "$1/metrics.jsonl" | sed 's/"samples".*"loss"/"loss"/'
}

train() {
    name_of_run=$1
    shift
    # $options is a list of words.
    # shellcheck disable=SC2086
    lockstep train $options --run "runs/$name_of_run" "$@"
    expect_code 0
    losses "runs/$name_of_run" >"$name_of_run.losses"
}
