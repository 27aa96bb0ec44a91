#!/bin/sh
# predict on many images: folders, lists, formats, files that cannot be read.
. tests/cli/harness.sh

images=$source_root/tests/cli/images
lockstep train --model lenet --data synthetic:3x28x28:4:64 --batch 8 --steps 3 --no-evaluate --quiet --run run

# picture FILE SHADE: a PPM of 30x28 pixels.
picture() {
    printf 'P6\n30 28\n255\n' >"$1"
    head -c 2520 /dev/zero | tr '\0' "\\$(printf %o "$2")" >>"$1"
}

mkdir -p "many/sub folder/ünder"
i=0
while [ $i -lt 250 ]; do
    picture "many/$(printf %03d $i).ppm" $i
    i=$((i + 1))
done
for letter in a b c d e; do picture "many/sub folder/ünder/$letter b.ppm" 77; done
cp "$images/bars.jpg" "many/sub folder/bars.jpg"
cp "$images/ring.png" "many/ring.png"

it "predicts 257 images of a folder and its subfolders, in order"
lockstep predict run many --format csv -o many.csv
expect_code 0
expect_out '^257 images in .*images/s'
expect "$(wc -l <many.csv)" = 258
expect "$(head -n 1 many.csv)" = "file,class,index,probability,class_2,index_2,probability_2,class_3,index_3,probability_3,class_4,index_4,probability_4"
tail -n +2 many.csv | cut -d, -f1 >names
find many -type f | LC_ALL=C sort >found
sort names | cmp -s - found || miss "the files are others"

it "gives an image the same classes alone as among many"
lockstep predict run "many/sub folder/bars.jpg" --format csv
expect_code 0
grep '^many/sub folder/bars.jpg,' many.csv | cut -d, -f 1-3,5,6,8,9,11,12 >line
tail -n 1 out | cut -d, -f 1-3,5,6,8,9,11,12 | cmp -s - line || miss "$(cat line) became $(tail -n 1 out)"

it "gives the same with any number of loader threads"
for threads in 1 5; do
    lockstep predict run many --loader-threads $threads -o threads.csv --quiet
    expect_code 0
    expect_same many.csv threads.csv
done

it "writes JSON that is a list, whatever the number of images"
lockstep predict run many --json
expect_code 0
expect "$(grep -c '"file"' out)" = 257
expect "$(head -n 1 out)" = '['
expect "$(tail -n 1 out)" = ']'
lockstep predict run many/ring.png -o one.json --top 2
expect_code 0
expect "$(grep -o '"class"' one.json | wc -l)" = 2
if "${PYTHON:-python3}" -c '' 2>/dev/null; then
    lockstep predict run many --format json -o many.json --quiet
    "${PYTHON:-python3}" - <<'END' || miss "JSON and CSV differ"
import csv, json
rows = list(csv.DictReader(open("many.csv", encoding="utf-8")))
for row, one in zip(rows, json.load(open("many.json", encoding="utf-8"))):
    top = one["top"]
    assert row["file"] == one["file"] and row["class"] == top[0]["class"] and int(row["index_4"]) == top[3]["index"]
    assert abs(float(row["probability_2"]) - top[1]["probability"]) < 1e-8
    assert abs(sum(guess["probability"] for guess in top) - 1) < 1e-6
assert len(rows) == 257
END
fi

it "reads lists: paths relative to the list, absolute, with spaces, with a label"
mkdir lists
cat >lists/some.txt <<END
../many/001.ppm
../many/sub folder/ünder/a b.ppm
../many/002.ppm 3

$scratch/many/ring.png	label
END
lockstep predict run lists/some.txt --format csv
expect_code 0
expect "$(wc -l <out)" = 5
expect_out '^lists/../many/001.ppm,'
expect_out '^lists/../many/sub folder/ünder/a b.ppm,'
expect_out '^lists/../many/002.ppm,'
expect_out "^$scratch/many/ring.png,"

it "names what it cannot read, counts it, and predicts the rest"
mkdir broken
cp many/00[0-9].ppm broken
head -c 300 "$images/bars.jpg" >broken/half.jpg
: >"broken/nothing at all.png"
printf 'no image' >broken/text.png
lockstep predict run broken --format csv
expect_code 3
expect "$(wc -l <out)" = 11
expect_err 'broken/half.jpg: '
expect_err 'broken/nothing at all.png: '
expect_err 'broken/text.png: '
expect_err 'warning: 3 of 13 images cannot be read'
expect "$(wc -l <err)" = 4

it "names a missing file of a list, and predicts the rest"
printf 'gone picture.png\n../many/ring.png\n' >lists/gone.txt
lockstep predict run lists/gone.txt --format csv
expect_code 3
expect_err 'lists/gone picture.png: '
expect "$(wc -l <out)" = 2

it "refuses a list without a line, and one that is no text"
: >empty.txt
lockstep predict run empty.txt
expect_code 3
expect_error 'empty.txt: no line in it'
cp "$images/ring.png" image.txt
lockstep predict run image.txt
expect_code 3
expect_error 'image.txt: not a text file'

it "takes grey images for a network of colours"
printf 'P5\n28 28\n255\n' >grey.pgm
head -c 784 /dev/zero | tr '\0' '\144' >>grey.pgm
printf 'P6\n28 28\n255\n' >colour.ppm
head -c 2352 /dev/zero | tr '\0' '\144' >>colour.ppm
lockstep predict run grey.pgm colour.ppm --format csv
expect_code 0
expect "$(sed 1d out | cut -d, -f2- | uniq | wc -l)" = 1

it "refuses a format that it lacks, and a file that it cannot write, before it computes"
lockstep predict run many --format latex
expect_code 2
expect_error 'predict writes text, json or csv'
lockstep predict run many -o no/such/folder/out.csv
expect_code 1
expect_error 'no/such/folder/out.csv'
expect "$(wc -c <out)" = 0

it "leaves an old result as it is when it fails, and nothing half"
echo old >kept.csv
lockstep predict no-such-run many -o kept.csv
expect_code 3
lockstep predict run many --top 0 -o kept.csv
expect_code 2
expect "$(cat kept.csv)" = old
expect "$(find . -name '*tmp*' | wc -l)" = 0

finish
