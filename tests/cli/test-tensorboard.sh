#!/bin/sh
# --tensorboard: the event files as TensorBoard itself reads them, compared with metrics.jsonl, checkpoints and the data.
# shellcheck disable=SC2012 # the names of event files are plain
. tests/cli/harness.sh

options="--model mlp --data mnist --no-shuffle --no-evaluate --batch 20 --threads 1"
python=${PYTHON:-python3}
readable=yes
"$python" -c 'import numpy, safetensors, tensorboard, PIL' 2>/dev/null || readable=

# $options is a list of words.
# shellcheck disable=SC2086
train() {
    lockstep train $options "$@"
}

# read_board RUN CODE: runs the Python code over the events of a run.
read_board() {
    cat >board.py <<'END'
import glob, gzip, io, json, math, sys
import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run, source = sys.argv[1], sys.argv[2]
everything = {k: 0 for k in ("scalars", "histograms", "images", "tensors", "compressedHistograms")}
board = EventAccumulator(run + "/tensorboard", size_guidance=everything)
board.Reload()
metrics = [json.loads(line) for line in open(run + "/metrics.jsonl")]


def scalars(tag):
    return [(e.step, e.value) for e in board.Scalars(tag)]


def same(tag, kind, key):
    """The tag has each line of that kind once, in order, with the same value."""
    want = [(m["step"], m[key]) for m in metrics if m["kind"] == kind]
    have = scalars(tag)
    assert len(want) > 0 and [s for s, _ in want] == [s for s, _ in have], (tag, len(want), len(have))
    for (_, a), (_, b) in zip(want, have):
        assert np.float32(a) == np.float32(b) or abs(a - b) <= 1e-6 * abs(a), (tag, a, b)


def all_same(evaluated=True):
    for key in ("loss", "top1", "top5", "samples_per_s", "lr"):
        same("train/" + key, "step", key)
    for share in ("input", "compute", "wait", "update"):
        same("share/" + share, "step", share + "_share")
    for kind in ("epoch", "eval") if evaluated else ("epoch",):
        for key in ("loss", "top1", "top5", "samples_per_s"):
            same(kind + "/" + key, kind, key)
END
    printf '%s\n' "$2" >>board.py
    "$python" board.py "$1" "$source_root" >board.out 2>err || miss "TensorBoard reads otherwise: $(tail -n 1 err)"
}

it "writes no event files unless told to"
train --steps 2 --run without
expect_code 0
expect_no_file without/tensorboard

it "writes scalars, histograms, images and texts that TensorBoard reads"
lockstep train --model mlp --data mnist --no-shuffle --epoch-size 200 --batch 20 --epochs 2 --threads 1 --tensorboard \
    --run "a bärd"
expect_code 0
expect "$(ls "a bärd/tensorboard" | wc -l)" = 1
expect_out 'Final evaluation'
if [ -z "$readable" ]; then
    skip "tensorboard, numpy and safetensors are not installed for Python"
else
    read_board "a bärd" '
all_same()
# Histograms: recomputed from the checkpoint of the same step.
from safetensors.numpy import load_file
weights = load_file(run + "/checkpoints/step-00000020/model.safetensors")
assert sorted(board.Tags()["histograms"]) == sorted("weights/" + name for name in weights)
for name, w in weights.items():
    events = board.Histograms("weights/" + name)
    assert [e.step for e in events] == [10, 20]
    h, w = events[-1].histogram_value, w.astype(np.float64).ravel()
    assert (h.min, h.max, h.num) == (w.min(), w.max(), w.size)
    assert math.isclose(h.sum, w.sum(), rel_tol=1e-9, abs_tol=1e-9), name
    assert math.isclose(h.sum_squares, (w * w).sum(), rel_tol=1e-9), name
    counts, edges = np.histogram(w, bins=len(h.bucket), range=(h.min, h.max))
    assert np.abs(counts - np.array(h.bucket)).sum() <= 2, name  # a value on an edge may round to either side
    assert np.allclose(edges[1:], h.bucket_limit), name
# Images: the first samples of MNIST, which are not augmented.
from PIL import Image
def stored(name, skip):
    return np.frombuffer(gzip.open(glob.glob(source + "/data/mnist/" + name)[0]).read(), np.uint8)[skip:]
pixels, labels = stored("train-images*", 16).reshape(-1, 28, 28), stored("train-labels*", 8)
assert len(board.Tags()["images"]) == 8
for i in range(8):
    (image,) = board.Images("input/%d-%d" % (i, labels[i]))
    assert (image.width, image.height, image.step) == (28, 28, 0)
    assert (np.array(Image.open(io.BytesIO(image.encoded_image_string))) == pixels[i]).all()
# Texts.
(config,) = board.Tensors("configuration")
lines = config.tensor_proto.string_val[0].decode().splitlines()
assert any(line.startswith("    batch: 20 ") for line in lines) and all(line.startswith("    ") for line in lines)
assert b"backend " in board.Tensors("identity")[0].tensor_proto.string_val[0]'
fi

it "gives the options and the results to the HPARAMS tab"
if [ -z "$readable" ]; then
    skip "tensorboard is not installed for Python"
else
    read_board "a bärd" '
from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups
multiplexer = plugin_event_multiplexer.EventMultiplexer()
multiplexer.AddRunsFromDirectory(run)
multiplexer.Reload()
provider = data_provider.MultiplexerDataProvider(multiplexer, run)
backend = backend_context.Context(base_plugin.TBContext(data_provider=provider, multiplexer=multiplexer))
request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=9, allowed_statuses=[0, 1, 2, 3], include_metrics=True)
(group,) = list_session_groups.Handler(context.RequestContext(), backend, "", request).run().session_groups
assert group.hparams["batch"].number_value == 20 and group.hparams["model"].string_value == "mlp"
assert group.hparams["shuffle"].bool_value is False and group.hparams["nesterov"].HasField("bool_value")
assert not any(secret in group.hparams for secret in ("token", "run", "resume", "workers", "quiet"))
last = [m for m in metrics if m["kind"] == "eval"][-1]
found = {m.name.tag: m.value for m in group.metric_values}
assert np.float32(found["eval/top1"]) == np.float32(last["top1"])
assert np.float32(found["eval/loss"]) == np.float32(last["loss"])
assert group.sessions[0].status == api_pb2.STATUS_SUCCESS'
fi

it "shows each step once after kill -9 and --resume"
# shellcheck disable=SC2086
hold train $options --epoch-size 2000 --steps 1250 --log-every 1 --checkpoint-every 300 --tensorboard --run killed
# The pipe holds the lines of more than 300 steps and of fewer than 1250.
until ls killed/checkpoints/step-00000[3-9]00 >/dev/null 2>&1 && [ "$(wc -l <killed/metrics.jsonl)" -gt 320 ] ||
    ! kill -0 "$child" 2>/dev/null; do
    sleep 0.1
done
kill -9 "$child" 2>/dev/null
let_go
expect "$code" = 137
before=$(ls killed/tensorboard)
truncate -s -3 "killed/tensorboard/$before" # the last record is torn
: >err
train --steps 1250 --resume --run killed
expect_code 0
expect "$(ls killed/tensorboard | wc -l)" = 2
[ "$(ls killed/tensorboard | head -n 1)" = "$before" ] || miss "the newer file does not sort behind the older one"
if [ -n "$readable" ]; then
    read_board killed '
all_same(evaluated=False)
assert [s for s, _ in scalars("train/loss")] == list(range(1, 1251))
assert len(board.Tensors("configuration")) == 2'
fi

it "starts the record anew with a run that has no checkpoint yet"
train --epoch-size 200 --steps 7 --tensorboard --run early
expect_code 0
rm -r early/checkpoints
train --epoch-size 200 --steps 5 --resume --run early # --tensorboard is in its config.yaml
expect_code 0
[ -z "$readable" ] || read_board early 'assert [s for s, _ in scalars("train/loss")] == [1, 2, 3, 4, 5], scalars("train/loss")'

it "ends with an error where event files cannot be written"
train --steps 2 --schedule constant --tensorboard --run blocked
rm -r blocked/tensorboard
: >blocked/tensorboard
train --steps 4 --resume --run blocked
expect_code 1
expect_error 'blocked/tensorboard'
train --steps 4 --resume --run blocked --no-tensorboard
expect_code 0

it "is written by rank 0 alone"
train --steps 4 --workers 2 --replicas 2 --tensorboard --run two
expect_code 0
expect "$(ls two/tensorboard | wc -l)" = 1
[ -z "$readable" ] || read_board two 'same("train/loss", "step", "loss")'

finish
