#!/bin/sh
# lockstep watch: frames of runs in every state, on terminals of several sizes. A terminal is one that script(1) makes.
. tests/cli/harness.sh
. "$source_root/tests/hosts/wait.sh"

options="--model mlp --data synthetic:1x14x14:10:400 --batch 20 --threads 1"
# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}
# The longest line of the last output, in characters.
longest() {
    LC_ALL=C.UTF-8 wc -L <out
}
only_ascii() {
    [ -z "$(LC_ALL=C tr -d '\n -~' <out)" ] || miss "standard output has more than ASCII"
}
# on_terminal COLUMNS ROWS COMMAND: runs a shell command on a terminal of that size, with keys from the pipe `keys`; what it
# shows is in `shown`.
on_terminal() {
    rm -f keys shown
    mkfifo keys
    script -qefc "stty cols $1 rows $2; $3" shown <keys >/dev/null 2>&1 &
    child=$!
    exec 4>keys
}
press() {
    printf '%b' "$1" >&4
}
trap '' PIPE # keys for a program that has ended
leave_terminal() {
    exec 4>&-
    wait "$child"
}

it "asks for a run"
lockstep watch
expect_code 2
expect_error 'lockstep watch RUN'
lockstep watch nowhere
expect_code 3
expect_error 'nowhere: no such run'
mkdir empty
lockstep watch empty
expect_code 3
expect_error 'empty: neither a run directory nor a folder with runs'

it "shows a finished run: state, progress, curves, speed, shares"
train --epochs 3 --run "a rün"
lockstep watch "a rün"
expect_code 0
only_ascii
expect_out '^a r\?+n  finished$'
expect_out 'model mlp  data synthetic:1x14x14:10:400'
expect_out '100.0%  step 60/60  epoch 3$'
last=$(grep '"eval"' "a rün/metrics.jsonl" | tail -n 1 | json loss)
expect_out "loss  train [0-9.e-]+  o eval $(printf '%.4g' "$last")\$"
best=$(grep '"eval"' "a rün/metrics.jsonl" | sed 's/.*"top1": \([0-9.]*\).*/\1/' | sort -n | tail -n 1)
expect_out "best $(awk "BEGIN { printf \"%.2f\", 100 * (1 - $best) }")% at step"
expect_out '^speed [0-9]+ samples/s  a step [0-9.]+ ms  rate '
expect_out '^time  input [0-9]+%  compute [0-9]+%  wait [0-9]+%  update [0-9]+%$'
expect_out '^ +[0-9.]+\|.*\*'
expect "$(grep -c '[+]0 .*step 60$' out)" = 2
expect_no_out '\[[0-9;]*m'

it "uses the characters and the width that there are"
LC_ALL=C.UTF-8 lockstep watch "a rün"
expect_out '^a rün  finished$'
expect_out '⠀|⠤|⠒|⠉|⣀|⡀|⠁'
expect "$(longest)" -le 80
for columns in 40 20 160 1; do
    COLUMNS=$columns lockstep watch "a rün"
    expect_code 0
    only_ascii
    expect "$(longest)" -le $((columns < 20 ? 20 : columns))
    expect_out '^time'
done
COLUMNS=nonsense LINES=12 lockstep watch "a rün"
expect_code 0
expect "$(wc -l <out)" -le 12

it "plots where the values are"
mkdir plotted
for step in $(seq 1 100); do
    echo "{\"kind\": \"step\", \"step\": $step, \"epoch\": 1, \"samples\": 10, \"loss\": $((step < 51 ? 4 : 2)), \"top1\": 0.5, \"seconds\": 1, \"time\": \"2026-01-01T00:00:00.000Z\"}"
done >plotted/metrics.jsonl
lockstep watch plotted
expect_code 0
expect_out '^ +4\| \*{35}$'
expect_out '^ +2\| {36}\*{35}$'
expect_out '^speed 10 samples/s  a step 1 s$'
expect_out '^plotted  in an unknown state: no log.txt$'

it "shows ranks where metrics.jsonl has them, and passes over lines that it does not know"
cat >>plotted/metrics.jsonl <<'END'
{"kind":"rank","step":100,"epoch":1,"rank":0,"host":"node1","steps":100,"seconds":10,"input_seconds":1,"compute_seconds":5,"exposed_seconds":1.5,"late_seconds":2,"waited_for":1,"waited_for_seconds":1.9}
{"kind":"rank","step":100,"epoch":1,"rank":1,"host":"node2","steps":100,"seconds":10,"input_seconds":0,"compute_seconds":9,"exposed_seconds":0.5,"late_seconds":0,"waited_for":-1,"waited_for_seconds":0}
{"kind":"weather","step":100,"rain":true}
END
lockstep watch plotted
expect_out '^ +0 +50\.0% +10\.0% +15\.0% +20\.0%  rank 1, 1\.9 s  node1$'
expect_out '^ +1 +90\.0% +0\.0% +5\.0% +0\.0%  node2$'
expect_no_out 'cannot be read'

it "shows a run with a damaged metrics.jsonl, and counts the damage"
cp -r "a rün" damaged
good=$(wc -l <damaged/metrics.jsonl)
printf 'nonsense\n\377\376\n{"kind": "step", "step": 61, "loss": null}\n{"kind": "ste' >>damaged/metrics.jsonl
lockstep watch damaged
expect_code 0
expect_out "metrics.jsonl: 2 of [0-9]+ lines cannot be read, the first is line $((good + 1))"
expect_out 'loss  not finite: diverged'
: >damaged/metrics.jsonl
lockstep watch damaged
expect_code 0
expect_out 'no step is recorded yet'
rm damaged/metrics.jsonl damaged/log.txt
lockstep watch damaged
expect_code 0
expect_out 'not there yet'

it "tells running, stopped, killed and diverged runs apart"
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --run held
within 60 test -s held/metrics.jsonl || miss "the run does not start"
lockstep watch held
expect_code 0
expect_out "^held  running on host [^ ]+ \(pid $child\)$"
expect_out 'step [0-9]+/3000  epoch [0-9]+  left [0-9]'
kill -9 "$child"
let_go
expect "$code" = 137
lockstep watch held
expect_out '^held  killed; its process has ended$'
expect_no_out 'left'
# shellcheck disable=SC2086
hold train $options --steps 3000 --log-every 1 --run stopped
within 60 test -s stopped/metrics.jsonl || miss "the run does not start"
kill -TERM "$child"
let_go
expect_code 75
lockstep watch stopped
expect_out '^stopped  stopped after saving \(exit code 75\)$'
train --steps 40 --lr 1e30 --run diverged
expect_code 5
lockstep watch diverged
expect_code 0
expect_out '^diverged  training diverged \(exit code 5\)$'
expect_out 'error: step [0-9]+: the loss is'

it "judges a run of another machine by the age of its lock"
cp -r "a rün" remote
sed 's/^boot: .*/boot: another/; s/^host: .*/host: far/' held/lock >remote/lock
lockstep watch remote
expect_out '^remote  running on host far \('
touch -d '10 minutes ago' remote/lock
lockstep watch remote
expect_out '^remote  no sign of life for 6[0-9][0-9] s$'

it "shows several runs in a table with one chart"
lockstep watch "a rün" held diverged nowhere
expect_code 3
lockstep watch "a rün" held diverged
expect_code 0
only_ascii
expect_out '^3 runs, 0 running$'
expect_out '^a a r\?+n +finished 100% '
expect_out '^b held +killed '
expect_out '^c diverged +diverged '
expect_out '\|.*[abc]'
expect "$(longest)" -le 80
COLUMNS=40 lockstep watch "a rün" held diverged
expect "$(longest)" -le 40
mkdir -p sweep/trials
cp -r diverged sweep/trials/0001
cp -r held sweep/trials/0002
lockstep watch sweep
expect_out '^a sweep/trials/0001 +diverged'
lockstep watch .
expect_code 0
expect_out '^[0-9]+ runs, 0 running$'

if ! command -v script >/dev/null; then
    it "follows a run on a terminal"
    skip "script is not installed"
    finish
fi
export TERM=xterm

it "follows a run on a terminal until q, and leaves the terminal as it was"
mkdir growing
head -n 5 plotted/metrics.jsonl >growing/metrics.jsonl
on_terminal 50 20 "stty -g >before; LC_ALL=C.UTF-8 '$program' watch growing; echo \$? >ended; stty -g >after"
within 30 grep -q 'step 5' shown || miss "the first frame is missing"
sed -n 6,20p plotted/metrics.jsonl >>growing/metrics.jsonl
within 30 grep -q 'step 20' shown || miss "new lines are not shown"
head -n 7 plotted/metrics.jsonl >rewritten && mv rewritten growing/metrics.jsonl # as --resume does
within 30 grep -q 'step 7' shown || miss "a file that was replaced is not read"
press x
press q
leave_terminal
expect "$(cat ended)" = 0
expect_same before after
LC_ALL=C grep -q "$(printf '\033\\[?1049h')" shown || miss "no screen of its own"
LC_ALL=C grep -q "$(printf '\033\\[?25h\033\\[?1049l')" shown || miss "the screen is not given back"
LC_ALL=C grep -q "$(printf '\033\\[36m')" shown || miss "no colours"

it "ends with Ctrl-C, and leaves colours out when told"
for how in 'NO_COLOR=1' 'NO_COLOR='; do
    flag=$([ "$how" != NO_COLOR= ] || echo --no-color)
    on_terminal 80 24 "stty -g >before; $how '$program' watch $flag growing; echo \$? >ended; stty -g >after"
    within 30 grep -q 'step 7' shown || miss "the first frame is missing"
    press '\0003'
    leave_terminal
    expect "$(cat ended)" = 0
    expect_same before after
    ! LC_ALL=C grep -q "$(printf '\033\\[36m')" shown || miss "colours with $how $flag"
done

it "prints one frame on a terminal with --once"
on_terminal 60 20 "'$program' watch --once growing; echo \$? >ended"
leave_terminal
expect "$(cat ended)" = 0
grep -q 'step 7' shown || miss "no frame"
! LC_ALL=C grep -q "$(printf '\033\\[?1049h')" shown || miss "the screen is taken"

finish
