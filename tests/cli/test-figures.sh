#!/bin/sh
# lockstep report --figures: every plot of a page as an SVG file.
. tests/cli/harness.sh
: "${PYTHON:=python3}"

# drawn FOLDER COUNT: the files are XML by themselves, have their colours within them and refer to nothing else.
drawn() {
    expect "$(find "$1" -name '*.svg' | wc -l)" = "$2"
    for file in "$1"/*; do
        case $file in
        *.svg) ;;
        *) miss "$file is no figure" ;;
        esac
        ! grep -q 'var(--' "$file" || miss "$file has variables, which programs that make PDF do not know"
        ! grep -Eq 'href|url\(|<script' "$file" || miss "$file refers to something else"
        ! grep -Eq 'fill:[;}]|stroke:[;}]' "$file" || miss "$file lacks a colour"
        grep -q '^<svg xmlns="http://www.w3.org/2000/svg" width="[0-9]*" height="[0-9]*" viewBox=' "$file" || miss "$file does not begin as SVG"
    done
    "$PYTHON" -c 'import sys, xml.dom.minidom
for path in sys.argv[1:]: xml.dom.minidom.parse(path)' "$1"/*.svg 2>said || miss "$(cat said)"
}

# painted FILE: Chromium draws it: the picture has more than one colour.
painted() {
    timeout 60 chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$PWD/browser" \
        --window-size=500,400 --screenshot="$PWD/picture.png" "file://$PWD/$1" >said 2>&1 </dev/null
    expect_file picture.png
    expect "$(wc -c <picture.png)" -gt 6000
}

small="--model mlp --data synthetic:1x8x8:4:320 --batch 32 --no-tune --no-progress --threads 1"

it "writes each plot of a run, named after its title"
lockstep train $small --epochs 2 --run 'a <b> & "c" ü'
lockstep report 'a <b> & "c" ü' -o one.html --figures 'my figures'
expect_code 0
expect_out '^Figures: [0-9]+ in my figures$'
expect_file one.html
for figure in loss top-1-error top-5-error learning-rate throughput where-the-time-goes confusion-matrix what-each-rank-s-time-goes-into; do
    expect_file "my figures/$figure.svg"
done
drawn 'my figures' "$(sed -n 's/^Figures: \([0-9]*\) .*/\1/p' out)"
expect "$(grep -c '<svg class="plot' one.html)" = "$(sed -n 's/^Figures: \([0-9]*\) .*/\1/p' out)"
grep -q 'class="bar c1" x=.*<text x=.*>validation<' 'my figures/loss.svg' || miss "loss.svg has no legend"

it "draws figures that a browser shows"
if command -v chromium >/dev/null; then
    painted 'my figures/loss.svg'
else
    skip "needs chromium"
fi

it "names the figures of several runs, and a second one of a title with -2"
lockstep train $small --epochs 1 --run small
lockstep train $small --epochs 1 --batch 160 --run large
lockstep report small large 'a <b> & "c" ü' -o - --figures several
expect_code 0
head -n 1 out | grep -q '<!DOCTYPE html>' || miss "standard output is not the page alone"
tail -n 1 out | grep -q '</html>' || miss "standard output is not the page alone"
expect_file several/run-small.svg
expect_file several/run-a-b-c.svg
expect_file several/where-the-time-goes-2.svg
drawn several "$(grep -c '<svg class="plot' out)"
grep -q '>samples</text>' several/loss.svg || miss "runs of different batches are not compared over samples"

it "compares runs of one batch over steps, and leaves the rate of a diverged run out of the frame"
lockstep train $small --epochs 1 --lr 1e30 --run lost
lockstep train $small --epochs 1 --lr 0.02 --run slower
lockstep report small slower lost -o lost.html --figures lost-figures
expect_code 0
grep -q '>step</text>' lost-figures/loss.svg || miss "runs of one batch are not compared over steps"
! grep -q '>[0-9.]*e[+]*[0-9][0-9]<' lost-figures/learning-rate.svg || miss "the rate of the diverged run is on the axis"
drawn lost-figures "$(grep -c '<svg class="plot' lost.html)"

it "writes the same names again, over the old files"
find several | sort >before
lockstep report small large 'a <b> & "c" ü' -o again.html --figures several/
expect_code 0
find several | sort >after
expect_same before after

it "says where figures cannot be written, and writes no page then"
echo text >file
lockstep report small -o none.html --figures file
expect_code 1
expect_error 'file'
expect_no_file none.html

it "writes the ideal line of scaling within the frame"
cat >bench.json <<'END'
{"bench": {}, "results": [
{"model": "mlp", "batch": 64, "threads": 1, "workers": 1, "nodes": 1, "repetitions": [100], "median": 100, "mean": 100, "speedup": 1, "efficiency": 1},
{"model": "mlp", "batch": 64, "threads": 1, "workers": 4, "nodes": 1, "repetitions": [200], "median": 200, "mean": 200, "speedup": 2, "efficiency": 0.5}]}
END
lockstep report bench.json -o bench.html --figures bench
expect_code 0
drawn bench 3
grep -q '>400</text>' bench/scaling.svg || miss "the axis ends below the ideal line"
grep -q '>workers</text>' bench/scaling.svg || miss "the axis is not named"

it "draws speeds over nodes where each worker has its own, and very different ones on a logarithmic axis"
cat >nodes.json <<'END'
{"bench": {}, "results": [
{"model": "mlp", "batch": 64, "threads": 1, "workers": 1, "nodes": 1, "repetitions": [9000], "median": 9000, "mean": 9000, "speedup": 1, "efficiency": 1},
{"model": "mlp", "batch": 64, "threads": 1, "workers": 2, "nodes": 2, "repetitions": [9000], "median": 9000, "mean": 9000, "speedup": 1, "efficiency": 0.5},
{"model": "vgg", "batch": 64, "threads": 1, "workers": 1, "nodes": 1, "repetitions": [20], "median": 20, "mean": 20, "speedup": 1, "efficiency": 1},
{"model": "vgg", "batch": 64, "threads": 1, "workers": 2, "nodes": 2, "repetitions": [40], "median": 40, "mean": 40, "speedup": 2, "efficiency": 1}]}
END
lockstep report nodes.json -o nodes.html --figures nodes
expect_code 0
drawn nodes 3
grep -q '>nodes</text>' nodes/scaling.svg || miss "the axis does not say nodes"
for tick in 100 1000 10k; do
    grep -q ">$tick</text>" nodes/scaling.svg || miss "the axis has no tick at $tick"
done

it "names settings that model and batch do not tell apart"
cat >backends.json <<'END'
{"bench": {}, "results": [
{"model": "mlp", "backend": "onednn", "dtype": "f32", "batch": 64, "threads": 1, "workers": 1, "nodes": 1, "repetitions": [90, 91], "median": 90.5, "mean": 90.5},
{"model": "mlp", "backend": "ref", "dtype": "f32", "batch": 64, "threads": 1, "workers": 1, "nodes": 1, "repetitions": [9, 10], "median": 9.5, "mean": 9.5}]}
END
lockstep report backends.json -o backends.html --figures backends
expect_code 0
drawn backends 2
grep -q '>mlp, onednn f32 64</text>' backends/speed-of-each-setting.svg || miss "the bars do not name the backend"

finish
