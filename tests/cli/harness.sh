# shellcheck shell=sh
# Black-box tests of the program: sourced by every test-*.sh, which is then a list of cases in TAP.
#
#   it "refuses an unknown model"          a case begins (and the one before it is judged)
#   lockstep train --model lenett          runs the program in the scratch folder: $code, out, err
#   expect_code 2                          each expectation that fails says so and fails the case
#   expect_error 'lenett.*lenet'           standard error is one line that matches
#   hold train --steps 3000                runs it in the background ($child) until a pipe is full of what it says
#   let_go                                 lets it come to its end: $code, out, err
#   finish                                 last line of the file
#
# Cases run in order in one scratch folder, removed at the end, that is also HOME: a later case may use what an
# earlier one made.
set -u
program=$(realpath "$1")
source_root=$(pwd)
scratch=$(mktemp -d)
number=0
failed=0
name=
code=
export HOME="$scratch" XDG_CACHE_HOME="$scratch/.cache" XDG_DATA_HOME="$scratch/.local/share" LC_ALL=C
export LOCKSTEP_TUNE=false # measuring kernels takes longer than these tests train
trap 'cd /; release_scratch; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
cd "$scratch" || exit 1

# A test that mounts or starts something overrides this.
release_scratch() {
    :
}

judge() {
    [ -n "$name" ] || return 0
    number=$((number + 1))
    if [ -n "$skipped" ]; then
        echo "ok $number - $name # SKIP $skipped"
    elif [ -z "$broken" ]; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        failed=$((failed + 1))
    fi
    name=
}

it() {
    judge
    name=$1 broken='' skipped=''
    : >out
    : >err
}

skip() {
    skipped=$1
}

# Fails the case, with what the program said last.
miss() {
    broken=yes
    echo "# $name: $1"
    sed 's/^/#   out: /' out | tail -n 12
    sed 's/^/#   err: /' err | tail -n 12
}

lockstep() {
    "$program" "$@" >out 2>err </dev/null
    code=$?
}

# What nobody reads fills a pipe of 64 KiB: a run that says more is still there when something is to happen to it.
hold() {
    mkfifo says
    "$program" "$@" >says 2>err </dev/null &
    child=$!
    exec 3<says
    rm says
}

let_go() {
    cat <&3 >out
    exec 3<&-
    { wait "$child"; } 2>/dev/null
    code=$?
}

expect_code() {
    [ "$code" = "$1" ] || miss "exit code $code, expected $1"
}

expect_out() {
    grep -Eq -e "$1" out || miss "standard output does not match: $1"
}

expect_no_out() {
    ! grep -Eq -e "$1" out || miss "standard output matches: $1"
}

expect_err() {
    grep -Eq -e "$1" err || miss "standard error does not match: $1"
}

expect_error() {
    expect_err "$1"
    [ "$(wc -l <err)" = 1 ] || miss "standard error is not one line"
}

expect_file() {
    [ -s "$1" ] || miss "$1 is missing or empty"
}

expect_no_file() {
    [ ! -e "$1" ] || miss "$1 is there"
}

expect_same() {
    cmp -s "$1" "$2" || miss "$1 and $2 differ"
}

expect_different() {
    ! cmp -s "$1" "$2" || miss "$1 and $2 are the same"
}

# expect NUMBER -ge NUMBER, or any other condition of test(1).
expect() {
    [ "$@" ] || miss "not so: $*"
}

# The value of a key in a JSON text on standard input, the first one where there are several.
json() {
    grep -oE "\"$1\" *: *(\"[^\"]*\"|[^],} ]*)" | head -n 1 | sed -E 's/^"[^"]*" *: *"?//; s/"$//'
}

finish() {
    judge
    echo "1..$number"
    exit $((failed > 0))
}
