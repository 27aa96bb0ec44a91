#!/bin/sh
# Without a place for measured kernels a run works, and says in one line what that costs.
. tests/cli/harness.sh

unset XDG_CACHE_HOME LOCKSTEP_TUNE
note='^lockstep: warning: no plan cache: .*; kernels are measured again at each start; --plan-cache FILE or XDG_CACHE_HOME'
# What is measured is not said here.
quietly() {
    lockstep "$@"
    sed -i '/^lockstep: measuring kernels/d' err
}
train() {
    quietly train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:64 --batch 32 --threads 1 \
        --steps 2 --tune "$@"
}
mkdir closed
release_scratch() {
    umount "$scratch/closed" 2>/dev/null
}

it "says so where HOME is not set"
unset HOME
train --run unset
expect_code 0
expect_error "$note"
expect_err 'there is no home directory'

it "says so where HOME is not there, and does not make it"
export HOME="$scratch/nobody"
train --run homeless
expect_code 0
expect_error "$note"
expect_err 'there is no home directory'
expect_no_file nobody/.cache

it "says so where HOME cannot be written"
export HOME="$scratch/closed"
chmod 555 closed
if [ "$(id -u)" = 0 ] && ! mount -t tmpfs -o ro lockstep-test closed 2>/dev/null; then
    skip "root may write everywhere, and nothing can be mounted"
else
    train --run closed-home
    expect_code 0
    expect_error "$note"
    expect_err 'closed/.cache/lockstep/plans cannot be written'
    train --run workers --workers 2
    expect_code 0
    expect_error "$note"
    quietly eval closed-home
    expect_code 0
    expect "$(grep -c "$note" err)" = 1
    train --run quiet --quiet
    expect_code 0
    expect "$(cat err)" = ""
    train --run rule --no-tune
    expect_code 0
    expect "$(cat err)" = ""
fi

it "says nothing where there is another place"
train --run placed --plan-cache plans
expect_code 0
expect "$(cat err)" = ""
expect_file plans
XDG_CACHE_HOME="$scratch/new/cache" train --run xdg
expect_code 0
expect "$(cat err)" = ""
expect_file new/cache/lockstep/plans

it "reads a cache that it cannot write"
umount closed 2>/dev/null
chmod 755 closed
train --run filled
expect_file closed/.cache/lockstep/plans
cp closed/.cache/lockstep/plans kept
if [ "$(id -u)" = 0 ]; then
    mount --bind -o ro closed closed 2>/dev/null || skip "nothing can be mounted"
else
    chmod 555 closed/.cache/lockstep
fi
train --run read
expect_code 0
expect_same kept closed/.cache/lockstep/plans
expect_same filled/plan.txt read/plan.txt
chmod 755 closed/.cache/lockstep 2>/dev/null

finish
