# shellcheck shell=sh
# Several hosts on one machine: network namespaces joined by a bridge, each with a name, shared memory and an /etc/hosts
# of its own, so that a program takes them for different machines. Sourced after tests/cli/harness.sh. Needs root.
#
#   hosts_missing               what this machine lacks for it, nothing when it can
#   hosts_up N [RATE]           host0 .. hostN-1, at 10.77.0.1 .. 10.77.0.N; each cable carries RATE (1gbit) both ways
#   on I COMMAND...             runs a command on host I
#   address I                   its address
#   cable I down|up             pulls its cable, plugs it in again
#   hosts_agent                 writes a stand-in for ssh that reaches the hosts by name, and says where it is
#   hosts_down                  ends what runs on the hosts and takes everything away; call it from release_scratch
#
# The bridge has a namespace too: the machine's own network is not touched. Everything has this shell's process number
# in its name, so that two tests can run side by side.
. "$source_root/tests/hosts/wait.sh"
hosts=0
hosts_prefix=lockstep$$
hosts_folder= # of the names of namespaces; ours to remove when it was not there

hosts_missing() {
    for hosts_tool in ip tc nsenter unshare; do
        command -v "$hosts_tool" >/dev/null || {
            echo "needs $hosts_tool"
            return
        }
    done
    [ "$(id -u)" = 0 ] || {
        echo "needs root"
        return
    }
    [ -d /run/netns ] || hosts_folder=ours
    if ip netns add "$hosts_prefix-try" 2>/dev/null; then
        ip netns exec "$hosts_prefix-try" unshare --uts --ipc --mount true 2>/dev/null ||
            echo "no ip netns exec: mounts cannot be made private here, as in a chroot"
        ip netns delete "$hosts_prefix-try"
    else
        echo "no ip netns: the kernel or a container forbids network namespaces"
    fi
    hosts_forget
}

# `ip netns add` makes a folder and mounts it on itself; nobody takes that away.
hosts_forget() {
    [ "$hosts_folder" = ours ] && [ -z "$(ls /run/netns 2>/dev/null)" ] || return 0
    umount /run/netns 2>/dev/null
    rmdir /run/netns 2>/dev/null
    hosts_folder=
}

address() {
    echo "10.77.0.$(($1 + 1))"
}

# A process that keeps the host's namespaces open, for ten minutes at most, whatever becomes of this shell.
hosts_start() {
    mkfifo "$scratch/hosts/up$1"
    ip netns exec "$hosts_prefix-$1" unshare --uts --ipc --mount sh -c '
        hostname "host$1" && mount -t tmpfs shm /dev/shm && mount --bind "$2/names" /etc/hosts || exit
        echo up >"$2/up$1"
        exec sleep 600' host "$1" "$scratch/hosts" &
    eval "hosts_pid$1=$!"
    [ "$(timeout 60 cat "$scratch/hosts/up$1")" = up ]
}

# limit NAMESPACE INTERFACE: what leaves there is held to the rate; half a megabyte may go at once.
hosts_limit() {
    [ -z "$hosts_rate" ] || tc -n "$1" qdisc add dev "$2" root tbf rate "$hosts_rate" burst 512kb latency 50ms
}

hosts_up() {
    hosts=$1
    hosts_rate=${2:-}
    hosts_switch=$hosts_prefix-switch
    mkdir -p "$scratch/hosts"
    [ -d /run/netns ] || hosts_folder=ours
    echo "127.0.0.1 localhost" >"$scratch/hosts/names"
    for i in $(seq 0 $((hosts - 1))); do
        echo "$(address "$i") host$i" >>"$scratch/hosts/names"
    done
    ip netns add "$hosts_switch" &&
        ip -n "$hosts_switch" link add bridge type bridge forward_delay 0 &&
        ip -n "$hosts_switch" link set bridge up || return
    for i in $(seq 0 $((hosts - 1))); do
        host=$hosts_prefix-$i
        ip netns add "$host" &&
            ip -n "$hosts_switch" link add "port$i" type veth peer name eth0 netns "$host" &&
            ip -n "$hosts_switch" link set "port$i" master bridge up &&
            ip -n "$host" address add "$(address "$i")/24" dev eth0 &&
            ip -n "$host" link set lo up &&
            ip -n "$host" link set eth0 up &&
            hosts_limit "$host" eth0 &&
            hosts_limit "$hosts_switch" "port$i" &&
            hosts_start "$i" || return
    done
}

on() {
    eval "hosts_pid=\$hosts_pid$1"
    shift
    nsenter --target "$hosts_pid" --net --uts --ipc --mount --wdns="$PWD" -- "$@"
}

cable() {
    ip -n "$hosts_prefix-switch" link set "port$1" "$2"
}

hosts_agent() {
    {
        echo '#!/bin/sh'
        echo 'case $1 in'
        for i in $(seq 0 $((hosts - 1))); do
            eval "hosts_pid=\$hosts_pid$i"
            echo "host$i | $(address "$i")) pid=$hosts_pid ;;"
        done
        echo '*) echo "no host named $1" >&2; exit 255 ;;'
        echo 'esac'
        echo 'shift'
        echo "exec nsenter --target \$pid --net --uts --ipc --mount --wdns=\"\$PWD\" -- sh -c \"\$*\""
    } >"$scratch/hosts/agent"
    chmod +x "$scratch/hosts/agent"
    echo "$scratch/hosts/agent"
}

hosts_down() {
    [ "$hosts" -gt 0 ] || return 0
    for i in $(seq 0 $((hosts - 1))); do
        # The keeper and whatever else still runs on the host.
        ip netns pids "$hosts_prefix-$i" 2>/dev/null | while read -r pid; do
            kill -9 "$pid" 2>/dev/null
        done
        eval "wait \$hosts_pid$i" 2>/dev/null
        ip netns delete "$hosts_prefix-$i" 2>/dev/null
    done
    ip netns delete "$hosts_prefix-switch" 2>/dev/null
    rm -rf "$scratch/hosts"
    hosts=0
    hosts_forget
}
