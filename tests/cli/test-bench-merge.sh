#!/bin/sh
# bench --merge, and the formats of a table: the results are files written by hand, so that every figure is known.
. tests/cli/harness.sh
python=${PYTHON:-python3}

# check TEXT: a condition in Python over r, the rows that the program wrote as JSON, and d, all of it.
check() {
    "$python" - "${2:-out}" "$1" <<'END' 2>>err || miss "not so: $1"
import json, statistics, sys
d = json.load(open(sys.argv[1]))
r = d["results"]
near = lambda a, b: abs(a - b) <= 1e-8 * abs(b)
sys.exit(not eval(sys.argv[2]))
END
}

# result FILE MACHINE MODEL BATCH WORKERS NODES SCALING SPEED...
result() {
    "$python" - "$@" <<'END'
import json, sys
file, machine, model, batch, workers, nodes, scaling, *speeds = sys.argv[1:]
row = {"model": model, "input": "1x28x28", "batch": int(batch), "accumulate": 1, "replicas": int(workers),
       "optimizer": "sgd", "threads": 1, "backend": "onednn", "dtype": "f32", "workers": int(workers), "sync": "overlap",
       "compress": "none", "bucket_mb": 0.0, "nodes": int(nodes), "workers_per_node": int(workers) // int(nodes),
       "scaling": scaling, "machine": machine, "repetitions": [float(s) for s in speeds], "a key of tomorrow": 1}
json.dump({"bench": {"machine": machine, "command": "by hand"}, "results": [row]}, open(file, "w"))
END
}

it "compares node counts that were measured apart"
result n1.json "a, Xeon, 8 cores" lenet 256 2 1 strong 100 110 90 105
result n2.json "a, Xeon, 8 cores" lenet 256 4 2 strong 190 200
result n4.json "b, Xeon, 8 cores" lenet 256 8 4 strong 300
result other.json "a, Xeon, 8 cores" lenet 128 8 4 strong 500
lockstep bench --merge other.json n4.json n1.json n2.json --json
expect_code 0
check '[x["workers"] for x in r] == [8, 2, 4, 8] and [x["batch"] for x in r] == [128, 256, 256, 256]'
check '[x["nodes"] for x in r] == [4, 1, 2, 4] and [x["workers_per_node"] for x in r] == [2, 2, 2, 2]'
check 'all(near(x["median"], statistics.median(x["repetitions"])) for x in r)'
check 'all(near(x["mean"], statistics.mean(x["repetitions"])) for x in r)'
check 'all(near(x["deviation"], statistics.stdev(x["repetitions"])) for x in r if len(x["repetitions"]) > 1)'
check 'all(near(x["variation"] * x["mean"], x["deviation"]) for x in r)'
check 'r[3]["deviation"] == 0 and r[3]["variation"] == 0'
check 'near(r[2]["speedup"], 195 / 102.5) and near(r[2]["efficiency"], 195 / 102.5 / 2)'
check 'near(r[3]["speedup"], 300 / 102.5) and near(r[3]["efficiency"], 300 / 102.5 / 4)'
check 'r[0]["speedup"] == 1 and r[1]["speedup"] == 1'
check '[x["best"] for x in r] == [True, False, False, False]'
check '[x["machine"][0] for x in r] == ["a", "a", "a", "b"]'
check '[s["file"] for s in d["bench"]["sources"]] == ["other.json", "n4.json", "n1.json", "n2.json"]'

it "prints it for people, with the machine of each row"
lockstep bench --merge n1.json n2.json n4.json
expect_code 0
expect_out '^model lenet, input 1x28x28, batch 256, .*, strong scaling$'
expect_out '^machine a, Xeon, 8 cores$'
expect_out '^machine b, Xeon, 8 cores$'
expect_out '^workers +nodes +per node +machine +#1 +#2 +#3 +#4 +median +mean +sd +CV +speed-up +efficiency +note$'
expect_out '^ +2 +1 +2 +a +100.0 +110.0 +90.0 +105.0 +102.5 +101.2 +8.5 +8.4% +1.00 +100%$'
expect_out '^ +8 +4 +2 +b +300.0 +300.0 +300.0 +0.0 +0.0% +2.93 +73% +best$'

it "compares with the fewest workers of the same machine where there are several"
result b1.json "b, Xeon, 8 cores" lenet 256 2 1 strong 150
lockstep bench --merge n1.json b1.json n4.json --json
check 'near(r[2]["speedup"], 2) and near(r[2]["efficiency"], 0.5)'

it "compares batches of one worker where the batch grows"
result w1.json m lenet 64 1 1 weak 10
result w4.json m lenet 256 4 1 weak 30
result w8.json m lenet 256 8 1 weak 40
lockstep bench --merge w1.json w4.json w8.json --json
check 'near(r[1]["speedup"], 3) and near(r[1]["efficiency"], 0.75) and r[2]["speedup"] == 1'

it "adds the repetitions of the same configuration and machine, and says so"
result again.json "a, Xeon, 8 cores" lenet 256 2 1 strong 95 96
lockstep bench --merge n1.json again.json --json
expect_code 0
expect_error 'again.json: 1 of 1 results are of a configuration and machine that came before; their repetitions are added'
check 'len(r) == 1 and r[0]["repetitions"] == [100, 110, 90, 105, 95, 96]'

it "merges what was merged"
lockstep bench --merge n1.json n2.json -o merged.json
expect_code 0
expect_out 'The results are in merged.json'
lockstep bench --merge merged.json n4.json --json
check '[x["workers"] for x in r] == [2, 4, 8] and near(r[2]["efficiency"], 300 / 102.5 / 4)'

it "takes the results of version 0.2"
echo '{"kind":"bench","model":"lenet","batch":64,"input":[1,28,28],"workers":1,"replicas":1,"threads":2,"dtype":"f32",
"backend":"onednn","step_ms":[1],"samples_per_s_repeats":[50,70],"samples_per_s":60}' >old.json
echo '{"kind":"scale","model":"lenet","scaling":"weak","threads":2,"entries":[
{"workers":1,"batch":8,"samples_per_s_repeats":[10]},{"workers":2,"batch":16,"samples_per_s_repeats":[15]}]}' >scale.json
lockstep bench --merge old.json scale.json --json
expect_code 0
check 'r[0]["median"] == 60 and r[0]["input"] == "1x28x28" and r[0]["machine"] == "unknown machine"'
check 'near(r[2]["speedup"], 1.5) and near(r[2]["efficiency"], 0.75)'

it "keeps what failed"
echo '{"bench":{},"results":[{"model":"a","workers":1,"batch":"max","repetitions":[],"error":"no memory"},
{"model":"b","workers":1,"batch":2,"repetitions":[5]}]}' >failed.json
lockstep bench --merge failed.json
expect_code 0
expect_out '^a +max .* failed: no memory$'

bad() {
    it "refuses $1"
    printf '%s' "$2" >bad.json
    lockstep bench --merge n1.json bad.json -o never.json
    expect_code 3
    expect_error "bad.json$3"
    expect_no_file never.json
}
bad "an empty file" '' ':1: expected the JSON output of `lockstep bench`'
bad "half a file" "$(printf '{"bench":{},\n"results":[{"mo')" ':2: expected the JSON output'
bad "another object" '{"kind":"plan"}' ': expected the JSON output of `lockstep bench`, .*found an object without one'
bad "a list" '[1]' ': expected .* found an array'
bad "sums" '{"kind":"collective","sizes":[]}' ': expected .* found an object without one'
bad "a row that is none" '{"results":[1]}' ': results\[0\]: expected an object, found a number'
bad "a row without workers" '{"results":[{"model":"a","repetitions":[1]}]}' ': results\[0\].workers: expected a number of 1 or more, found nothing'
bad "a batch that is no number" '{"results":[{"model":"a","workers":1,"batch":[1],"repetitions":[1]}]}' ': results\[0\].batch: expected a number, found an array'
bad "a speed that is no number" '{"results":[{"model":"a","workers":1,"repetitions":[3,"x"]}]}' ': results\[0\].repetitions\[1\]: expected a number above 0, found a string'
bad "a speed of nothing" '{"results":[{"model":"a","workers":1,"repetitions":[0]}]}' ': results\[0\].repetitions\[0\]: expected a number above 0'
bad "no speeds" '{"results":[{"model":"a","workers":1,"repetitions":[]}]}' ': results\[0\].repetitions: expected at least one number, or an error'
bad "not-a-number" '{"results":[{"model":"a","workers":1,"repetitions":[NaN]}]}' ':1: expected the JSON output'

it "refuses a file that is missing, no file, the same twice"
lockstep bench --merge n1.json gone.json
expect_code 3
expect_error 'gone.json'
lockstep bench --merge
expect_code 2
expect_error 'needs the files'
lockstep bench --merge n1.json n1.json
expect_code 2
expect_error "'n1.json' is given twice"

it "refuses to write where it cannot"
lockstep bench --merge n1.json -o gone/x.csv
expect_code 2
expect_error 'gone/x.csv: the file cannot be written'
mkdir folder.csv
lockstep bench --merge n1.json -o folder.csv
expect_code 2
expect_error 'it is a folder'

# --- formats ---
odd='a|b_{c}$%&#~^\"<d>, `e` *f* [g]  -- ü'
result odd.json "host, odd" "$odd" 8 1 1 strong 1.25 2.5
result odder.json "host, odd" "plain" 8 1 1 strong 3

it "writes CSV that a reader reads"
lockstep bench --merge odd.json odder.json failed.json -o "a table.csv"
expect_code 0
"$python" - "$odd" <<'END' 2>>err || miss "Python's csv reads something else"
import csv, sys
raw = open("a table.csv", newline="", encoding="utf-8").read()
assert raw.endswith("\r\n") and raw.count("\r\n") == 5 and raw.count("\n") == 5, raw
rows = list(csv.DictReader(raw.splitlines()))
assert [r["model"] for r in rows] == [sys.argv[1], "plain", "a", "b"], rows
assert all(None not in r and None not in r.values() for r in rows)
assert rows[0]["machine"] == "host, odd" and float(rows[0]["median"]) == 1.875 and rows[0]["best"] == "true"
assert [rows[0]["repetition_1"], rows[0]["repetition_2"], rows[1]["repetition_2"]] == ["1.25", "2.5", ""]
assert rows[2]["error"] == "no memory" and rows[2]["median"] == "" and rows[2]["batch"] == "max"
END

it "writes Markdown whose cells stay cells"
lockstep bench --merge odd.json odder.json --format markdown
expect_code 0
"$python" - "$odd" <<'END' 2>>err || miss "the Markdown is not a table of these cells"
import re, sys
lines = [line for line in open("out", encoding="utf-8").read().split("\n") if line.startswith("|")]
cells = [[re.sub(r"\\(.)", r"\1", c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
assert len({len(row) for row in cells}) == 1 and len(cells) == 4, cells
assert cells[0][0] == "model" and set("".join(cells[1])) == set("-: ") - {" "}, cells
assert " ".join(cells[2][0].split()) == " ".join(sys.argv[1].split()), cells
END

it "writes LaTeX with nothing left to interpret"
lockstep bench --merge odd.json odder.json failed.json -o t.tex
expect_code 0
"$python" - "$odd" <<'END' 2>>err || miss "the LaTeX is not a table of these cells"
import re, sys
lines = [l for l in open("t.tex", encoding="utf-8").read().split("\n") if l and not l.startswith("%")]
assert lines[0].startswith("\\begin{tabular}{") and lines[-1] == "\\end{tabular}", lines
columns = len(re.match(r"\\begin\{tabular\}\{([lr]+)\}$", lines[0]).group(1))
names = {"textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<", "textgreater": ">",
         "textbar": "|", "char34": '"'}
rows = []
for line in lines[1:-1]:
    if line == "\\hline":
        continue
    assert line.endswith(" \\\\"), line
    line = line[:-3]
    assert line.replace("\\{", "").replace("\\}", "").count("{") == line.replace("\\{", "").replace("\\}", "").count("}")
    cells = re.split(r"(?<!\\)&", line)
    assert len(cells) == columns, line
    assert not re.search(r"(?<!\\)[$#_%~^]", line), line
    plain = [re.sub(r"\\(text\w+|char34)\{\}", lambda m: names[m.group(1)], c) for c in cells]
    rows.append([re.sub(r"\\([{}$&#_%])", r"\1", re.sub(r"(?<!\\)\{\}", "", c)).strip() for c in plain])
assert rows[1][0].split() == sys.argv[1].split(), rows
END

it "writes LaTeX that LaTeX typesets"
if command -v pdflatex >/dev/null; then
    lockstep bench --merge n1.json n2.json n4.json -o scaling.tex
    lockstep bench --merge n1.json -o single.tex
    result umlaut.json "Köln, 50 % & more #1" "Größe_ß{}é.yaml" 64 1 1 weak 1 2
    lockstep bench --merge umlaut.json -o umlaut.tex
    { printf '%s\n' '\documentclass{article}\begin{document}' && cat t.tex scaling.tex single.tex umlaut.tex &&
        printf '%s\n' '\end{document}'; } >whole.tex
    pdflatex -interaction=batchmode -halt-on-error -draftmode whole.tex >/dev/null || miss "$(grep -A3 '^!' whole.log)"
    expect "$(grep -c 'Missing character' whole.log)" = 0
else
    skip "pdflatex is not installed (Debian: texlive-latex-base, 39 MB)"
fi

it "takes the format from --format, else from the file's name"
lockstep bench --merge n1.json --format csv -o x.json --quiet
expect_code 0
expect "$(wc -c <out)" = 0
expect "$(head -c 5 x.json)" = model
lockstep bench --merge n1.json -o x.txt
expect "$(head -c 5 x.txt)" = model
lockstep bench --merge n1.json -o - --format json
check 'len(r) == 1'
lockstep bench --merge n1.json --format yaml
expect_code 2
expect_error "format: 'yaml' is not one of text, csv, json, markdown, latex"

it "shows every column and repetition where asked to"
# shellcheck disable=SC2046
result many.json a lenet 256 2 1 strong $(seq 1 40)
lockstep bench --merge many.json
expect_no_out '#1'
lockstep bench --merge many.json --verbose
expect_out '^model +input +batch .* #40 +median'

finish
