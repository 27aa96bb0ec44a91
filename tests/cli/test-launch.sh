#!/bin/sh
# Processes that find each other in every way that the tests can start them in, and talk: tests/probes/transport_probe.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"
probe=$(dirname "$program")/tests/transport_probe
LOCKSTEP_MODULES=$(dirname "$program")
export LOCKSTEP_MODULES
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN

has_module() {
    [ -e "$LOCKSTEP_MODULES/lockstep-$1.so" ] || skip "built without $1"
    [ -z "$skipped" ]
}

# A port that nobody listens on; two runs of the tests at once take different ones.
port=$((20000 + $$ % 5000 * 2))

# mpi KIND N WORDS...: the probe under that MPI's mpirun.
mpi() {
    kind=$1 processes=$2
    shift 2
    if [ "$kind" = openmpi ]; then
        set -- --oversubscribe "$probe" "$@"
        [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
    else
        set -- "$probe" "$@"
    fi
    timeout -k 5 120 "mpirun.$kind" -np "$processes" "$@" >out 2>err </dev/null
    code=$?
}

# start WORDS...: one process in the background; `collect` waits for all of them: $codes, out, err.
started=
start() {
    timeout -k 5 120 "$probe" "$@" >>out 2>>err </dev/null &
    started="$started $!"
}

collect() {
    codes=
    for pid in $started; do
        wait "$pid"
        codes="$codes $?"
    done
    started=
    codes=${codes# }
}

tcp() {
    start "$1" --master-ip 127.0.0.1 --master-port $port --num-nodes "$3" --rank "$2" --deadline "$4"
}

for kind in openmpi mpich; do
    it "carries messages over MPI ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 3 everything
        expect_code 0
        expect "$(grep -c 'of 3: done (mpi)' out)" = 3
    fi

    it "knows a world of two ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 2 open
        expect_code 0
        expect_out 'rank 1 of 2'
    fi

    it "ends when a rank is killed ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 3 killed
        expect "$code" != 0
        expect "$code" != 124
    fi
done

it "says that another MPI's mpirun started it"
if has_module mpi-mpich && has_module mpi-openmpi; then
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 mpi mpich 2 open
    expect "$code" != 0
    expect_err 'started 2 processes, but Open MPI [^ ]* sees 1; start with the mpirun that belongs'
fi

it "carries messages between processes that RANK and MASTER_ADDR join"
if has_module tcp; then
    for rank in 0 1 2; do
        RANK=$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port start everything
    done
    collect
    expect "$codes" = "0 0 0"
    expect "$(grep -c 'of 3: done (tcp)' out)" = 3
fi

it "carries messages between processes started by hand, behind a token"
if has_module tcp; then
    export LOCKSTEP_TOKEN=a-secret-of-this-test
    for rank in 0 1 2; do
        tcp everything $rank 3 60
    done
    collect
    unset LOCKSTEP_TOKEN
    expect "$codes" = "0 0 0"
fi

it "does not let UCX listen for anybody unless an option accepts that"
if has_module ucx; then
    for tls in '' tcp all; do
        for rank in 0 1; do
            # UCX without TCP finds RDMA or no way at all.
            ${tls:+env UCX_TLS=$tls} timeout 60 "$probe" paused --transport ucx --master-ip 127.0.0.1 --master-port $port \
                --num-nodes 2 --rank $rank --deadline 20 >>out 2>>err &
            started="$started $!"
        done
        collect
        case $codes in
        "2 2") ;;
        "2 4" | "4 2") [ -n "$tls" ] || miss "without UCX_TLS both ranks end by themselves" ;;
        *) miss "exit codes $codes" ;;
        esac
    done
    expect_no_out paused
    expect_err 'UCX finds no RDMA device that leads to rank [01]\..*--allow-unprotected-ucx: then anybody who reaches its ports'
    expect_err 'anybody who reaches that port could end the run: .*UCX_TLS \(tcp\).*--allow-unprotected-ucx'
fi

# The remaining cases of UCX run over TCP of the loopback interface.
export LOCKSTEP_ALLOW_UNPROTECTED_UCX=true

it "carries messages over UCX where that is asked for"
if has_module ucx; then
    for rank in 0 1 2; do
        LOCKSTEP_TRANSPORT=ucx tcp everything $rank 3 60
    done
    collect
    expect "$codes" = "0 0 0"
    expect "$(grep -c 'of 3: done (ucx)' out)" = 3
    : >out
    for rank in 0 1 2; do
        LOCKSTEP_TRANSPORT=ucx tcp killed $rank 3 60
    done
    collect
    expect "$codes" = "4 4 137"
fi

for transport in tcp ucx; do
    it "no longer uses the memory of a send that was given up ($transport)"
    if has_module $transport; then
        rm -f given-up
        for rank in 0 1; do
            LOCKSTEP_TRANSPORT=$transport tcp give-up-send $rank 2 60
        done
        collect
        expect "$codes" = "0 0"
    fi
done

it "names a rank that was started with another transport"
if has_module ucx; then
    tcp open 0 2 20
    LOCKSTEP_TRANSPORT=ucx tcp open 1 2 20
    collect
    expect "$codes" = "2 2"
    expect_err 'rank 1 was started with another --transport'
fi

it "carries messages between processes that meet in a folder, in order of arrival"
if has_module tcp; then
    for _ in 0 1 2; do
        start everything --rendezvous "file://$scratch/meet" --num-nodes 3
    done
    collect
    expect "$codes" = "0 0 0"
    expect "$(sed -n 's/^rank \([0-9]*\) of 3: done.*/\1/p' out | sort | tr -d '\n')" = 012
    expect "$(ls -A meet)" = ""
fi

it "hears of a peer that was killed"
if has_module tcp; then
    for rank in 0 1 2; do
        tcp killed $rank 3 60
    done
    collect
    expect "$codes" = "4 4 137"
    expect_out 'rank 0: lost 2'
    expect_out 'rank 1: lost 2'
fi

it "names the ranks that did not come, at every rank that did"
if has_module tcp; then
    tcp open 0 4 5
    tcp open 2 4 5
    collect
    expect "$codes" = "4 4"
    expect "$(grep -c "ranks 1 and 3 did not come to 127.0.0.1:$port within 5 s" err)" = 2
fi

it "says that rank 0 did not come"
if has_module tcp; then
    tcp open 1 2 0.3
    collect
    expect "$codes" = 4
    expect_error "rank 0 did not come to 127.0.0.1:$port within"
fi

it "turns away a wrong token, on both sides, and goes on with the right one"
if has_module tcp; then
    LOCKSTEP_TOKEN=the-right-one tcp open 0 2 60
    LOCKSTEP_TOKEN=the-wrong-one timeout 60 "$probe" open --master-ip 127.0.0.1 --master-port $port --num-nodes 2 \
        --rank 1 >>out 2>>err
    expect $? = 2
    LOCKSTEP_TOKEN=the-right-one tcp open 1 2 60
    collect
    expect "$codes" = "0 0"
    expect_err 'turned away a process from 127.0.0.1: wrong token'
    expect_err 'refuses rank 1: wrong token'
    ! grep -q 'the-.*-one' out err || miss "a token was printed"
fi

it "refuses a process that was started for another size"
if has_module tcp; then
    tcp open 0 3 60
    tcp open 2 4 60
    collect
    expect "$codes" = "2 2"
    expect_err 'rank 2 at 127.0.0.1 was started for 4 processes, rank 0 for 3'
fi

it "refuses a second process of the same rank"
if has_module tcp; then
    tcp open 0 3 60
    tcp open 1 3 60
    tcp open 1 3 60
    within 60 grep -q 'refuses rank 1' err || miss "no second rank 1 is refused"
    tcp open 2 3 60
    collect
    expect "$(echo "$codes" | tr ' ' '\n' | sort | tr -d '\n')" = 0002
    expect_err 'there is a rank 1 already; each process needs a rank of its own'
fi

it "does not mind a stranger that talks nonsense"
if has_module tcp; then
    tcp open 0 2 60
    timeout 60 "$probe" junk 127.0.0.1 $port
    tcp open 1 2 60
    collect
    expect "$codes" = "0 0"
    expect_err 'turned away a process from 127.0.0.1: it does not speak Lockstep'
fi

it "lets a rank in while strangers hold 500 connections that say nothing"
if has_module tcp; then
    mkfifo hold
    tcp open 0 2 20
    timeout 60 "$probe" idle 127.0.0.1 $port 500 <hold >held 2>>err &
    idler=$!
    exec 3>hold
    within 60 grep -q idle held || miss "the connections cannot be made"
    tcp open 1 2 20
    collect
    exec 3>&-
    wait $idler
    expect "$codes" = "0 0"
fi

# as_another VARIABLE=VALUE... WORDS...: the probe as another user, who has a copy that it may read
as_another() {
    env LOCKSTEP_MODULES="$scratch/other" "$1" timeout 60 setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$scratch/other/transport_probe" open --master-ip 127.0.0.1 --master-port $port --num-nodes 2 --rank 1 >>out 2>>err
}

it "turns away another user where there is no token, on both sides"
if ! command -v setpriv >/dev/null || ! command -v cc >/dev/null || [ "$(id -u)" != 0 ]; then
    skip "needs root, setpriv and a compiler"
elif has_module tcp; then
    mkdir other
    cp "$probe" "$LOCKSTEP_MODULES"/lockstep-tcp.so other
    echo 'unsigned geteuid(void); unsigned geteuid(void) { return 0; }' >liar.c # takes itself for the user of rank 0
    cc -shared -fPIC -o other/liar.so liar.c || miss "the liar cannot be built"
    chmod a+x "$scratch"
    tcp open 0 2 60
    as_another A=B
    expect $? = 2
    expect_err 'rank 0 at 127.0.0.1:[0-9]* is another user'
    as_another LD_PRELOAD="$scratch/other/liar.so"
    expect $? = 2
    expect_err 'turned away a process from 127.0.0.1: it is another user'
    tcp open 1 2 60
    collect
    expect "$codes" = "0 0"
fi

# pause WORDS...: two processes that are connected and wait until `let_on`; their numbers are in $paused.
pause() {
    rm -f go
    for rank in 0 1; do
        tcp paused $rank 2 60
    done
    within 60 eval '[ "$(grep -c "^paused" out)" = 2 ]' || miss "they do not connect"
    paused=$(sed -n 's/^paused //p' out)
}

let_on() {
    : >go
    collect
}

it "cannot be ended by a stranger, who finds no port to reach"
if has_module tcp; then
    export LOCKSTEP_TOKEN=a-secret-of-this-test
    pause
    for pid in $paused; do
        timeout 60 "$probe" strike "$pid" >>ports
    done
    let_on
    unset LOCKSTEP_TOKEN
    expect "$codes" = "0 0"
    expect "$(cat ports)" = ""
fi

it "keeps UCX to the loopback interface where rank 0 is there"
if has_module ucx; then
    export LOCKSTEP_TOKEN=a-secret-of-this-test LOCKSTEP_TRANSPORT=ucx
    pause
    for pid in $paused; do
        timeout 60 "$probe" ports "$pid" >>ucx-ports
    done
    let_on
    unset LOCKSTEP_TOKEN LOCKSTEP_TRANSPORT
    expect "$codes" = "0 0"
    expect "$(grep -vc ' 0100007F ' ucx-ports)" = 0
fi

it "asks for a token where processes are on several hosts"
if has_module tcp; then
    start open --master-ip 192.0.2.1 --num-nodes 2 --rank 1
    collect
    expect "$codes" = 2
    expect_error '192.0.2.1: .* set LOCKSTEP_TOKEN'
fi

it "says that the port is in use"
if has_module tcp; then
    tcp open 0 2 60
    timeout 60 "$probe" junk 127.0.0.1 $port # returns once somebody listens
    timeout 60 "$probe" open --master-ip 127.0.0.1 --master-port $port --num-nodes 2 --rank 0 >>out 2>>err
    expect $? = 2
    tcp open 1 2 60
    collect
    expect "$codes" = "0 0"
    expect_err 'in use.*--master-port'
fi

it "names who did not come to the folder, and leaves the next run a clean place"
if has_module tcp; then
    start open --rendezvous "file://$scratch/meet" --num-nodes 3 --rank 0 --deadline 5
    start open --rendezvous "file://$scratch/meet" --num-nodes 3 --rank 2 --deadline 5
    collect
    expect "$codes" = "4 4"
    expect "$(grep -c 'rank 1 did not come to file://.*/meet within 5 s' err)" = 2
    expect "$(find meet -name '*.rank-*' | wc -l)" = 0
fi

it "passes over what a killed run left in the folder"
if has_module tcp; then
    rm -rf meet
    mkdir -m 700 meet
    (umask 077; head -c 36 /dev/zero >meet/session-0001; : >meet/session-0001.rank-1)
    touch -d '1 hour ago' meet/session-0001 meet/session-0001.rank-1
    for rank in 0 1 2; do
        start open --rendezvous "file://$scratch/meet" --num-nodes 3 --rank $rank
    done
    collect
    expect "$codes" = "0 0 0"
    expect "$(ls -A meet)" = ""
fi

it "refuses a folder that others may write, and another user's session"
if has_module tcp; then
    mkdir open
    chmod 777 open
    start open --rendezvous "file://$scratch/open" --num-nodes 2
    collect
    expect "$codes" = 2
    expect_error 'open: other users may change that folder'
    : >err
    mkdir -m 700 shared
    head -c 36 /dev/zero >shared/session-0001
    chmod 644 shared/session-0001
    start open --rendezvous "file://$scratch/shared" --num-nodes 2
    collect
    expect "$codes" = 3
    expect_error 'session-0001: not a session of ours'
fi

it "meets beside a FIFO, another user's sessions and files of other names, and leaves them there"
if has_module ucx; then
    mkdir -m 700 busy
    mkfifo -m 600 busy/session-0001
    touch -d '1 hour ago' busy/session-0001
    strange="session-notes session-7 session-1000000 session-0001-notes"
    if [ "$(id -u)" = 0 ]; then
        strange="$strange session-0002 session-999999"
    fi
    for file in $strange; do
        : >"busy/$file"
        chmod 600 "busy/$file"
        [ "$(id -u)" != 0 ] || chown 12345 "busy/$file"
    done
    for rank in 0 1; do
        start open --rendezvous "file://$scratch/busy" --num-nodes 2 --rank $rank --deadline 20
    done
    collect
    expect "$codes" = "0 0"
    for file in $strange; do
        [ -e "busy/$file" ] || miss "$file is gone"
    done
fi

it "names a session file that is in the way, and does not wait"
if has_module ucx; then
    mkdir -m 700 full
    (umask 077; head -c 36 /dev/zero >full/session-999999)
    touch -d '1 hour ago' full/session-999999
    start open --rendezvous "file://$scratch/full" --num-nodes 2 --deadline 5
    collect
    expect "$codes" = 3
    expect_error 'full/session-999999: .*remove that file'
    : >err
    rm full/session-999999
    mkfifo full/session-0001
    start open --rendezvous "file://$scratch/full" --num-nodes 2 --deadline 5
    collect
    expect "$codes" = 3
    expect_error 'full/session-0001: not a session of ours'
fi

it "does not join a run in the folder whose token is another"
if has_module tcp; then
    LOCKSTEP_TOKEN=the-right-one start open --rendezvous "file://$scratch/tokens" --num-nodes 2 --deadline 2
    LOCKSTEP_TOKEN=the-wrong-one start open --rendezvous "file://$scratch/tokens" --num-nodes 2 --deadline 2
    collect
    expect "$codes" = "4 4"
fi

finish
