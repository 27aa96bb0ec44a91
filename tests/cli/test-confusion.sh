#!/bin/sh
# The confusion matrix, the figures of each class and the worst mistakes, beside what predict says of every single image.
. tests/cli/harness.sh
. "$source_root/tests/cli/photos.sh"

classes trees/train 4 ash birch 'cedar, old' elm fir oak yew
classes trees/val 3 ash birch 'cedar, old' elm fir oak yew
cp trees/val/ash/1.ppm trees/val/yew/wrong.ppm # a sample that no model gets right
options="--model mlp --input 3x20x20 --augment none --batch 14 --threads 1"

it "writes the matrix at the end of training"
# $options is a list of words.
# shellcheck disable=SC2086
lockstep train $options --data trees --epochs 25 --lr 0.01 --run run
expect_code 0
expect_file run/confusion.json

it "counts as predict does, image by image"
lockstep eval run --eval-data trees --confusion matrix.csv
expect_code 0
lockstep predict --run run --json trees/val/*/*.ppm
expect_code 0
cp out predictions.json
"${PYTHON:-python3}" - <<'END' >found 2>&1 || miss "$(tail -n 3 found)"
import collections, csv, json
want = collections.Counter()
for one in json.load(open("predictions.json")):
    want[one["file"].split("/")[2], one["top"][0]["class"]] += 1
rows = list(csv.reader(open("matrix.csv")))
classes = rows[0][1:]
assert classes == ["ash", "birch", "cedar, old", "elm", "fir", "oak", "yew"], classes
for row in rows[1:]:
    for name, count in zip(classes, row[1:]):
        assert want[row[0], name] == int(count), (row[0], name, count)
assert sum(want.values()) == 22
run = json.load(open("run/confusion.json"))
assert run["counts"] == [[int(n) for n in row[1:]] for row in rows[1:]]
assert run["classes"][6]["samples"] == 4 and run["classes"][6]["recall"] <= 0.75
END

it "keeps the worst mistakes with their pictures"
"${PYTHON:-python3}" - <<'END' >found 2>&1 || miss "$(tail -n 3 found)"
import base64, json
run = json.load(open("run/confusion.json"))
worst = run["mistakes"][0]
assert worst["name"].endswith("val/yew/wrong.ppm"), worst["name"]
assert worst["label"] == 6 and worst["predicted"] != 6 and worst["loss"] > 0
assert base64.b64decode(worst["png"])[:8] == b"\x89PNG\r\n\x1a\n"
losses = [m["loss"] for m in run["mistakes"]]
assert losses == sorted(losses, reverse=True)
END

it "has the same matrix and mistakes with three workers"
lockstep eval run --eval-data trees --confusion one.json
lockstep eval run --eval-data trees --confusion three.json --workers 3
expect_code 0
expect_same one.json three.json

it "prints precision and recall of each class"
lockstep eval run --eval-data trees --per-class
expect_code 0
expect_out '^class +samples +precision +recall'
expect_out '^yew +4 '
lockstep eval run --eval-data trees --per-class --json
expect "$(json samples <out)" = 22
grep -q '"name": "cedar, old", "samples": 3' out || miss "the class is not in the JSON"

it "prints the matrix, and writes the same text"
lockstep eval run --eval-data trees --confusion -
expect_code 0
tail -n 8 out >printed
lockstep eval run --eval-data trees --confusion matrix.txt
expect_code 0
expect_same printed matrix.txt
expect "$(head -n 1 matrix.txt | tr -s ' ')" = ' label 0 1 2 3 4 5 6'
# The counts are those of the CSV.
expect "$(sed 's/^. .\{12\}//' matrix.txt | tail -n 7 | tr -s ' ' ',' | sed 's/^,//')" = \
    "$(sed -E 's/^("[^"]*"|[^,]*),//' matrix.csv | tail -n 7)"
lockstep eval run --eval-data trees --confusion - --json
expect_code 2
expect_error 'already writes to standard output'

it "refuses a file name that says no format, before anything is computed"
lockstep eval run --eval-data trees --confusion matrix.xls
expect_code 2
expect_error "--confusion matrix.xls: name a file that ends in .txt, .csv or .json, or - to print it"

it "names a folder that is not there, before anything is computed"
lockstep eval run --eval-data trees --confusion nowhere/matrix.csv
expect_code 1
expect_err 'nowhere/matrix.csv'
if grep -q Evaluating out; then miss "the evaluation was made first"; fi

finish
