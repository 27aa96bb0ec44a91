"""card_tracks.py FILE RANKS SECONDS [more]: checks what a trace file says of the card of each rank.

SECONDS is how long the whole command took. Every node that the host enqueued must have run once; with `more`, others too:
evaluation and updates that are enqueued apart have no slices on the host. Prints what is wrong, or a summary.
"""
import collections
import json
import sys

TRACKS = ("card", "card, aside", "card, copies", "card, sums")
CLOCK = 1000  # microseconds by which the clocks of host and card may differ; a few in fact
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"] - 1, names[e["pid"], e["tid"]]].append(e)
    return tracks


def check_rank(tracks, rank, seconds, more):
    host = tracks[rank, "main"]
    steps = [s for s in host if s["cat"] == "step"]
    enqueued = [s for s in host if s["cat"] == "enqueue"]
    expect(steps and enqueued, "rank %d: no steps or nothing enqueued" % rank)
    begin = min(s["ts"] for s in steps) if steps else 0
    for track in TRACKS:
        slices = sorted(tracks[rank, track], key=lambda s: (s["ts"], s["dur"]))
        for a, b in zip(slices, slices[1:]):
            expect(a["ts"] + a["dur"] <= b["ts"] + 0.002, "rank %d, %s: %s overlaps %s" % (rank, track, a, b))
        for s in slices:
            expect(s["ts"] >= begin - CLOCK, "rank %d, %s: %s lies before the steps" % (rank, track, s))
            expect(s["ts"] + s["dur"] <= begin + 1e6 * seconds, "rank %d, %s: %s lies after the run" % (rank, track, s))
    nodes = [s for track in TRACKS for s in tracks[rank, track] if s["cat"] == "node"]
    ran, wanted = sum(s["args"].get("nodes", 1) for s in nodes), sum(s["args"]["nodes"] for s in enqueued)
    expect(ran > wanted if more else ran == wanted, "rank %d: %d nodes ran, %d were enqueued" % (rank, ran, wanted))
    expect(all(s["args"].get("kernel") for s in nodes), "rank %d: a node without a kernel" % rank)
    expect(sum(s["dur"] for s in nodes) > 0, "rank %d: no node takes time" % rank)
    first = min((s["ts"] for s in nodes), default=0)
    expect(not enqueued or first >= enqueued[0]["ts"] - CLOCK, "rank %d: a node ran before the host enqueued it" % rank)


def main(path, ranks, seconds, more=None):
    tracks = read(path)
    for rank in range(int(ranks)):
        check_rank(tracks, rank, float(seconds), more)
    for problem in problems[:8]:
        print(problem[:600])
    if not problems:
        kinds = collections.Counter("%s %s" % (t.replace(",", ""), s["cat"]) for (_, t), l in tracks.items() if t in TRACKS for s in l)
        print("good:", *("%s=%d;" % k for k in sorted(kinds.items())))
    return bool(problems)


sys.exit(main(*sys.argv[1:]))
