#!/bin/sh
# liblockstep from outside: installed, found by pkg-config, used by the example in every way that processes are started in.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"
build=$(dirname "$program")
example=$source_root/examples/mlp
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN LOCKSTEP_MODULES
export PKG_CONFIG_PATH="$scratch/usr/lib/pkgconfig" OMP_NUM_THREADS=1
port=$((32000 + $$ % 5000 * 2)) # two runs of the tests at once take different ones

has_module() {
    [ -e "$build/lockstep-$1.so" ] || skip "built without $1"
    [ -z "$skipped" ]
}

compile() {
    compiler=$1
    shift
    "$compiler" -O2 -Wall -Wextra -Werror "$@" >out 2>err
    code=$?
}

# start VARIABLE=VALUE... PROGRAM: in the background; `collect` waits for all of them: $codes, out, err.
started=
start() {
    timeout -k 5 120 env "$@" >>out 2>>err </dev/null &
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

# mpi KIND N PROGRAM
mpi() {
    kind=$1 processes=$2
    shift 2
    if [ "$kind" = openmpi ]; then
        set -- --oversubscribe "$@"
        [ "$(id -u)" != 0 ] || set -- --allow-run-as-root "$@"
    fi
    timeout -k 5 120 "mpirun.$kind" -np "$processes" "$@" >out 2>err </dev/null
    code=$?
}

# Six epochs were printed once, and the last loss is the serial program's to four digits.
expect_loss() {
    expect "$(grep -c '^epoch' out)" = 6
    awk 'NR == FNR { serial = $NF; next } { found = $NF } END { d = found / serial - 1; exit !(d < 1e-4 && d > -1e-4) }' \
        serial.txt out || miss "the last loss is not that of the serial program, $(tail -n 1 serial.txt)"
}

it "installs header, libraries and pkg-config file"
cmake --install "$build" --prefix "$scratch/usr" --component library >out 2>err
code=$?
expect_code 0
# lib/ or lib/ARCHITECTURE/, as the system has it
libdir=$(dirname "$(find usr -name liblockstep.so)")
PKG_CONFIG_PATH=$scratch/$libdir/pkgconfig
expect_file usr/include/lockstep.h
expect_file "$libdir/liblockstep.a"
expect "$(pkg-config --modversion lockstep)" = "$("$program" --version | sed 's/.* //')"

it "shows nothing but lockstep_*"
expect "$(nm -D --defined-only "$libdir/liblockstep.so" | awk '$3 !~ /^lockstep_/')" = ""
expect "$(nm -g --defined-only "$libdir/liblockstep.a" 2>/dev/null | awk 'NF == 3 && $3 !~ /^lockstep_/')" = ""
expect "$(nm -D --defined-only "$libdir/liblockstep.so" | wc -l)" -ge 15

it "makes a program distributed by ten lines"
diff "$example/serial.c" "$example/distributed.c" >changes
expect "$(grep -c '^>' changes)" -le 10
expect "$(grep -c '^<' changes)" -le 10
compile cc "$example/serial.c" -o serial -lm
expect_code 0
# pkg-config's words are several.
# shellcheck disable=SC2046
compile cc "$example/distributed.c" -o distributed $(pkg-config --cflags --libs lockstep) -lm "-Wl,-rpath,$scratch/$libdir"
expect_code 0
./serial >serial.txt
expect "$(wc -l <serial.txt)" = 6

it "links statically"
# shellcheck disable=SC2046
compile cc "$example/distributed.c" -o static $(pkg-config --cflags lockstep) "-L$libdir" -l:liblockstep.a \
    $(pkg-config --static --libs lockstep | sed 's/-llockstep//') -lm
expect_code 0
expect "$(ldd static | grep -c lockstep)" = 0

for compiler in g++ clang++; do
    it "can be used from C++ ($compiler)"
    if command -v "$compiler" >/dev/null; then
        cat >use.cpp <<'END'
#include <lockstep.h>
#include <lockstep.h>
#include <vector>
int main()
{
    lockstep_options options = lockstep_options();
    options.size = sizeof options;
    options.deadline = 30;
    lockstep *l = lockstep_init(&options);
    std::vector<float> v(100, 2.0f);
    int st = lockstep_submit(l, 0, v.data(), v.size(), LOCKSTEP_MEAN);
    if (lockstep_wait_all(l) != 0 || v[99] != 2.0f)
        st = 1;
    return lockstep_finish(l, st);
}
END
        # shellcheck disable=SC2046
        compile "$compiler" -std=c++11 -pedantic use.cpp -o use $(pkg-config --cflags --libs lockstep) \
            "-Wl,-rpath,$scratch/$libdir"
        expect_code 0
        ./use || miss "the program returned $?"
    else
        skip "$compiler is not installed"
    fi
done

it "is one and the same program alone"
./distributed >alone.txt
expect_same alone.txt serial.txt
./static >alone.txt
expect_same alone.txt serial.txt

for kind in openmpi mpich; do
    for processes in 1 2 4; do
        it "trains on $processes under mpirun ($kind)"
        if has_module "mpi-$kind"; then
            mpi "$kind" $processes ./distributed
            expect_code 0
            expect_loss
        fi
    done
done

for processes in 1 2 4; do
    it "trains on $processes with RANK and WORLD_SIZE"
    if has_module tcp; then
        for rank in $(seq 0 $((processes - 1))); do
            start RANK="$rank" WORLD_SIZE=$processes MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ./distributed
        done
        collect
        expect "$(echo "$codes" | tr -d ' 0')" = ""
        expect_loss
    fi
done

it "trains on 3 that meet in a folder, linked statically"
if has_module tcp; then
    for _ in 0 1 2; do
        start LOCKSTEP_RENDEZVOUS="file://$scratch/meet" LOCKSTEP_NUM_NODES=3 LOCKSTEP_MODULES="$build" ./static
    done
    collect
    expect "$codes" = "0 0 0"
    expect_loss
fi

# workers N VARIABLE... PROGRAM: over shared memory
session=0
workers() {
    processes=$1
    shift
    session=$((session + 1))
    for rank in $(seq 0 $((processes - 1))); do
        start LOCKSTEP_WORKER_RANK="$rank" LOCKSTEP_WORKER_SIZE="$processes" \
            LOCKSTEP_WORKER_SESSION="/lockstep-test-$$-$session" "$@"
    done
}

it "gives the same bits again on 3"
workers 3 ./distributed
collect
expect "$codes" = "0 0 0"
expect_loss
cp out once.txt
: >out
workers 3 ./static
collect
expect_same out once.txt

for codec in fp16 bf16 1bit; do
    it "trains with $codec"
    workers 2 LOCKSTEP_COMPRESS=$codec ./distributed
    collect
    expect "$codes" = "0 0"
    expect "$(tail -n 1 out | sed 's/.*loss 0\.\(.\).*/\1/')" -le 8
done

it "names a process that was killed, and ends the others with 4"
cat >slow.c <<'END'
#include <lockstep.h>
#include <signal.h>
#include <unistd.h>
int main(void)
{
    struct lockstep *l = lockstep_init(NULL);
    static float grad[1000];
    for (int step = 0; lockstep_submit(l, 0, grad, 1000, LOCKSTEP_SUM) == 0 && lockstep_wait_all(l) == 0; step++)
        if (step == 400 && lockstep_rank(l) == 1)
            raise(SIGKILL);
    return lockstep_finish(l, 0);
}
END
# shellcheck disable=SC2046
compile cc slow.c -o slow $(pkg-config --cflags --libs lockstep) "-Wl,-rpath,$scratch/$libdir"
expect_code 0
workers 3 ./slow
collect
expect "$codes" = "4 137 4"
expect "$(grep -c 'error: .*rank 1 (pid .* is gone' err)" = 2

it "builds a program that tries the library"
cp "$source_root/tests/probes/library_probe.c" .
# shellcheck disable=SC2046
compile cc library_probe.c -o probe $(pkg-config --cflags --libs lockstep) "-Wl,-rpath,$scratch/$libdir"
expect_code 0
# The processes of this machine as if on so many: node N PROGRAM...
cat >node <<'END'
#!/bin/sh
nodes=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}
LOCKSTEP_NODE=$((rank % nodes)) exec "$@"
END
chmod +x node

# named SIZE NUMBER FIRST SECOND: in that call and later ones all failed with 2, and each says which rank called what.
named() {
    expect "$(grep -c "^rank .: 2, later 2: rank . (.*): call $2: " out)" = "$1"
    expect "$(grep "^rank .: " out | grep -c "rank 1 $4 where rank 0 $3; all\|rank [23] $3 where rank 1 $4; all")" = "$1"
}

sum10='calls lockstep_allreduce for 10 floats (sum)'
sum20='calls lockstep_allreduce for 20 floats (sum)'
mean10='calls lockstep_allreduce for 10 floats (mean)'
broadcast='calls lockstep_broadcast for 400000 bytes from rank 0'
sum100000='calls lockstep_allreduce for 100000 floats (sum)'
first='submits tensor 1 of 100 floats (sum)'
second='submits tensor 2 of 100 floats (sum)'
# Who ends first is up to the launcher: it ends the others.
named_under_mpi() {
    expect "$code" -ne 0
    expect "$(grep -c "error: rank . (.*): call $1: rank 1 $3 where rank 0 $2; all\|error: rank . (.*): call $1: rank [23] $2 where rank 1 $3; all" err)" -ge 1
    expect "$(grep -c '^rank .: 0' out)" = 0
}
for kind in openmpi mpich; do
    it "names another call between nodes, late in a run ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 2 ./node 2 ./probe calls 300 sum:10 sum:20
        named_under_mpi 301 "$sum10" "$sum20"
        mpi "$kind" 2 ./node 2 ./probe calls 255 broadcast:400000 sum:100000
        named_under_mpi 256 "$broadcast" "$sum100000"
        mpi "$kind" 4 ./node 2 ./probe calls 256 order:1,2 order:2,1
        named_under_mpi 257 "$first" "$second"
    fi
done

cat >first <<'END'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exit 3
exec "$@"
END
chmod +x first
for kind in openmpi mpich; do
    it "does not wait for ever for a process that ended before it connected ($kind)"
    if has_module "mpi-$kind"; then
        LOCKSTEP_DEADLINE=1 mpi "$kind" 2 ./first ./probe again 1
        expect "$code" -ne 0
        expect "$code" -ne 124 # `mpi` has ended it
        # The launcher ends the other one, or the library does.
        [ "$kind" = openmpi ] || expect_err 'not all processes .* came to MPI_Init within 15 s.*(deadline)'
    fi
done

cat >leave.c <<'END'
#include <lockstep.h>
int main(void)
{
    struct lockstep *l = lockstep_init(NULL);
    if (lockstep_rank(l) == 1)
        return 0;
    lockstep_barrier(l);
    return lockstep_finish(l, 0);
}
END
# shellcheck disable=SC2046
compile cc leave.c -o leave $(pkg-config --cflags --libs lockstep) "-Wl,-rpath,$scratch/$libdir"
for kind in openmpi mpich; do
    it "says that a process exits without lockstep_finish ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 2 ./leave # its code may be 0
        expect_err 'error: .*rank 1 exits without lockstep_finish'
        mpi "$kind" 2 ./probe again 2
        expect_code 0
        expect "$(grep -c 'without lockstep_finish' err)" = 0
    fi
done

# by_hand SIZE NODES WORDS...: the probe over TCP
by_hand() {
    processes=$1 nodes=$2
    shift 2
    : >out
    : >err
    for rank in $(seq 0 $((processes - 1))); do
        start RANK="$rank" WORLD_SIZE="$processes" MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ./node "$nodes" ./probe "$@"
    done
    collect
}

it "names another call between nodes, late in a run (TCP)"
if has_module tcp; then
    by_hand 2 2 calls 300 sum:10 mean:10
    expect "$codes" = "2 2"
    named 2 301 "$sum10" "$mean10"
    by_hand 4 2 calls 300 broadcast:400000 sum:100000
    expect "$codes" = "2 2 2 2"
    named 4 301 "$broadcast" "$sum100000"
    by_hand 3 3 calls 1000 order:1,2 order:2,1
    expect "$codes" = "2 2 2"
    named 3 1001 "$first" "$second"
    by_hand 2 2 calls 300 sum:10 finish
    expect "$codes" = "2 2"
    expect "$(grep -c "error: rank . (.*): call 301: rank 1 calls lockstep_finish where rank 0 $sum10; all" err)" = 2
fi

# three SIZE: rank 0 has connected three times.
three() {
    expect "$(grep -c "^[123]: $1 processes" out)" = 3
}

for kind in openmpi mpich; do
    it "connects again after it has finished ($kind)"
    if has_module "mpi-$kind"; then
        mpi "$kind" 3 ./probe again 3
        expect_code 0
        three 3
        mpi "$kind" 2 ./node 2 ./probe again 3
        expect_code 0
        three 2
    fi

    it "leaves MPI to a program that uses it, too ($kind)"
    if has_module "mpi-$kind"; then
        if command -v "mpicc.$kind" >/dev/null; then
            # shellcheck disable=SC2046
            compile "mpicc.$kind" "$source_root/tests/probes/library_mpi.c" -o "own-$kind" \
                $(pkg-config --cflags --libs lockstep) "-Wl,-rpath,$scratch/$libdir"
            expect_code 0
            for order in 'init use use finalize' 'use finalize' 'use use'; do
                # shellcheck disable=SC2086
                mpi "$kind" 2 "./own-$kind" $order
                expect_code 0
            done
            mpi "$kind" 2 "./own-$kind" use finalize use
            expect_code 2
            expect "$(grep -c 'the program has called MPI_Finalize' err)" -ge 1
        else
            skip "mpicc.$kind is not installed"
        fi
    fi
done

it "connects again after it has finished (TCP, a folder, shared memory)"
if has_module tcp; then
    by_hand 2 1 again 3
    expect "$codes" = "0 0"
    three 2
    by_hand 2 2 again 3
    expect "$codes" = "0 0"
    : >out
    for _ in 0 1; do
        start LOCKSTEP_RENDEZVOUS="file://$scratch/again" LOCKSTEP_NUM_NODES=2 ./probe again 3
    done
    collect
    expect "$codes" = "0 0"
    three 2
fi
: >out
workers 3 ./probe again 3
collect
expect "$codes" = "0 0 0"
three 3

# meeting SIZE RANK PROGRAM...: in the background, at once and without a wrapper, so that $! is the program. A deadline
# below the time after which a silent process counts as gone.
deadline=10
meeting() {
    processes=$1 rank=$2
    shift 2
    env LOCKSTEP_RENDEZVOUS="file://$scratch/used" LOCKSTEP_NUM_NODES="$processes" LOCKSTEP_RANK="$rank" \
        LOCKSTEP_DEADLINE=$deadline "$@" >>out 2>>err </dev/null &
    started="$started $!"
}

# kill_once COMMAND...: once that is true.
kill_once() {
    within 60 "$@" || miss "the processes to be killed did not come"
    # shellcheck disable=SC2086
    kill -9 $started
    collect 2>/dev/null # the shell says that they were killed
    : >out
    : >err
}
# shellcheck disable=SC2317
came() { # so many wait for the others
    [ "$(find used -name 'session-0001.rank-*' | wc -l)" = "$1" ]
}
# shellcheck disable=SC2317
met() {
    [ "$(grep -c '^rank . of 3' out)" = 3 ]
}

it "meets in a folder at once after a run there was killed, also one of another size"
if has_module tcp; then
    for ranks in '0 1 2' '-1 -1 -1'; do
        for before in 1 2 3; do
            for size in 3 2; do
                for rank in $(echo "$ranks" | cut -d ' ' -f "1-$before"); do
                    meeting 3 "$rank" ./probe wait
                done
                if [ $before = 3 ]; then
                    kill_once met
                else
                    kill_once came $before
                fi
                for rank in $(echo "$ranks" | cut -d ' ' -f "1-$size"); do
                    meeting $size "$rank" ./probe again 1
                done
                collect
                expect "$(echo "$codes" | tr -d ' 0')" = ""
                expect "$(grep -c "^1: $size processes" out)" = 1
                expect "$(find used -name 'session-*' | wc -l)" = 0
                : >out
            done
        done
    done
fi

it "does not let two processes be the same rank in a folder"
if has_module tcp; then
    deadline=2
    meeting 2 0 ./probe again 1
    within 60 came 1
    meeting 2 0 ./probe again 1
    collect
    expect "$(echo "$codes" | tr ' ' '\n' | sort | tr -d '\n')" = 24 # which of them it is, is open
    expect "$(grep -c 'another process has come as rank 0; each process needs a rank of its own' err)" = 1
fi

it "says when a variable makes no sense"
RANK=1 ./distributed >out 2>err
code=$?
expect_code 2
expect_error 'RANK is set without WORLD_SIZE'

it "does not speak of a command line to a program that has none"
for settings in 'RANK=0 WORLD_SIZE=2' 'LOCKSTEP_RANK=1' 'LOCKSTEP_RENDEZVOUS=file:///tmp' 'LOCKSTEP_NUM_NODES=2' \
    'LOCKSTEP_WORKER_RANK=1' 'LOCKSTEP_NUM_NODES=2 LOCKSTEP_RANK=0 LOCKSTEP_MASTER_IP=no.such.host.invalid'; do
    # shellcheck disable=SC2086
    env $settings ./probe again 1 >out 2>err
    code=$?
    [ "$code" -ne 0 ] || miss "$settings is accepted"
    expect "$(grep -c '^lockstep: error: ' err)" = 1
    expect "$(grep -c -e ' --[a-z]' err)" = 0
done

it "says when the transport is missing"
if has_module tcp; then
    mv "$libdir/lockstep" "$libdir/elsewhere"
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 ./distributed >out 2>err
    code=$?
    mv "$libdir/elsewhere" "$libdir/lockstep"
    if [ "$code" = 4 ]; then
        skip "Lockstep is installed where this build would install it"
    else
        expect_code 1
        expect_error 'lockstep-tcp.so was not found .*LOCKSTEP_MODULES'
    fi
fi

finish
