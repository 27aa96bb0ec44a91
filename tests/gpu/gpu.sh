# shellcheck shell=sh
# What the tests on a card share. Sourced after tests/cli/harness.sh.
#
#   losses RUN              the losses of a run's steps, one a line
#   expect_near A B X       two runs' losses differ by no more than the share X
#   expect_bits A B STEP    two runs have the same weights and state after a step
#   share_apart A B         |A - B| / |A|, in millionths
#   as_one A B STEP FILE... so have they the same losses, and these files of the run
#   overflow RUN ARGUMENTS...  trains in fp16 at the highest $rate that some steps are skipped at and that does not diverge
#   kill_one                of a run that tests/cli/workers.sh began, worker 1, $victim: it is named, and all end
# LOCKSTEP_TEST_BACKEND: another backend than cuda, to try these tests without a card.
backend=${LOCKSTEP_TEST_BACKEND:-cuda}
unset LOCKSTEP_TEST_BACKEND # the program takes it for an option

losses() {
    grep '"kind": "step"' "$1/metrics.jsonl" | sed 's/.*"loss": //; s/,.*//'
}

# The worst step of two runs, as "STEP SHARE"; "0 none" where there is nothing to compare.
apart() {
    losses "$1" >losses-a
    losses "$2" >losses-b
    paste losses-a losses-b | awk '
        NF != 2 || $1 == "null" || $2 == "null" { worst = 1e9; at = NR; next }
        { d = $1 - $2; d = (d < 0 ? -d : d) / ($1 != 0 ? ($1 < 0 ? -$1 : $1) : 1); if (d >= worst) { worst = d; at = NR } }
        END { if (NR) print at, worst; else print "0 none" }'
}

expect_near() {
    worst=$(apart "$1" "$2")
    echo "$worst" | awk -v most="$3" '{ exit !($1 > 0 && $2 <= most) }' ||
        miss "losses of $1 and $2 differ most at step ${worst% *}, by a share of ${worst#* }; $3 is allowed"
}

record() {
    (cd "$1/checkpoints/step-$(printf %08d "$2")" && sha256sum model.safetensors state.safetensors) 2>&1
}

expect_bits() {
    expect_file "$1/checkpoints/step-$(printf %08d "$3")/state.safetensors"
    [ "$(record "$1" "$3")" = "$(record "$2" "$3")" ] || miss "$1 and $2 differ after step $3"
}

as_one() {
    one=$1
    other=$2
    expect_bits "$one" "$other" "$3"
    losses "$one" >losses-a
    losses "$other" >losses-b
    cmp -s losses-a losses-b || miss "the losses of $one and $other differ"
    shift 3
    for file; do
        cmp -s "$one/$file" "$other/$file" || miss "$file of $one and $other differ"
    done
}

overflow() {
    wild=$1
    shift
    for rate in 30 15 8 4 2 1; do
        rm -rf "$wild"
        lockstep train "$@" --dtype fp16 --lr $rate --run "$wild"
        [ "$code" != 0 ] || grep -q '"scale": 65536' "$(find "$wild/checkpoints" -name "step-*" | sort | tail -n 1)/state.json" || return 0
    done
    miss "no gradient overflows at any rate, or training diverges"
}

kill_one() {
    victim=$(worker 1)
    kill -9 "$victim"
    end
    expect_code 4
    expect_err "worker 1 \(pid $victim\) was killed by signal 9 \(Killed\)"
    expect "$took" -le 15
}

share_apart() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; print int(1e6 * (d < 0 ? -d : d) / (a < 0 ? -a : a) + 0.5) }'
}
