#!/bin/sh
# Networks that fail in part, on hosts that are network namespaces of this machine (netns.sh). Needs root. In every case
# all processes end in time, and each names the rank whose network failed.
. tests/cli/harness.sh
. "$source_root/tests/hosts/netns.sh"
. "$source_root/tests/hosts/train.sh"

release_scratch() {
    hosts_down
}

missing=$(hosts_missing)

# endless ARGUMENTS: a run over all hosts that only a fault ends.
endless() {
    train_everywhere --schedule constant --epochs 1000000 --no-evaluate "$@"
}

# everyone_names RANK: all processes ended because of a lost peer and name this rank.
everyone_names() {
    expect "$codes" = "4 4 4 4 "
    for i in 0 1 2 3; do
        expect_named "$i" "$1"
    done
}

if [ -z "$missing" ]; then
    hosts_up 4 1gbit || missing="the hosts do not come up"
fi

for sync in local async; do
    it "names rank 0 when it is cut off (--sync $sync)"
    if [ -n "$missing" ]; then
        skip "$missing"
    else
        replicas=$([ $sync = async ] && echo 3 || echo 4)
        endless --sync $sync --replicas "$replicas" --deadline 2 --run "cut-$sync"
        run_begins "cut-$sync"
        cut_off 0
        gather_trainers
        reconnect 0
        expect "$codes" = "4 4 4 4 "
        for i in 0 1 2 3; do
            expect_named $i 0
        done
        grep -q 'rank 0 (host host0) has not heard from any other host for' err.0 || miss "rank 0 does not blame its network"
    fi
done

it "names the rank whose packets do not leave"
if [ -n "$missing" ]; then
    skip "$missing"
else
    endless --deadline 2 --run one-way-out
    run_begins one-way-out
    for i in 0 2 3; do
        lose_packets 1 $i
    done
    gather_trainers
    for i in 0 2 3; do
        find_again 1 $i
    done
    everyone_names 1 # rank 1 as well, whether it still hears the others or not
fi

it "names the rank that no packets reach"
if [ -n "$missing" ]; then
    skip "$missing"
else
    endless --deadline 2 --run one-way-in
    run_begins one-way-in
    for i in 0 1 2; do
        lose_packets $i 3
    done
    gather_trainers
    for i in 0 1 2; do
        find_again $i 3
    done
    everyone_names 3
fi

it "names both ends when the link between two ranks fails"
if [ -n "$missing" ]; then
    skip "$missing"
else
    endless --deadline 2 --run partial
    run_begins partial
    lose_packets 1 2
    lose_packets 2 1
    gather_trainers
    find_again 1 2
    find_again 2 1
    expect "$codes" = "4 4 4 4 "
    for i in 0 1 2 3; do
        grep -Eq 'rank 1 \(host host1\) .*rank 2( |$)|rank 2 \(host host2\) .*rank 1( |$)' err.$i ||
            miss "rank $i does not name both ends"
    done
fi

it "names both ends of a link that was out from the beginning"
if [ -n "$missing" ]; then
    skip "$missing"
else
    lose_packets 1 2
    lose_packets 2 1
    endless --deadline 10 --run unconnected
    gather_trainers
    find_again 1 2
    find_again 2 1
    expect "$codes" = "4 4 4 4 "
    for i in 0 1 2 3; do
        grep -Eq 'rank 1 .*rank 2|rank 2 .*rank 1' err.$i || miss "rank $i does not name both ends"
    done
fi

steps_of() {
    grep -c '"kind": "step"' "$1/metrics.jsonl"
}

more_steps() {
    [ "$(steps_of "$1")" -gt "$2" ]
}

it "goes on when a link fails again and again for less than the deadline"
if [ -n "$missing" ]; then
    skip "$missing"
else
    endless --deadline 8 --run flapping
    run_begins flapping
    for _ in 1 2 3; do
        cut_off 2
        sleep 1 # the fault itself
        reconnect 2
        before=$(steps_of flapping)
        within 30 more_steps flapping "$before" || miss "the run does not go on"
    done
    end_trainers
    gather_trainers
    expect "$codes" = "75 75 75 75 "
fi

it "names the rank whose cable was out from the beginning"
if [ -n "$missing" ]; then
    skip "$missing"
else
    cable 2 down
    endless --deadline 10 --run never
    gather_trainers
    cable 2 up
    expect "$codes" = "4 4 4 4 "
    for i in 0 1 3; do
        grep -q 'rank 2 did not come to 10.77.0.1:' err.$i || miss "rank $i does not name rank 2"
    done
    grep -q 'rank 0 did not come to 10.77.0.1:' err.2 || miss "rank 2 does not say what it waited for"
fi

all_started() {
    for i in 0 1 2 3; do
        [ -n "$(trainers_of $i)" ] || return
    done
}

# Whatever the processes do then: find each other, connect, compare options, or make the first steps.
it "ends on every host when a rank is cut off in the first second"
if [ -n "$missing" ]; then
    skip "$missing"
else
    for wait in 0 0.2 0.5; do
        endless --deadline 10 --run "first-$wait"
        within 60 all_started || miss "the processes do not start"
        sleep $wait # a moment of the first second
        cut_off 1
        gather_trainers
        reconnect 1
        expect "$codes" = "4 4 4 4 "
        for i in 0 2 3; do
            grep -q 'rank 1 ' err.$i || miss "after $wait s rank $i does not name rank 1"
        done
    done
fi

finish
