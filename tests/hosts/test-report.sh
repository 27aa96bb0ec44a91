#!/bin/sh
# The report of a run over a slow link: two hosts that are network namespaces (netns.sh). Needs root.
. tests/cli/harness.sh
. "$source_root/tests/hosts/netns.sh"
. "$source_root/tests/hosts/train.sh"

release_scratch() {
    hosts_down
}

it "names a slow link"
alone=$(hosts_missing)
if [ -n "$alone" ]; then
    skip "$alone"
else
    # 2.7 MB of gradients a step over a cable that carries 2.5 MB/s.
    hosts_up 2 20mbit || miss "the hosts do not come up"
    train_everywhere --model mlp --data synthetic:1x28x28:10:640 --batch 64 --replicas 2 --steps 6 --no-evaluate --run slow
    gather_trainers
    expect "$codes" = "0 0 "
    lockstep report slow -o slow.html
    expect_code 0
    expect_out '^A slow link limits this run: it waits [0-9]+ % of its time for communication\.'
fi

finish
