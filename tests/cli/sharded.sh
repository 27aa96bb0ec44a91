# shellcheck shell=sh
# What the tests of shards share. Sourced after workers.sh.
#
#   deep.yaml                  a model of 19 million parameters: 73 MiB, and twice as much state
#   bytes KEY                  a number of the plan in `out`
#   names_killed ARGUMENTS...  a case: a worker of a run in shards is killed and named

{
    echo 'input: 1x14x14'
    echo 'classes: 10'
    echo 'layers:'
    for layer in 1 2 3 4 5 6 7 8 9 10 11 12; do
        echo "  - {name: fc$layer, op: dense, out: 1280}"
        echo "  - {name: relu$layer, op: relu}"
    done
    echo '  - {name: fc, op: dense, out: classes}'
} >deep.yaml

bytes() {
    json "$1" <out
}

names_killed() {
    it "names a worker that is killed"
    begin 3 --data synthetic:1x14x14:10:195 --batch 48 --schedule constant --epochs 1000000 --deadline 20 --run killed "$@"
    victim=$(worker 1)
    kill -9 "$victim"
    end
    expect_code 4
    expect_err "worker 1 \(pid $victim\) was killed by signal 9"
    expect_err "rank 1 \(.*is gone"
}
