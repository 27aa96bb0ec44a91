# shellcheck shell=sh
# A real Slurm on this machine, with everything it writes in the scratch folder and ports of its own. Sourced after
# tests/cli/harness.sh. Needs root, and Debian's slurm-wlm and munge.
#
#   slurm_missing        what this machine lacks for it, nothing when it can
#   slurm_up             returns when the node is idle; srun, sbatch and the others then talk to it
#   slurm_up_on N        the same with N nodes, the hosts of netns.sh, which are up; use srun and the others `on 0`
#   slurm_down           ends the jobs and the daemons; call it from release_scratch, before hosts_down
#
# A node says that it has eight CPUs whatever the machine has, so that jobs of several tasks can run.
. "$source_root/tests/hosts/wait.sh"
slurm_daemons=
slurm=$scratch/slurm
slurm_first= # words before a command that talks to slurmctld

slurm_missing() {
    for slurm_tool in munged slurmctld slurmd srun sbatch; do
        command -v "$slurm_tool" >/dev/null || {
            echo "no slurm: needs $slurm_tool"
            return
        }
    done
    [ "$(id -u)" = 0 ] || echo "needs root"
}

# slurm_start NAME COMMAND...: a daemon in the foreground, which belongs to this shell.
slurm_start() {
    slurm_name=$1
    shift
    "$@" >"$slurm/$slurm_name.out" 2>&1 </dev/null &
    slurm_daemons="$! $slurm_daemons"
}

# The commands that talk to slurmctld run where it does.
slurm_command() {
    # $slurm_first is a list of words.
    # shellcheck disable=SC2086
    $slurm_first "$@"
}

slurm_idle() {
    [ "$(slurm_command sinfo --noheader --Node --format %T | sort -u)" = idle ]
}

slurm_empty() {
    [ -z "$(slurm_command squeue --noheader --format %i)" ] && slurm_idle
}

slurm_free_ports() {
    python3 - "$1" <<'END'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in held])
END
}

# slurm_configure HOST ADDRESS: of slurmctld. Standard input has the lines of the nodes.
slurm_configure() {
    # Two ports.
    # shellcheck disable=SC2046
    set -- "$1" "$2" $(slurm_free_ports 2)
    cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$1($2)
SlurmctldPort=$3
SlurmdPort=$4
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoAddrCache
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
PlugStackConfig=$slurm/plugstack.conf
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool-%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd-%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd-%n.log
$(cat)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
END
    : >"$slurm/plugstack.conf"
    # A cluster's own settings for tools must not reach these.
    # shellcheck disable=SC2046
    unset $(env | sed -n 's/^\(\(SLURM\|SBATCH\|SRUN\|SALLOC\)_[A-Z0-9_]*\)=.*/\1/p')
    export SLURM_CONF="$slurm/slurm.conf"
}

# Daemons that all nodes share. munge listens on a socket in the file system, which all of them see.
slurm_prepare() {
    slurm_first=$1
    mkdir -m 755 "$slurm" "$slurm/state"
    chmod 755 "$scratch"
    (umask 077 && head -c 128 /dev/urandom >"$slurm/munge.key")
    slurm_start munged munged --foreground --force --key-file="$slurm/munge.key" --socket="$slurm/munge.socket" \
        --pid-file="$slurm/munge.pid" --seed-file="$slurm/munge.seed" --log-file="$slurm/munge.log" --num-threads=2
    within 60 test -S "$slurm/munge.socket"
}

slurm_up() {
    slurm_prepare '' || return
    slurm_configure "$(hostname -s)" 127.0.0.1 <<END
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=8
END
    slurm_start slurmctld slurmctld -D -f "$SLURM_CONF"
    slurm_start slurmd slurmd -D -f "$SLURM_CONF" -N "$(hostname -s)"
    within 60 slurm_idle
}

# The words that run a command on a host, for a process that this shell starts and ends itself.
slurm_enter() {
    eval "slurm_target=\$hosts_pid$1"
    echo "nsenter --target $slurm_target --net --uts --ipc --mount --wdns=$PWD --"
}

slurm_up_on() {
    slurm_prepare "$(slurm_enter 0)" || return
    for i in $(seq 0 $(($1 - 1))); do
        mkdir "$slurm/tmp-host$i" # PMIx makes folders there that no other node may have
        echo "NodeName=host$i NodeAddr=$(address "$i") CPUs=8"
    done >"$slurm/nodes"
    echo "TmpFS=$slurm/tmp-%n" >>"$slurm/nodes"
    slurm_configure host0 "$(address 0)" <"$slurm/nodes"
    echo CgroupPlugin=cgroup/v1 >"$slurm/cgroup.conf" # nothing of it is used, and a host of netns.sh has no cgroups
    # shellcheck disable=SC2046
    slurm_start slurmctld $(slurm_enter 0) slurmctld -D -f "$SLURM_CONF"
    for i in $(seq 0 $(($1 - 1))); do
        # shellcheck disable=SC2046
        slurm_start "slurmd$i" $(slurm_enter "$i") slurmd -D -f "$SLURM_CONF" -N "host$i"
    done
    within 60 slurm_idle
}

slurm_down() {
    [ -n "$slurm_daemons" ] || return 0
    # Jobs first: their processes are slurmd's to end. KillWait is the longest that can take.
    slurm_command scancel --full --signal=KILL --user=root 2>/dev/null
    slurm_command scancel --user=root 2>/dev/null
    within 60 slurm_empty
    for slurm_pid in $slurm_daemons; do
        kill "$slurm_pid" 2>/dev/null
        # slurmctld saves its state first; a second is plenty for an empty one, ten are the end.
        within 10 slurm_gone "$slurm_pid" || kill -9 "$slurm_pid" 2>/dev/null
        wait "$slurm_pid" 2>/dev/null
    done
    slurm_daemons=
    unset SLURM_CONF
    rm -rf "$slurm"
}

# Ended, though perhaps not yet waited for.
slurm_gone() {
    case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
        '' | Z*) return 0 ;;
    esac
    return 1
}
