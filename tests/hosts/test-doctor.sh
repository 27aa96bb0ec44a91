#!/bin/sh
# What doctor and bench --collective say of a network: hosts are network namespaces of this machine. Needs root.
. tests/cli/harness.sh
. "$source_root/tests/hosts/netns.sh"
export LOCKSTEP_TOKEN=a-secret-of-this-test
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

release_scratch() {
    hosts_down
}

# together WORDS...: the program on each host, rank 0 on the first; $codes, and rank 0's out and err.
together() {
    started=
    for i in 3 2 1 0; do
        [ "$i" = 0 ] || exec 3>"out$i" 4>"err$i"
        [ "$i" != 0 ] || exec 3>out 4>err
        on "$i" timeout -k 5 100 "$program" "$@" --master-ip "$(address 0)" --num-nodes 4 --rank "$i" >&3 2>&4 </dev/null &
        started="$started $!"
    done
    exec 3>&- 4>&-
    codes=
    for pid in $started; do
        wait "$pid"
        codes="$codes $?"
    done
    codes=${codes# }
}

missing=$(hosts_missing)
[ -e "$(dirname "$program")/lockstep-tcp.so" ] || missing=${missing:-built without libcrypto}

it "says what a network carries, and that it is slow"
if [ -n "$missing" ]; then
    skip "$missing"
else
    hosts_up 4 1gbit || miss "the hosts do not come up"
    for _ in 1 2 3 4 5; do # beside other work one pair may be much slower than the rest: that is then the advice
        together doctor
        ! grep -q '^ *Gradients' out || break
    done
    expect "$codes" = "0 0 0 0"
    expect "$(grep -cE '^[0-3] - [0-3] +host[0-3] - host[0-3] ' out)" = 6
    expect_out '^warning +network '
    expect_out '^ +Gradients .*--compress'
    expect_out '^ok +clock +hosts agree'
    expect_out '^ok +hosts +4 with the same processor'
fi

it "gives the same as JSON"
if [ -n "$missing" ]; then
    skip "$missing"
else
    together doctor --json
    expect "$codes" = "0 0 0 0"
    python3 - out <<'END' || miss "the JSON is not as expected"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["size"] == 4 and d["transport"] == "tcp", d
assert [r["host"] for r in d["ranks"]] == ["host0", "host1", "host2", "host3"]
assert len(d["pairs"]) == 6 and all(0.03 < p["bandwidth_gbs"] < 0.2 for p in d["pairs"]), d["pairs"]
assert len(d["clocks"]) == 3 and all(abs(c["offset_ms"]) < c["error_ms"] + 1 for c in d["clocks"])
END
fi

it "names the host behind a bad cable"
if [ -n "$missing" ]; then
    skip "$missing"
else
    tc -n "$hosts_prefix-switch" qdisc change dev port2 root tbf rate 150mbit burst 128kb latency 50ms
    together doctor
    expect "$codes" = "0 0 0 0"
    expect_out '^warning +network .*slowest pair.*\(host2\)'
    expect_out 'cable'
fi

it "measures sums over hosts, and they are right"
if [ -n "$missing" ]; then
    skip "$missing"
else
    for way in auto ring hier; do
        together bench --collective $way --largest-mb 1
        expect "$codes" = "0 0 0 0"
        expect_out '^# 4 ranks on 4 hosts, transport tcp'
        expect "$(grep -cE ' float +sum .* 0$' out)" = 6
    done
fi

finish
