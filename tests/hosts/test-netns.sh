#!/bin/sh
# Training over a network, on hosts that are network namespaces of this machine (netns.sh). Needs root.
. tests/cli/harness.sh
. "$source_root/tests/hosts/netns.sh"
. "$source_root/tests/hosts/train.sh"

release_scratch() {
    hosts_down
}

flow() {
    host=$1
    shift
    on "$host" python3 "$source_root/tests/hosts/flow.py" "$@"
}

# Starts a receiver on a host and returns when it listens.
listen() {
    mkfifo says
    flow "$1" receive "$(address "$1")" 5001 >says 2>>err &
    receiver=$!
    read -r word <says
    rm says
    [ "$word" = listening ] || miss "the receiver does not start"
}

# Mbit/s from one host to another, over a second. A busy machine makes it less, never more: the best of six counts.
measure() {
    rate=0
    for _ in 1 2 3 4 5 6; do
        listen "$2"
        found=$(flow "$1" send "$(address "$2")" 5001 1)
        wait "$receiver"
        [ "$found" -lt "$rate" ] || rate=$found
        [ "$rate" -lt "$3" ] || break
    done
}

missing=$(hosts_missing)
# Does this program know how to train on several hosts? One that does not run at all is no reason to skip.
lockstep train --help
[ "$code" = 0 ] || {
    echo "Bail out! $program does not run"
    exit 1
}
grep -q -e '--master-ip' out || alone="this program trains in one process"
alone=${missing:-${alone:-}}

it "makes hosts with names of their own that reach each other"
if [ -n "$missing" ]; then
    skip "$missing"
else
    hosts_up 4 200mbit || miss "the hosts do not come up"
    expect "$(on 0 hostname)" = host0
    expect "$(on 3 hostname)" = host3
    for from in 0 1 2 3; do
        to=$(((from + 1) % 4))
        listen $to
        flow $from reach host$to 5001 60 2>>err || miss "host$from does not reach host$to"
        wait "$receiver"
    done
fi

it "gives each host shared memory of its own"
if [ -n "$missing" ]; then
    skip "$missing"
else
    on 0 touch /dev/shm/of-host0
    on 0 test -e /dev/shm/of-host0 || miss "host0 does not see its own"
    ! on 1 test -e /dev/shm/of-host0 || miss "host1 sees host0's"
    expect_no_file /dev/shm/of-host0
fi

it "holds a cable to its rate"
if [ -n "$missing" ]; then
    skip "$missing"
else
    measure 0 2 150
    echo "# 200 Mbit/s cable: $rate Mbit/s"
    expect "$rate" -ge 150
    expect "$rate" -le 220
fi

it "pulls a cable and plugs it in again"
if [ -n "$missing" ]; then
    skip "$missing"
else
    listen 2
    cable 2 down
    ! flow 1 reach host2 5001 0.5 2>>err || miss "host2 answers without a cable"
    cable 2 up
    flow 1 reach host2 5001 60 2>>err || miss "host2 does not answer after its cable is back"
    wait "$receiver"
fi

# over_hosts COMMAND...: under Open MPI's mpirun, one process a host, started from host0. What it takes for ssh reaches
# the hosts; only their network carries messages.
over_hosts() {
    for i in $(seq 0 $((hosts - 1))); do
        echo "host$i slots=1"
    done >hostfile
    on 0 env OMPI_MCA_plm_rsh_agent="$(hosts_agent)" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
        OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 timeout 120 mpirun.openmpi -npernode 1 --hostfile hostfile "$@" \
        >out 2>err </dev/null
    code=$?
}
command -v mpirun.openmpi >/dev/null && command -v mpicc.openmpi >/dev/null || no_mpi="needs Open MPI"
no_mpi=${missing:-${no_mpi:-}}

it "starts MPI programs over the hosts by mpirun and a hostfile"
if [ -n "$no_mpi" ]; then
    skip "$no_mpi"
else
    mpicc.openmpi -o mpi_sum "$source_root/tests/hosts/mpi_sum.c" 2>err || miss "mpicc fails"
    over_hosts ./mpi_sum
    expect_code 0
    for i in 0 1 2 3; do
        expect_out "^host$i: rank $i of 4, sum 10\$"
    done
fi
[ -n "$missing" ] || hosts_down

# --- training ---------------------------------------------------------------------------------------------

weights() {
    sha256sum <"$1/checkpoints/step-$2/model.safetensors"
}

has_checkpoint() {
    find "$1/checkpoints" -path '*/step-????????/state.json' | grep -q .
}

it "trains over four hosts to the bits of one process"
if [ -n "$alone" ]; then
    skip "$alone"
else
    hosts_up 4 1gbit || miss "the hosts do not come up"
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:480 --batch 32 --replicas 4 \
        --threads 1 --steps 20 --run one
    train_everywhere --steps 20 --run many
    gather_trainers
    expect "$codes" = "0 0 0 0 "
    expect_out '4 on 4 hosts over tcp'
    expect "$(weights one 00000020)" = "$(weights many 00000020)"
fi

it "meets in a folder, too"
if [ -n "$alone" ]; then
    skip "$alone"
else
    rm -f code.*
    for i in 0 1 2 3; do
        train_on $i --rendezvous "file://$PWD/meet" --num-nodes 4 --steps 20 --run met
    done
    gather_trainers
    expect "$codes" = "0 0 0 0 "
    expect "$(weights one 00000020)" = "$(weights met 00000020)"
fi

# library_on HOST RANK FOLDER WORDS...: the probe of liblockstep, one of four, in the background
library_on() {
    library_host=$1 library_rank=$2 library_folder=$3
    shift 3
    on "$library_host" timeout 60 env LOCKSTEP_RENDEZVOUS="file://$PWD/$library_folder" LOCKSTEP_NUM_NODES=4 \
        LOCKSTEP_RANK="$library_rank" LOCKSTEP_MODULES="$(dirname "$program")" ./probe "$@" >>out 2>>err </dev/null &
    libraries="$libraries $!"
}
libraries=
await_libraries() {
    for pid in $libraries; do
        wait "$pid"
    done
    libraries=
}

it "names the rank that makes another call of liblockstep, two on each of two hosts"
if [ -n "$alone" ]; then
    skip "$alone"
else
    cc -I"$source_root/include" "$source_root/tests/probes/library_probe.c" -o probe -L"$(dirname "$program")" -llockstep \
        -Wl,-rpath,"$(dirname "$program")" || miss "the probe cannot be built"
    for calls in 'sum:10 sum:20' 'broadcast:400000 sum:100000' 'order:1,2 order:2,1' 'barrier finish'; do
        : >out
        : >err
        for rank in 0 1 2 3; do
            # shellcheck disable=SC2086
            library_on $((rank % 2)) $rank library calls 300 $calls
        done
        await_libraries
        expect "$(grep -c 'error: rank . (host.): call 301: rank . .* where rank . .*; all ranks must' err)" = 4
        expect "$(grep -c '^rank .: 0' out)" = 0
    done
fi

it "meets again in a folder of several hosts at once after a kill"
if [ -n "$alone" ]; then
    skip "$alone"
else
    : >out
    for rank in 0 1 2; do
        library_on $rank $rank killed wait
    done
    within 60 test -e killed/session-0001.rank-2 || miss "nobody came"
    for process in /proc/[0-9]*; do # of these hosts: the programs that run from this folder
        [ "$(readlink "$process/exe")" != "$PWD/probe" ] || kill -9 "${process#/proc/}"
    done
    await_libraries
    for rank in 0 1 2 3; do
        library_on $rank $rank killed again 1
    done
    await_libraries
    expect "$(grep -c '^1: 4 processes' out)" = 1
fi

it "refuses a process with another token"
if [ -n "$alone" ]; then
    skip "$alone"
else
    rm -f code.*
    for i in 0 1 2 3; do
        LOCKSTEP_TOKEN=$([ $i = 2 ] && echo the-wrong-token || echo the-right-token)
        train_on $i --master-ip "$(address 0)" --num-nodes 4 --rank $i --steps 20 --deadline 5 --run refused
    done
    LOCKSTEP_TOKEN=of-this-test
    gather_trainers
    expect "$(cat code.2)" != 0
    grep -q token err.2 || miss "host2 is not told that its token is wrong"
fi

it "ends on every host, with the culprit named, when a cable is pulled"
if [ -n "$alone" ]; then
    skip "$alone"
else
    train_everywhere --schedule constant --epochs 100000 --checkpoint-every 10 --deadline 10 --run pulled
    within 60 has_checkpoint pulled || miss "the run does not begin"
    cable 2 down
    since=$(date +%s)
    gather_trainers
    took=$(($(date +%s) - since))
    expect "$codes" = "4 4 4 4 "
    expect "$took" -le 60 # the deadline of 10 s; a connection would give up after minutes
    for i in 0 1 3; do
        grep -q 'rank 2 ' err.$i || miss "rank $i does not name rank 2"
    done
    cable 2 up
fi

it "goes on from the last checkpoint once the cable is back"
if [ -n "$alone" ]; then
    skip "$alone"
else
    last=$(find pulled/checkpoints -name 'step-????????' | sed 's/.*step-0*//' | sort -n | tail -n 1)
    train_everywhere --schedule constant --epochs 100000 --deadline 10 --steps $((last + 5)) --run pulled --resume
    gather_trainers
    expect "$codes" = "0 0 0 0 "
    expect_out "Going on after step $last"
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:480 --batch 32 --replicas 4 \
        --threads 1 --schedule constant --epochs 100000 --no-evaluate --steps $((last + 5)) --run pulled-1
    expect_file "pulled/checkpoints/step-$(printf %08d $((last + 5)))/model.safetensors"
    expect "$(weights pulled "$(printf %08d $((last + 5)))")" = "$(weights pulled-1 "$(printf %08d $((last + 5)))")"
fi

it "ends on every host, with the culprit named, when a process dies"
if [ -n "$alone" ]; then
    skip "$alone"
else
    train_everywhere --epochs 100000 --deadline 10 --run killed
    within 60 grep -q '"kind": "step"' killed/metrics.jsonl || miss "the run does not begin"
    for pid in $(ip netns pids "$hosts_prefix-1"); do
        [ "$(cat "/proc/$pid/comm")" != lockstep ] || kill -9 "$pid"
    done
    gather_trainers
    expect "$(cat code.0) $(cat code.2) $(cat code.3)" = "4 4 4"
    for i in 0 2 3; do
        grep -q 'rank 1 ' err.$i || miss "rank $i does not name rank 1"
    done
fi

it "ends at the deadline, and names the two, when packets between two ranks are lost during the start"
if [ -n "$alone" ]; then
    skip "$alone"
else
    lose_packets 1 2
    lose_packets 2 1
    train_everywhere --steps 20 --deadline 5 --run two-apart
    gather_trainers
    find_again 1 2
    find_again 2 1
    expect "$codes" = "4 4 4 4 "
    grep -q 'rank 2 came to the rendezvous' err.1 || miss "rank 1 does not name rank 2"
    grep -q 'rank 1 came to the rendezvous' err.2 || miss "rank 2 does not name rank 1"
    for i in 0 3; do
        grep -Eq 'ranks? [12] ' err.$i || miss "rank $i names neither"
    done
fi

steps_after() {
    [ "$(grep -c '"kind": "step"' "$1/metrics.jsonl")" -gt $(($2 + 5)) ]
}

# The cable beyond the switch: the host itself notices nothing, and TCP alone sends again after 0.2, 0.6, 1.4, 3, 6.2 and
# 12.6 seconds.
it "goes on after a cable was out for half of the deadline"
if [ -n "$alone" ]; then
    skip "$alone"
else
    train_everywhere --schedule constant --epochs 1000000 --no-evaluate --deadline 12 --run half
    within 60 grep -q '"kind": "step"' half/metrics.jsonl || miss "the run does not begin"
    cut_off 2
    sleep 6.6
    before=$(grep -c '"kind": "step"' half/metrics.jsonl)
    reconnect 2
    within 60 steps_after half "$before" || miss "the run does not go on"
    end_trainers
    gather_trainers
    expect "$codes" = "75 75 75 75 "
fi

it "trains under mpirun with a hostfile"
if [ -n "$alone$no_mpi" ]; then
    skip "${alone:-$no_mpi}"
else
    over_hosts "$program" train --threads 1 --model "$source_root/tests/cli/small.yaml" \
        --data synthetic:1x14x14:10:480 --batch 32 --replicas 4 --steps 20 --run hostfiled
    expect_code 0
    expect_out '4 on 4 hosts over mpi'
    expect "$(weights one 00000020)" = "$(weights hostfiled 00000020)"
fi

nobody_trains() {
    for i in $(seq 0 $((hosts - 1))); do
        for pid in $(ip netns pids "$hosts_prefix-$i"); do
            [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != lockstep ] || return
        done
    done
}

it "ends under mpirun, with the culprit named, when a cable is pulled"
if [ -n "$alone$no_mpi" ]; then
    skip "${alone:-$no_mpi}"
else
    {
        over_hosts "$program" train --threads 1 --model "$source_root/tests/cli/small.yaml" --no-evaluate \
            --data synthetic:1x14x14:10:480 --batch 32 --replicas 4 --epochs 100000 --deadline 10 --run mpi-pulled
        echo "$code" >mpi-code
    } &
    mpirun=$!
    within 60 grep -q '"kind": "step"' mpi-pulled/metrics.jsonl || miss "the run does not begin"
    cable 2 down
    # mpirun itself waits for host2 longer than that; the processes of the run do not.
    within 20 nobody_trains || miss "processes of the run are left"
    cable 2 up
    wait "$mpirun"
    expect_no_out '\[K' # mpirun's terminal is none
    expect "$(cat mpi-code)" != 0
    expect_err 'rank 2 '
fi

it "ends a server that is cut off from all (--sync async)"
if [ -n "$alone" ]; then
    skip "$alone"
else
    train_everywhere --sync async --replicas 3 --schedule constant --epochs 1000000 --no-evaluate --deadline 10 --run cut-off
    within 60 grep -q '"kind": "step"' cut-off/metrics.jsonl || miss "the run does not begin"
    for i in 0 1 2 3; do
        cable $i down
    done
    gather_trainers
    for i in 0 1 2 3; do
        cable $i up
    done
    expect "$codes" = "4 4 4 4 "
fi

finish
