# shellcheck shell=sh
# Training over the hosts of netns.sh. Sourced after it.
#
#   train_on I ARGUMENTS           one process of a small run on host I, in the background; its exit code goes to code.I
#   train_everywhere ARGUMENTS     a run over all hosts, found by the address of host 0
#   run_begins RUN                 waits until the run has made a step
#   end_trainers                   asks every process to stop, as SIGTERM does
#   gather_trainers                waits for every process; what they wrote is in out and err, their exit codes in codes
#   expect_named I RANK            rank I names RANK, and no other, as the cause
#   lose_packets A B               packets from host A to host B get lost
#   find_again A B                 they arrive again
#   cut_off I, reconnect I         the same for all packets from and to host I; the host itself notices nothing
export LOCKSTEP_TOKEN=of-this-test

train_on() {
    rank=$1
    shift
    (
        on "$rank" timeout 100 "$program" train --model "$source_root/tests/cli/small.yaml" \
            --data synthetic:1x14x14:10:480 --batch 32 --replicas 4 --threads 1 "$@" >"out.$rank" 2>"err.$rank" </dev/null
        echo $? >"code.$rank"
    ) &
    eval "trainer$rank=$!"
}

train_everywhere() {
    rm -f code.*
    for i in $(seq 0 $((hosts - 1))); do
        train_on "$i" --master-ip "$(address 0)" --num-nodes "$hosts" --rank "$i" "$@"
    done
}

run_begins() {
    within 60 grep -q '"kind": "step"' "$1/metrics.jsonl" || miss "the run does not begin"
}

trainers_of() {
    for pid in $(ip netns pids "$hosts_prefix-$1"); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != lockstep ] || echo "$pid"
    done
}

end_trainers() {
    for i in $(seq 0 $((hosts - 1))); do
        for pid in $(trainers_of "$i"); do
            kill -TERM "$pid" 2>/dev/null
        done
    done
}

gather_trainers() {
    for i in $(seq 0 $((hosts - 1))); do
        eval "wait \$trainer$i"
    done
    codes=$(cat code.* | tr '\n' ' ')
    cat out.* >out
    cat err.* >err
}

# A message names ranks as "rank 2 (host host2)"; the prefix "rank 1 (host1):" says who speaks.
expect_named() {
    named=$(sed 's/^.*error: //' "err.$1" | grep -Eo 'ranks? [0-9]+ \(host [a-z0-9]+\)(, [0-9]+ \(host [a-z0-9]+\))*' |
        grep -Eo '[0-9]+ \(' | tr -d ' (' | sort -u | tr '\n' ' ')
    [ "$named" = "$2 " ] || {
        miss "rank $1 names $named, not $2"
        sed "s/^/#   rank $1: /" "err.$1"
    }
}

# To an address that nobody has.
lose_packets() {
    ip -n "$hosts_prefix-$1" neigh replace "$(address "$2")" lladdr 02:00:00:00:00:99 nud permanent dev eth0
}

find_again() {
    ip -n "$hosts_prefix-$1" neigh delete "$(address "$2")" dev eth0
}

# both_ways COMMAND I: COMMAND for the packets from and to host I.
both_ways() {
    for other in $(seq 0 $((hosts - 1))); do
        [ "$other" = "$2" ] || {
            $1 "$2" "$other"
            $1 "$other" "$2"
        }
    done
}

cut_off() {
    both_ways lose_packets "$1"
}

reconnect() {
    both_ways find_again "$1"
}
