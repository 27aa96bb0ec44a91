#!/bin/sh
# What every rank did: the lines of kind "rank" in metrics.jsonl, --per-rank, and the end of a run in words.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"

# Five steps an epoch, the last one uneven.
train() {
    lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:110 --batch 24 --threads 1 \
        --no-evaluate "$@"
}

# values RUN KEY...: the values of these keys on each rank line, in order; a key that is missing is "?".
values() {
    run=$1
    shift
    grep '"kind": "rank"' "$run/metrics.jsonl" | while read -r line; do
        row=
        for key in "$@"; do
            value=$(printf '%s\n' "$line" | json "$key")
            row="$row ${value:-?}"
        done
        echo "${row# }"
    done
}

# expect_rows EXPECTED: the file `found` holds these rows.
expect_rows() {
    printf '%s\n' "$@" >expected
    cmp -s expected found || {
        miss "other lines"
        diff expected found | sed 's/^/#   /'
    }
}

# The parts of every line add up to its seconds; nothing is negative beyond rounding.
expect_sums() {
    values "$1" seconds input_seconds compute_seconds exposed_seconds late_seconds update_seconds hidden_seconds >parts
    [ -s parts ] || miss "no rank lines"
    awk '{ rest = $1 - $2 - $3 - $4 - $5 - $6
           if (rest > 1e-6 || rest < -1e-6) exit 1
           for (i = 1; i <= 7; i++) if ($i < -1e-6 || $i == "?") exit 1 }' parts ||
        miss "the parts do not add up: $(cat parts)"
}

# --- lines ------------------------------------------------------------------------------------------------

it "writes one line an epoch for one process, which exchanges nothing"
train --epochs 2 --run one
expect_code 0
values one epoch rank step steps waited_for >found
expect_rows "1 0 5 5 -1" "2 0 10 5 -1"
expect_sums one
expect "$(grep -c '"collectives": {}' one/metrics.jsonl)" = 2
expect_no_out 'rank +host'

it "writes one line for each rank and epoch, once"
train --epochs 2 --run two --workers 2
expect_code 0
values two epoch rank step steps >found
expect_rows "1 0 5 5" "1 1 5 5" "2 0 10 5" "2 1 10 5"
expect_sums two
expect "$(values two host | sort -u | wc -l)" = 1

it "counts calls and bytes of the steps alone"
train --epochs 1 --run sums --workers 2 --sync allreduce --check-every 1
expect_code 0
tensors=$(sed -n 's/.* \([0-9]*\) buckets.*/\1/p' out)
grep '"kind": "rank"' sums/metrics.jsonl | sed 's/.*"collectives": //' >found
row='{"allreduce": {"calls": '$((5 * tensors))', "bytes": [0-9]*}, "allgather": {"calls": 5, "bytes": [0-9]*}}}'
expect "$(grep -cx "$row" found)" = 2

it "writes lines at the end of a run within an epoch"
train --steps 7 --run within --workers 3
expect_code 0
values within epoch rank step steps >found
expect_rows "1 0 5 5" "1 1 5 5" "1 2 5 5" "2 0 7 2" "2 1 7 2" "2 2 7 2"
expect_sums within

for sync in gather server local; do
    it "measures all ranks with --sync $sync"
    train --epochs 2 --run "$sync" --workers 3 --sync $sync
    expect_code 0
    values $sync epoch rank steps >found
    expect_rows "1 0 5" "1 1 5" "1 2 5" "2 0 5" "2 1 5" "2 2 5"
    expect_sums $sync
done

for sync in server async cutoff; do
    it "measures workers and servers with --sync $sync --servers 1"
    train --epochs 2 --run "served-$sync" --workers 3 --sync $sync --servers 1
    expect_code 0
    values "served-$sync" epoch rank >found
    expect_rows "1 0" "1 1" "1 2" "2 0" "2 1" "2 2"
    expect_sums "served-$sync"
    train --steps 7 --run "within-$sync" --workers 3 --sync $sync --servers 1
    expect_code 0
    values "within-$sync" epoch rank step >found
    expect_rows "1 0 5" "1 1 5" "1 2 5" "2 0 7" "2 1 7" "2 2 7"
    expect "$(grep '"rank": 2' "served-$sync/metrics.jsonl" | grep -c '"receive": {"calls": [1-9]')" = 2
done

# --- resuming ---------------------------------------------------------------------------------------------

it "has every step in one line of each rank, stopped and resumed within an epoch, and adds up its jobs"
begin 2 --data synthetic:1x14x14:10:36000 --batch 36 --epochs 1000 --run stopped
within 60 grep -q '"kind": "step"' stopped/metrics.jsonl || miss "no step is done"
kill -USR1 "$parent"
end
expect_code 75
step=$(sed -n 's/^Stopped by .* after step \([0-9]*\) of.*/\1/p' out)
expect "$(values stopped step rank | sort -u | wc -l)" = "$(values stopped step | wc -l)"
lockstep train --resume --run stopped --workers 2 --steps $((step + 30))
expect_code 0
values stopped step rank steps >found
for rank in 0 1; do
    expect "$(awk -v rank=$rank '$2 == rank { n += $3 } END { print n }' found)" = $((step + 30))
done
expect "$(sort -u found | wc -l)" = "$(wc -l <found)"
expect_sums stopped
expect_out "^In all: $((step + 30)) steps by 2 jobs in [0-9:]+\.$"
expect "$(json jobs <"stopped/checkpoints/step-$(printf %08d $((step + 30)))/state.json")" = 2

it "drops the lines after the checkpoint of a run that was killed, and writes them once"
train --steps 10 --run killed --workers 2 --checkpoint-every 4 --keep 9 --per-rank
expect_code 0
rm -r killed/checkpoints/step-00000010 killed/checkpoints/step-00000008 killed/checkpoints/step-00000005 \
    killed/checkpoints/best 2>/dev/null
expect_file killed/checkpoints/step-00000004/state.json
lockstep train --resume --run killed --workers 2
expect_code 0
values killed epoch rank step >found
expect_rows "1 0 5" "1 1 5" "2 0 10" "2 1 10"
for rank in 0 1; do
    json_steps=$(sed -E 's/.*"step": ([0-9]+).*/\1/' killed/ranks/rank-$rank.jsonl | tr '\n' ' ')
    expect "$json_steps" = "1 2 3 4 5 6 7 8 9 10 "
done

it "goes on from a state.json that knows no jobs"
train --steps 6 --run old
# The first versions had no checksum of state.json itself, and none of the files that came later.
sed -i -E '/^  "(best_top5|best_top5_step|jobs|seconds)":/d; /"wait_seconds"/d; /"(state.json|config.yaml|data.json)": /d
    s/("state.safetensors": "[0-9a-f]*"),/\1/' old/checkpoints/step-00000006/state.json
lockstep train --resume --run old --steps 8
expect_code 0
expect_out '^In all: 8 steps by 2 jobs'

# --- slow ranks -------------------------------------------------------------------------------------------

it "names the rank that the others wait for"
begin 3 --data synthetic:1x14x14:10:9000000 --batch 36 --run slow
within 60 grep -q '"kind": "step"' slow/metrics.jsonl || miss "no step is done"
late=$(worker 1)
kill -STOP "$late"
sleep 2 # the others wait for it
kill -CONT "$late"
kill -USR1 "$parent"
end
expect_code 75
values slow rank waited_for >found
expect "$(grep -cx -e '0 1' -e '2 1' found)" = 2
values slow rank late_seconds >found
expect "$(awk '$1 != 1 && $2 > 1 { n++ } END { print n + 0 }' found)" = 2
expect_sums slow
expect_out '^Rank 1 \(.*\) is slow: the other ranks waited for it [0-9.]+ s, [0-9]+% of'
expect_out '^     2 .* 1$'

# --- the end ----------------------------------------------------------------------------------------------

it "ends with the means of its steps, without the first for the seconds"
train --steps 40 --run means --workers 2
expect_code 0
grep '"kind": "step"' means/metrics.jsonl >lines
sed -E 's/.*"samples": ([0-9]*), "loss": ([^,]*), .*"top1": ([^,]*), .*"seconds": ([^,]*), .*/\1 \2 \3 \4/' lines |
    awk '{ n += $1; loss += $1 * $2; top1 += $1 * $3; if (NR > 1) s += $4 }
         END { printf "average loss %.4f, top-1 %.2f%%\n%.6g\n", loss / n, 100 * top1 / n, s / (NR - 1) }' >figures
expect_out "^Steps: 40; $(head -n 1 figures), top-5"
expect "$(sed -n 's/^Steps: .* \([0-9.e-]*\) s per iteration without the first\.$/\1/p' out |
    awk -v of="$(tail -n 1 figures)" '{ d = $1 / of - 1; print (d < 0.001 && d > -0.001) }')" = 1

it "names the best evaluations with their epochs"
lockstep train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:110 --batch 24 --threads 1 \
    --epochs 3 --run best
expect_code 0
grep '"kind": "eval"' best/metrics.jsonl | sed -E 's/.*"epoch": ([0-9]*).*"top1": ([^,]*), "top5": ([^,]*).*/\1 \2 \3/' |
    awk '$2 > a { a = $2; e = $1 } $3 > b { b = $3; f = $1 }
         END { printf "top-1 %.2f%% after step %d .epoch %d.*; best top-5 %.2f%% in epoch %d\n", 100*a, 5*e, e, 100*b, f }' >best.txt
expect_out "^Best evaluation: $(cat best.txt)"

# --- every step -------------------------------------------------------------------------------------------

it "prints loss and seconds of each rank with --per-rank, and writes every step of each"
train --steps 12 --run each --workers 3 --per-rank
expect_code 0
for rank in 0 1 2; do
    expect "$(grep -c '"kind": "step"' each/ranks/rank-$rank.jsonl)" = 12
    sed -E 's/.*"samples": ([0-9]*), "loss": ([^,]*),.*/\1 \2/' each/ranks/rank-$rank.jsonl |
        awk '{ n += $1; loss += $1 * $2 } END { printf "%.4f", loss / n }' >loss
    expect_out "^ +$rank  [^ ]+ +$(cat loss) +[0-9.]+ +[0-9.]+%"
done

it "has the loss of all ranks in the mean of the ranks"
for step in 1 5 12; do
    cat each/ranks/rank-?.jsonl | grep "\"step\": $step," | sed -E 's/.*"samples": ([0-9]*), "loss": ([^,]*),.*/\1 \2/' |
        awk '{ n += $1; loss += $1 * $2 } END { printf "%.5f", loss / n }' >of-ranks
    grep '"kind": "step"' each/metrics.jsonl | grep "\"step\": $step," | json loss | awk '{ printf "%.5f", $1 }' >of-all
    expect_same of-ranks of-all
done

it "has no loss and no steps of a server, and resumes where a file is missing"
train --steps 5 --run served --workers 3 --sync async --per-rank
expect_code 0
expect_out '^     2  [^ ]+ +- +[0-9.]+ '
expect "$(echo served/ranks/*)" = "served/ranks/rank-0.jsonl served/ranks/rank-1.jsonl"
rm served/ranks/rank-0.jsonl
echo '{"kind": "step", "step": 6, "time": "x"}' >>served/ranks/rank-1.jsonl # after the checkpoint
lockstep train --resume --run served --workers 3 --steps 8
expect_code 0
expect "$(sed -E 's/.*"step": ([0-9]+).*/\1/' served/ranks/rank-1.jsonl | sort -n | uniq -d)" = ""
expect "$(grep -c '"time": "x"' served/ranks/rank-1.jsonl)" = 0
expect_file served/ranks/rank-0.jsonl

it "writes no folder for ranks unless asked"
expect_no_file two/ranks

it "works for one process, and in a folder with spaces and other letters"
train --steps 3 --run "a run über" --per-rank
expect_code 0
expect "$(wc -l <"a run über/ranks/rank-0.jsonl")" = 3
finish
