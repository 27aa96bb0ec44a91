# shellcheck shell=sh
# Bits that do not depend on workers or on a resume. Sourced after workers.sh; the script has a `train` of 12 steps, in which
# step 7 is in the middle of an epoch.
#
#   expect_figures A B       the runs A and B have the same figures
#   keeps NAME OPTIONS...    the run NAME-1, made here unless it is there, is the same on two and three workers and in two parts

expect_figures() {
    figures "$1" >figures-1
    figures "$2" >figures-2
    cmp -s figures-1 figures-2 || miss "the metrics of $1 and $2 differ"
}

keeps() {
    kept=$1
    shift
    it "$kept: gives the same bits on two and three workers"
    if [ ! -e "$kept-1" ]; then
        train "$@" --run "$kept-1"
        expect_code 0
    fi
    for workers in 2 3; do
        train "$@" --workers $workers --run "$kept-$workers"
        expect_code 0
        expect_bits "$kept-1" "$kept-$workers" 12
        expect_figures "$kept-1" "$kept-$workers"
    done
    it "$kept: goes on in the middle of an epoch to the same bits"
    train "$@" --steps 7 --run "$kept-parts" --workers 2
    expect_code 0
    train "$@" --run "$kept-parts" --resume
    expect_code 0
    expect_out 'Going on after step 7'
    expect_bits "$kept-1" "$kept-parts" 12
}
