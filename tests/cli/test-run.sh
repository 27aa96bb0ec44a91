#!/bin/sh
# lockstep run: processes of another program, with liblockstep and without.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"
build=$(dirname "$program")
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCKSTEP_TOKEN
export OMP_NUM_THREADS=1 LOCKSTEP_MODULES="$build"
unset LOCKSTEP_TUNE

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

if ! command -v cc >/dev/null || [ ! -e "$build/liblockstep.so" ]; then
    it "starts a program with liblockstep"
    skip "needs cc and liblockstep.so"
    finish
fi

it "starts a program with liblockstep on one machine"
cc -O2 "$source_root/examples/mlp/distributed.c" -o "the program" "-I$source_root/include" "-L$build" -llockstep -lm \
    "-Wl,-rpath,$build" 2>err || miss "cc fails"
./the\ program >alone
lockstep run -n 3 -- "./the program"
expect_code 0
cp out three
expect "$(grep -c '^epoch' out)" = 6
expect "$(cat err)" = ""

it "starts it on several nodes, to the same bits"
if [ ! -e "$build/lockstep-tcp.so" ]; then
    skip "built without tcp"
else
    port=$(free_port)
    lockstep run -n 4 -- "./the program"
    cp out four
    "$program" run -n 2 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank 1 "./the program" >other 2>&1 &
    other=$!
    lockstep run -n 2 --master-ip 127.0.0.1 --master-port "$port" --num-nodes 2 --rank 0 "./the program"
    expect_code 0
    wait $other
    expect "$? $(cat other)" = "0 "
    expect_same out four
    printf '127.0.0.1:3\nlocalhost\n' >hosts
    "$program" run --hostfile hosts --master-port "$port" --rank 1 "./the program" >other 2>&1 &
    other=$!
    lockstep run --hostfile hosts --master-port "$port" --rank 0 "./the program"
    expect_code 0
    wait $other
    expect $? = 0
    expect_same out four
fi

it "passes options on to the library"
lockstep run -n 2 --compress powersgd "./the program"
expect_code 2
expect_err 'compress: powersgd'

it "says that a program cannot start workers itself"
LOCKSTEP_WORKERS=2 LOCKSTEP_NUM_NODES=2 LOCKSTEP_RANK=0 LOCKSTEP_MASTER_IP=127.0.0.1 "./the program" >out 2>err
expect_err 'a program cannot start workers itself; type: `lockstep run -n N'

it "divides the cores, and gives each process a rank"
lockstep run -n 2 sh -c 'echo $LOCKSTEP_WORKER_RANK of $LOCKSTEP_WORKER_SIZE; nproc; env | grep -c GOMP_SPINCOUNT || :'
expect_code 0
expect "$(grep -E ' of ' out | sort | tr '\n' ' ')" = "0 of 2 1 of 2 "
[ "$(nproc)" != 2 ] || expect "$(grep -cx 1 out)" = 2
expect "$(grep -cx 0 out)" = 2

it "ends options at the name of the program"
lockstep run -n 1 echo --label -n --rank 7
expect_code 0
expect "$(cat out)" = "--label -n --rank 7"
lockstep run -n 1 -- printf '%s|' 'a b' '' 'ü'
expect "$(cat out)" = "a b||ü|"

it "begins lines with the rank, and keeps standard output and error apart"
lockstep run -n 3 --label sh -c 'echo out; printf last; echo err >&2'
expect_code 0
expect "$(sort out | tr '\n' ' ')" = "0: last 0: out 1: last 1: out 2: last 2: out "
expect "$(sort err | tr '\n' ' ')" = "0: err 1: err 2: err "
lockstep run -n 2 --label sh -c 'head -c 3000000 /dev/zero | tr "\0" x'
expect_code 0
expect "$(tr -cd x <out | wc -c)" = 6000000

it "gives standard input to rank 0"
printf 'one\ntwo\n' | "$program" run -n 3 --label cat >out 2>err
expect "$(cat out | tr '\n' ' ')" = "0: one 0: two "

it "ends with the exit code of the first failure, and names the rank"
lockstep run -n 3 sh -c '[ $LOCKSTEP_WORKER_RANK != 1 ] || exit 9; exec sleep 100'
expect_code 9
expect_err 'error: rank 1 \(pid [0-9]+\) ended with exit code 9'
expect_err 'warning: 2 ranks did not end by themselves; sending SIGTERM'
expect "$(grep -c error: err)" = 1

it "names the rank that a signal killed"
lockstep run -n 3 sh -c '[ $LOCKSTEP_WORKER_RANK != 2 ] || kill -9 $$'
expect_code 137
expect_err 'error: rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\)'

it "passes signals on to the program and its children"
echo 'trap "echo got it; exit 75" TERM; sleep 100 & echo $! >>sleepers; : >"up$LOCKSTEP_WORKER_RANK"; wait' >a-script
"$program" run -n 2 sh a-script >out 2>err &
parent=$!
within 30 test -e up1 -a -e up0 || miss "the script does not begin"
kill -TERM $parent
wait $parent
code=$?
expect_code 75
expect "$(grep -c 'got it' out)" = 2
expect "$(cat err)" = ""
sleepers_gone() {
    for pid in $(cat sleepers); do
        ! kill -0 "$pid" 2>/dev/null || return 1
    done
}
within 10 sleepers_gone || miss "children of the program are left"

it "acts on signals and on ranks that fail while others print without end"
"$program" run -n 2 --label sh -c ': >"floods$LOCKSTEP_WORKER_RANK"; exec yes' >/dev/null 2>err &
parent=$!
within 30 test -e floods0 -a -e floods1 || miss "the script does not begin"
kill -TERM $parent
ended() {
    ! kill -0 $parent 2>/dev/null
}
within 60 ended || miss "SIGTERM does not end it"
kill -9 $parent 2>/dev/null
wait $parent
code=$?
expect_code 143
timeout -k 5 60 "$program" run -n 2 --label sh -c '[ $LOCKSTEP_WORKER_RANK = 0 ] || exit 9; exec yes' >/dev/null 2>err
code=$?
expect_code 9
expect_err 'error: rank 1 \(pid [0-9]+\) ended with exit code 9'

it "ends where children of the program go on to print, and loses no beginning of a line"
timeout -k 5 60 "$program" run -n 1 --label sh -c 'yes & echo $! >flooder; printf last >&2; sleep 1' >/dev/null 2>err
code=$?
kill "$(cat flooder)"
expect_code 0
expect "$(cat err)" = "0: last"

it "ends a program whose labelled output nobody reads any more"
timeout -k 5 60 "$program" run -n 2 --label yes 2>err | head -n 1 >out
expect "$(cut -c 2- out)" = ": y"
expect_err 'was killed by signal 13'

it "leaves no process behind when it is killed itself"
rm -f up0 up1 sleepers
"$program" run -n 2 sh -c 'sleep 100 & echo $! >>sleepers; sleep 100 & echo $! >>sleepers; : >"up$LOCKSTEP_WORKER_RANK"; wait' \
    >out 2>err &
parent=$!
within 30 test -e up1 -a -e up0 || miss "the script does not begin"
kill -9 $parent
{ wait $parent; } 2>/dev/null
within 20 sleepers_gone || miss "children of the program are left"

it "says what is wrong in one line"
lockstep run -n 2
expect_code 2
expect_error 'run: which program\? Type: lockstep run -n 4 -- ./program'
lockstep run -n 2 ./missing
expect_code 2
expect_error 'run: ./missing: there is no such program'
lockstep run -n 2 a-script
expect_code 2
expect_error 'run: a-script: this file cannot be run'
cp "the program" here
lockstep run -n 2 here
expect_code 2
expect_error 'run: here is not in PATH; for the file in this folder, type ./here'
lockstep run -n 0 echo
expect_code 2
expect_error 'workers'
lockstep run -n 2 --batch 3 echo
expect_code 2
expect_error 'batch'

finish
