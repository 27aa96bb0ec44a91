"""trace_check.py FILE RANKS FROM:TO [perfetto]: checks a trace file of `lockstep train --trace`.

The file is read by Python's json and checked against the rules of the trace event format; with `perfetto`, Perfetto's trace
processor opens it, too, and both must see the same. Prints what is wrong, or a summary.
"""
import collections
import decimal
import json
import re
import sys

ARGUMENTS = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index",
             "thread_sort_index": "sort_index", "process_labels": "labels"}
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)
    return condition


def nanoseconds(microseconds):
    value = microseconds * 1000
    expect(value == int(value), "%s us is no whole number of nanoseconds" % microseconds)
    return int(value)


def read(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file, parse_float=decimal.Decimal, parse_constant=lambda c: expect(False, "the number " + c))
    expect(set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}, "keys %s" % sorted(trace))
    expect(trace["displayTimeUnit"] in ("ms", "ns"), "displayTimeUnit")
    return trace


def check_event(event):
    expect(isinstance(event.get("pid"), int) and isinstance(event.get("tid"), int), "pid and tid of %s" % event)
    expect(isinstance(event.get("name"), str) and event["name"], "name of %s" % event)
    expect(isinstance(event.get("args"), dict), "args of %s" % event)
    kind = event.get("ph")
    if kind == "M":
        expect(list(event["args"]) == [ARGUMENTS.get(event["name"])], "metadata %s" % event)
    elif expect(kind in ("X", "b", "e"), "ph of %s" % event):
        expect(isinstance(event.get("cat"), str) and event["cat"], "cat of %s" % event)
        event["begin"] = nanoseconds(event["ts"])
        expect(event["begin"] >= 0, "%s begins before time 0" % event)
    if kind == "X":
        length = nanoseconds(event["dur"])
        expect(length >= 0, "dur of %s" % event)
        event["end"] = event["begin"] + length
    elif kind in ("b", "e"):
        expect(isinstance(event.get("id"), str), "id of %s" % event)


def names(events, what, key):
    found = {}
    for e in events:
        if e["ph"] == "M" and e["name"] == what:
            expect(key(e) not in found, "a second %s for %s" % (what, key(e)))
            found[key(e)] = e["args"]["name"]
    return found


def check_nesting(slices):
    """Slices of a thread come in the order in which they begin, and each ends before the one around it."""
    open_slices, last = [], None
    for s in slices:
        expect(last is None or last <= s["begin"], "%s comes before its place" % s)
        last = s["begin"]
        while open_slices and open_slices[-1]["end"] <= s["begin"]:
            open_slices.pop()
        if open_slices:
            expect(s["end"] <= open_slices[-1]["end"], "%s is not within %s" % (s, open_slices[-1]))
        open_slices.append(s)


def check_pairs(events):
    """Of asynchronous events, each begins once and ends once, later."""
    pairs = collections.defaultdict(list)
    for e in events:
        if e["ph"] in "be":
            pairs[e["pid"], e["cat"], e["id"]].append(e)
    for key, pair in pairs.items():
        if expect([e["ph"] for e in pair] == ["b", "e"], "the events of %s" % (key,)):
            expect(pair[0]["begin"] <= pair[1]["begin"], "%s ends before it begins" % (key,))
    return len(pairs)


def check_steps(main, first, last, rank):
    steps = [s for s in main if s["cat"] == "step"]
    numbers = [s["args"]["step"] for s in steps]
    if not expect(numbers == list(range(first, last + 1)), "rank %d has slices of the steps %s" % (rank, numbers)):
        return
    expect([s["name"] for s in steps] == ["step %d" % n for n in numbers], "names of steps")
    for step in steps:
        inside = [s for s in main if s is not step and step["begin"] <= s["begin"] and s["end"] <= step["end"]]
        kinds = collections.Counter(s["cat"] for s in inside)
        expect(kinds["pass"] and kinds["phase"] == 2 * kinds["pass"] and kinds["node"] and kinds["update"] and kinds["input"],
               "step %s of rank %d has %s" % (step["name"], rank, dict(kinds)))


def clock_errors(events):
    """Nanoseconds by which the clock of a process may be wrong."""
    found = collections.Counter()
    for e in events:
        if e["name"] == "process_labels" and (said := re.search(r"clock within ([0-9.]+) us of rank 0", e["args"]["labels"])):
            found[e["pid"]] = 1 + nanoseconds(decimal.Decimal(said[1]))
    return found


def check_sums(by_thread, ranks, errors):
    """All ranks make the same sums, and none is over on one rank before it has begun on all, as far as clocks tell."""
    sums = [[s for s in by_thread[rank + 1, "communication"] if s["name"] == "allreduce"] for rank in range(ranks)]
    expect(all(sums), "a rank without sums")
    expect(len({len(s) for s in sums}) == 1, "numbers of sums: %s" % [len(s) for s in sums])
    for one in zip(*sums):
        expect(len({(s["args"].get("bucket"), s["args"]["bytes"]) for s in one}) == 1, "different sums: %s" % (one,))
        expect(max(s["begin"] - errors[s["pid"]] for s in one) <= min(s["end"] + errors[s["pid"]] for s in one),
               "apart in time: %s" % (one,))


def check_file(path, ranks, first, last):
    trace = read(path)
    events = trace["traceEvents"]
    for event in events:
        check_event(event)
    if problems:
        return None
    processes = names(events, "process_name", lambda e: e["pid"])
    threads = names(events, "thread_name", lambda e: (e["pid"], e["tid"]))
    expect(trace["otherData"]["ranks"] >= len(processes), "ranks in otherData")
    by_thread = collections.defaultdict(list)
    for e in events:
        if e["ph"] != "M":
            expect((e["pid"], e["tid"]) in threads, "a thread without a name: %s" % e)
        if e["ph"] == "X":
            by_thread[e["pid"], threads.get((e["pid"], e["tid"]))].append(e)
    for slices in by_thread.values():
        check_nesting(slices)
    pairs = check_pairs(events)
    expect(sorted(processes) == [r + 1 for r in ranks], "processes %s" % processes)
    for rank in ranks:
        expect(re.fullmatch(r"rank %d \(.+\)" % rank, processes.get(rank + 1, "")), "name of rank %d" % rank)
        if last:
            check_steps(by_thread[rank + 1, "main"], first, last, rank)
    if last and len(ranks) > 1:
        check_sums(by_thread, len(ranks), clock_errors(events))
    return processes, threads, by_thread, pairs


def check_by_perfetto(path, found):
    from perfetto_processor import Processor
    processes, threads, by_thread, pairs = found
    tp = Processor(path)
    bad = tp.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    expect(not bad, "Perfetto reports %s" % bad)
    seen = tp.query("select pid, name from process where pid > 0 order by pid")
    expect(seen == [[p, n] for p, n in sorted(processes.items())], "Perfetto's processes: %s" % seen)
    rows = tp.query("select p.pid as pid, t.name as thread, s.name as name, s.ts as ts, s.dur as dur, s.depth as depth from slice"
                    " s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid)"
                    " order by pid, thread, ts, depth")
    mine = [[p, t, s["name"], s["begin"], s["end"] - s["begin"]]
            for (p, t), slices in sorted(by_thread.items()) for s in slices]
    expect([r[:5] for r in rows] == mine, "Perfetto has %d slices of threads, the file %d, or they differ" % (len(rows), len(mine)))
    several = tp.query("select count(*) as n from slice where dur < 0")
    expect(several == [[0]], "%s slices do not end" % several)
    apart = tp.query("select count(*) as n from slice where category = 'message'")
    expect(apart == [[pairs]], "Perfetto has %s messages, the file %d" % (apart, pairs))
    size = tp.query("select sum(extract_arg(arg_set_id, 'args.bytes')) as n from slice where category = 'communication'")[0][0]
    expect((size or 0) == sum(s["args"]["bytes"] for t in by_thread.values() for s in t if s["cat"] == "communication"),
           "Perfetto's bytes: %s" % size)


def main(path, ranks, steps, *more):
    ranks = [int(r) for r in ranks.split(",")]
    first, last = (int(n) for n in steps.split(":")) if steps != "-" else (0, 0)
    found = check_file(path, ranks, first, last)
    if found and "perfetto" in more:
        check_by_perfetto(path, found)
    for problem in problems[:8]:
        print(problem[:600])
    if not problems:
        kinds = collections.Counter(s["cat"] for t in found[2].values() for s in t)
        print("good:", *("%s=%d" % k for k in sorted(kinds.items())), "messages=%d" % found[3])
    return bool(problems)


sys.exit(main(*sys.argv[1:]))
