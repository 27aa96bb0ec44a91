#!/bin/sh
# lockstep report: pages about real runs, and about hand-made ones whose limits are known.
. tests/cli/harness.sh
. "$source_root/tests/cli/workers.sh"
. "$source_root/tests/cli/photos.sh"
check=$source_root/tests/cli/report_check.py
: "${PYTHON:=python3}"

# page FILE RUN...: the page is well-formed, needs nothing from outside, and has the figures of the runs.
page() {
    if "$PYTHON" -c 'import html.parser' 2>/dev/null; then
        "$PYTHON" "$check" "$@" >said 2>&1 || miss "$(cat said)"
    fi
}

# The first finding of a page.
first() {
    sed -n '/<ul class="findings">/,/<.ul>/p' "$1" | grep -o '<strong>[^<]*' | head -n 1 | sed 's/<strong>//'
}

says() {
    grep -Fq -e "$2" "$1" || miss "$1 does not say: $2; its first finding is: $(first "$1")"
}

says_first() {
    case $(first "$1") in
    *"$2"*) ;;
    *) miss "the first finding is not '$2' but: $(first "$1")" ;;
    esac
}

# step N SECONDS INPUT COMPUTE WAIT UPDATE: a line of a step of 64 samples; the rest are shares.
step() {
    printf '{"kind": "step", "step": %d, "epoch": 1, "samples": 64, "loss": %s, "lr": 0.1, "top1": 0.5, "top5": 0.9, ' "$1" "${7:-1.5}"
    printf '"samples_per_s": %s, "seconds": %s, "time": "2026-03-01T12:00:%02d.000Z", ' "$(awk "BEGIN { print 64 / $2 }")" "$2" "$(($1 % 60))"
    printf '"input_share": %s, "compute_share": %s, "wait_share": %s, "update_share": %s}\n' "$3" "$4" "$5" "$6"
}

# rank N INPUT COMPUTE EXPOSED HIDDEN LATE FOR SECONDS BYTES: the line of a rank over 10 steps.
rank() {
    printf '{"kind": "rank", "step": 10, "epoch": 1, "time": "2026-03-01T12:01:00.000Z", "rank": %d, "host": "node<%d>", "steps": 10, ' "$1" "$1"
    printf '"seconds": %s, "input_seconds": %s, "compute_seconds": %s, ' "$(awk "BEGIN { print $2 + $3 + $4 + $6 + 0.1 }")" "$2" "$3"
    printf '"exposed_seconds": %s, "hidden_seconds": %s, "late_seconds": %s, "waited_for": %d, "waited_for_seconds": %s, ' "$4" "$5" "$6" "$7" "$8"
    printf '"update_seconds": 0.1, "collectives": {"allreduce": {"calls": 10, "bytes": %s}}}\n' "$9"
}

# made NAME: a run directory for metrics from standard input.
made() {
    mkdir -p "$1"
    cat >"$1/metrics.jsonl"
    printf 'model: resnet18\nbatch: 256\nlr: 0.1\nloader-threads: 0\n' >"$1/config.yaml"
    {
        echo 'Started 2026-03-01 12:00:00 +0000, on node0, by lockstep 0.3.0'
        echo 'Training 11689512 parameters in 62 parameter tensors.'
        echo '  model      resnet18, input 3x64x64, 200 classes, 148.1 million multiply-adds a sample'
        echo '  processes  4 with 8 threads each, backend onednn, pid 7'
        echo 'Ended 2026-03-01 12:01:00 +0000 with exit code 0: done'
    } >"$1/log.txt"
}

steps() {
    for i in 1 2 3 4 5 6 7 8 9 10; do step $i "$@"; done
}

# --- real runs -----------------------------------------------------------------------------------------------------

it "writes a page about a run, with its figures"
lockstep train --model lenet --epochs 3 --epoch-size 640 --batch 32 --threads 1 --quiet --run "m<1> & \"é\""
lockstep report "m<1> & \"é\""
expect_code 0
expect_out 'Report: report.html \([0-9.]+ kB\)'
expect_file report.html
page report.html "m<1> & \"é\""
says report.html 'm&lt;1&gt; &amp; &quot;é&quot;'
says report.html 'Confusion matrix'

it "replaces its own page, and no other"
lockstep report "m<1> & \"é\""
expect_code 0
echo '<html>mine</html>' >report.html
lockstep report "m<1> & \"é\""
expect_code 2
expect_error 'report\.html.*-o FILE'
grep -q mine report.html || miss "the page of the user is gone"

it "writes to a file, to standard output, and nothing half"
lockstep report "m<1> & \"é\"" -o a.html
expect_code 0
expect_file a.html
lockstep report -o - "m<1> & \"é\""
expect_code 0
grep -v '<footer>' out >b.html
grep -v '<footer>' a.html >c.html
expect_same b.html c.html
lockstep report "m<1> & \"é\"" -o missing/folder/a.html
expect_code 1
mkdir shut
lockstep report "m<1> & \"é\"" -o shut
expect_code 1
expect "$(find . -name '*.tmp-*' | wc -l)" = 0

it "compares runs, and shows each by itself"
lockstep train --model mlp --epochs 2 --epoch-size 640 --batch 64 --threads 1 --quiet --run m2
lockstep report "m<1> & \"é\"" m2 -o two.html
expect_code 0
page two.html "m<1> & \"é\"" m2
says two.html 'each run by itself'
says two.html 'class="chooser"'

it "names a batch that is too small"
lockstep train --model lenet --batch 1 --lr 0.001 --steps 60 --threads 1 --no-evaluate --quiet --run tiny
lockstep report tiny -o tiny.html
expect_code 0
says_first tiny.html 'The batch is too small: a step works on 1 sample.'
says tiny.html 'Raise --batch to'

it "names input that is too slow"
mkdir -p pictures/train/ash pictures/train/oak
photo 3 1 900 >pictures/train/ash/1.ppm
ln pictures/train/ash/1.ppm pictures/train/oak/1.ppm
for i in $(seq 2 120); do
    ln pictures/train/ash/1.ppm "pictures/train/ash/$i.ppm"
    ln pictures/train/ash/1.ppm "pictures/train/oak/$i.ppm"
done
lockstep train --model "$source_root/tests/cli/small.yaml" --data pictures --input 1x14x14 --batch 8 --epochs 1 --threads 1 \
    --loader-threads 1 --no-evaluate --quiet --run starved
expect_code 0
lockstep report starved -o starved.html
says_first starved.html 'Input limits this run'
says starved.html 'Leave out --loader-threads 1'

it "shows a run that is still running"
hold train --model "$source_root/tests/cli/small.yaml" --data synthetic:1x14x14:10:900 --batch 36 --epochs 2000 --threads 1 \
    --no-evaluate --run live --log-every 1
within 60 grep -q '"kind": "step"' live/metrics.jsonl || miss "the run does not begin"
"$program" report live -o live.html >said 2>&1
code_of_report=$?
kill -USR1 "$child"
let_go
expect $code_of_report = 0
says live.html 'still running'
lockstep report live -o live.html
says live.html 'stopped after saving'

it "names a worker that is stopped again and again"
begin 2 --data synthetic:1x14x14:10:900 --batch 36 --epochs 100000 --run slow
passed() {
    expr "$(wc -l <slow/metrics.jsonl)" '>=' "$1" >/dev/null
}
for round in 1 2 3; do
    kill -STOP "$(worker 1)"
    sleep 1.5 # rank 1 is late, by more than a busy machine makes any rank
    kill -CONT "$(worker 1)"
    within 60 passed $((round * 3)) || miss "the run does not go on"
done
kill -USR1 "$parent"
end
lockstep report slow -o slow.html
expect_code 0
says_first slow.html 'A late rank limits this run'
says slow.html 'for rank 1'
page slow.html slow

# --- hand-made runs ------------------------------------------------------------------------------------------------

it "names a slow rank, and why it is slow"
{
    steps 0.355 0.01 0.56 0.42 0.01
    for r in 0 1 3; do rank $r 0.04 2 0.08 0.5 1.4 2 1.38 468e6; done
    rank 2 0.04 3.4 0.08 0.5 0.01 0 0.01 468e6
} | made late
lockstep report late -o late.html
expect_code 0
says_first late.html 'A late rank limits this run: the others wait 38 % of their time for rank 2 (node&lt;2&gt;).'
says late.html 'It computes 340 ms a step, the others 200 ms: 1.70 times as long.'
page late.html late

it "names a rank that waits for its input"
{
    steps 0.4 0.01 0.5 0.48 0.01
    for r in 0 2 3; do rank $r 0.04 2 0.08 0.5 1.9 1 1.88 468e6; done
    rank 1 1.96 2 0.08 0.5 0.01 0 0.01 468e6
} | made late-input
lockstep report late-input -o late-input.html
says_first late-input.html 'for rank 1'
says late-input.html 'It waits 196 ms a step for its input, the others 4 ms.'

it "names a slow link"
{
    steps 1.1 0.01 0.19 0.79 0.01
    for r in 0 1 2 3; do rank $r 0.04 2 9 2 0.02 1 0.01 468e6; done
} | made link
lockstep report link -o link.html
says_first link.html 'A slow link limits this run: it waits 81 % of its time for communication.'
says link.html 'Gradients travel at 42.5 MB/s, 1.1 s a collective'

it "names a batch that does not hide communication"
{
    steps 0.0117 0.01 0.34 0.55 0.1
    for r in 0 1 2 3; do rank $r 0.04 0.4 0.6 0.1 0.02 1 0.01 4.68e9; done
} | made small
lockstep report small -o small.html
says_first small.html 'The batch is too small: 16 samples a worker do not hide communication'

it "names communication that the strategy does not hide, and leaves out ranks that only serve"
{
    steps 0.33 0.01 0.6 0.37 0.01
    for r in 0 1 2; do rank $r 0.04 2 1.2 0 0.02 -1 0 468e7; done
    rank 3 0 0.001 3.3 0 0 -1 0 468e7
} | made served
echo 'sync: server' >>served/config.yaml
lockstep report served -o served.html
says_first served.html 'Communication limits this run: it waits 36 % of its time, and --sync server hides none of it.'

it "names idle stages of a pipeline, until it is resumed on another layout"
for run in staged resumed; do
    {
        steps 0.0117 0.01 0.34 0.55 0.1
        for r in 0 1 2 3; do rank $r 0.04 0.4 0.6 0.1 0.02 1 0.01 4.68e9; done
    } | made $run
    {
        echo '  pipeline   4 stages, 4 passes a step: at least 42.9% of the time is idle'
        echo 'Pipeline: idle 61.0% of the time, 42.9% with stages of equal work; stages were busy 40.1%, 39.0%.'
    } >>$run/log.txt
    lockstep report $run -o $run.html
done
says_first staged.html 'Idle stages limit this run: they wait'
says staged.html 'Pipeline: idle 61.0% of the time, 42.9% with stages of equal work'
echo 'Resumed 2026-03-01 12:02:00 +0000, on node0, by lockstep 0.3.0' >>resumed/log.txt
lockstep report resumed -o resumed.html
says_first resumed.html 'The batch is too small'

it "does not blame a rank where all are late in turn"
{
    steps 0.3 0.01 0.66 0.32 0.01
    for r in 0 1 2 3; do rank $r 0.04 2 0.08 0.5 0.9 $(((r + 1) % 4)) 0.5 468e6; done
} | made turns
lockstep report turns -o turns.html
says_first turns.html 'Uneven ranks limit this run'

it "says of a healthy run that computing limits it"
steps 0.2 0.01 0.96 0.02 0.01 | made healthy
lockstep report healthy -o healthy.html
says_first healthy.html 'Computing limits this run: forward and backward take 96 % of its time.'

it "marks the gap of a diverged run"
{
    steps 0.2 0.01 0.96 0.02 0.01
    for i in 11 12 13; do step $i 0.2 0.01 0.96 0.02 0.01 null; done
} | made lost
lockstep report lost -o lost.html
expect_code 0
says lost.html 'Training diverged: the loss is not finite from step 11 on.'
says lost.html '3 values are not finite, from step 11 to 13'
page lost.html lost

# --- damage --------------------------------------------------------------------------------------------------------

it "shows damaged metrics and says what is missing"
{
    steps 0.2 0.01 0.96 0.02 0.01
    echo 'not json'
    printf '\0\0\377\n'
    echo '{"kind": "weather", "step": 11}'
    echo '{"kind": "step", "step": 12, "epoch": 0, "samples": 64, "loss": 1.25}'
    printf '{"kind": "step", "st'
} | made damaged
lockstep report damaged -o damaged.html
expect_code 0
says damaged.html 'metrics.jsonl is damaged: 2 of 14 lines are left out, line 11 first.'
says damaged.html 'The last line of metrics.jsonl is incomplete'
says damaged.html '1 lines of metrics.jsonl are of a kind that this version does not know'
says damaged.html '1 lines of metrics.jsonl are from an older version'
page damaged.html damaged

it "shows a run of which only the metrics are left, and one without metrics"
mkdir bare
steps 0.2 0.01 0.96 0.02 0.01 >bare/metrics.jsonl
lockstep report bare -o bare.html
expect_code 0
says bare.html 'config.yaml is missing'
says bare.html 'log.txt is missing'
printf '' | made empty
lockstep report empty -o empty.html
expect_code 0
says empty.html 'there is nothing to plot'
rm empty/metrics.jsonl
printf 'a: [1\n\377' >empty/config.yaml
lockstep report empty -o empty.html
expect_code 0
page empty.html

it "refuses what is no run"
rm report.html
lockstep report
expect_code 2
expect_error 'of what'
lockstep report nowhere
expect_code 3
expect_error 'nowhere: no such run directory'
mkdir other
lockstep report other
expect_code 3
expect_error 'other: neither a run nor a sweep'
echo '{"a": 1}' >other.json
lockstep report other.json
expect_code 3
expect_error 'other.json: holds no results'
echo 'text' >other.txt
lockstep report other.txt
expect_code 3
expect_error 'other.txt: not a file of results'
expect_no_file report.html

it "keeps a spike of one step in 200000 in a small page"
mkdir long
awk 'BEGIN { for (i = 1; i <= 200000; i++)
    printf "{\"kind\": \"step\", \"step\": %d, \"epoch\": 1, \"samples\": 8, \"loss\": %s, \"seconds\": 0.01, \"time\": \"2026-03-01T12:00:00.000Z\"}\n",
        i, i == 123456 ? "3.75" : "1.5" }' >long/metrics.jsonl
lockstep report long -o long.html
expect_code 0
says long.html '<td>3.75</td>'
expect "$(wc -c <long.html)" -lt 200000

# --- sweeps and bench ----------------------------------------------------------------------------------------------

it "shows a sweep as a table, a heat map and a histogram"
for batch in 16 64; do
    for lr in 0.1 0.2 1.6; do
        {
            loss=1.5
            [ $lr != 1.6 ] || loss=null
            step 1 0.1 0 1 0 0
            step 2 0.1 0 1 0 0 $loss
            [ $lr = 1.6 ] || echo "{\"kind\": \"eval\", \"step\": 2, \"epoch\": 1, \"loss\": $lr, \"top1\": 0.$batch, \"top5\": 1, \"time\": \"T\"}"
        } | made "sweep/trials/b$batch-lr$lr"
        printf 'batch: %d\nlr: %s\nseed: 1\n' $batch $lr >"sweep/trials/b$batch-lr$lr/config.yaml"
    done
done
touch sweep/sweep.jsonl
lockstep report sweep -o sweep.html
expect_code 0
expect_out 'The best of 6 runs is b64-lr0.1: top-1 error 36.00 %'
page sweep.html
says sweep.html '2 of 6 runs diverged'
says sweep.html 'batch 16, lr 0.1: 0.1<'
says sweep.html 'batch 64, lr 1.6: diverged'
says sweep.html 'Histogram of the areas under the loss curves'

it "shows results of bench with the ideal line and the scatter"
cat >scale.json <<'END'
{"bench": {"machine": "a <machine>"}, "results": [
 {"model": "lenet", "batch": 64, "workers": 1, "repetitions": [90, 100, 110]},
 {"model": "lenet", "batch": 64, "workers": 2, "repetitions": [150, 160, 170]},
 {"model": "lenet", "batch": 64, "workers": 4, "repetitions": [190, 200, 210]}]}
END
lockstep report scale.json -o scale.html
expect_code 0
says scale.html 'lenet scales to 4 workers with 50 % efficiency: 2.00 times as fast.'
says scale.html 'coefficient of variation 10.0 %'
says scale.html 'a &lt;machine&gt;'
page scale.html
lockstep bench --model mlp --data synthetic:1x14x14:10 --batch 16 --steps 3 --repeat 2 --threads 1 --json --profile
cp out profile.json
lockstep report profile.json "m<1> & \"é\"" -o profile.html
expect_code 0
says profile.html 'Time of each layer'
says profile.html 'Roofline'
says profile.html 'dashed: the measured peaks of the machine, '
says profile.html 'of roofline %'
page profile.html
grep -v '"kind": "peaks"' profile.json >older.json
lockstep report older.json -o older.html
expect_code 0
says older.html 'that any node of the step reaches'
page older.html

# --- a browser -----------------------------------------------------------------------------------------------------

it "renders in a browser: light and dark, wide and narrow, without an error"
if "$PYTHON" -c 'import selenium' 2>/dev/null && command -v chromedriver >/dev/null && command -v chromium >/dev/null; then
    "$PYTHON" "$source_root/tests/cli/report_browser.py" two.html late.html sweep.html >said 2>&1 || miss "$(grep -v "^#" said | tail -n 5)"
else
    skip "chromium, chromedriver or selenium is not installed"
fi

finish
