#!/usr/bin/env python3
"""timeline.py TRACE SVG: draws the middle step of a trace of `lockstep train --trace`, as ui.perfetto.dev shows it."""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, ROW, TOP = 860, 150, 15, 34
COLOURS = {"light": dict(card="#ffffff", line="#d9dde3", fg="#1c2330", soft="#5b6472",
                         s=("#0072b2", "#d55e00", "#008f68", "#b4528c", "#b88700", "#77808c")),
           "dark": dict(card="#1b2027", line="#333b46", fg="#e6e9ee", soft="#a3acb9",
                        s=("#4ba8e8", "#ff8d4d", "#35c79a", "#e596c2", "#eeb63c", "#aab3bf"))}


def kind(name, thread):
    """The colour of a slice: computing, communication, update, waiting, input, all else."""
    if thread == "communication":
        return 1
    for words, number in ((("wait", "totals"), 3), (("update", "sgd"), 2), (("input", "fill", "decode"), 4), (("step", "pass"), 5)):
        if name.startswith(words):
            return number
    return 0


def rows_of(slices):
    """Puts slices that are within others beneath them."""
    ends, placed = [], []
    for s in sorted(slices, key=lambda s: (s["ts"], -s["dur"])):
        while ends and ends[-1] <= s["ts"] + 1e-6:
            ends.pop()
        placed.append((len(ends), s))
        ends.append(s["ts"] + s["dur"])
    return placed


def style(theme):
    c = COLOURS[theme]
    text = f".card{{fill:{c['card']};stroke:{c['line']}}}text{{fill:{c['soft']}}}.head{{fill:{c['fg']}}}.in{{fill:{c['card']}}}"
    return text + "".join(f".k{i}{{fill:{colour}}}" for i, colour in enumerate(c["s"]))


events = json.load(open(sys.argv[1]))
events = events["traceEvents"] if isinstance(events, dict) else events
names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "thread_name"}
processes = {e["pid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "process_name"}
slices = [e for e in events if e.get("ph") == "X"]
steps = sorted((e for e in slices if e["name"].startswith("step ") and e["pid"] == min(processes)), key=lambda e: e["ts"])
middle = steps[len(steps) // 2]
start, length = middle["ts"], middle["dur"]
body, y = [], TOP
for pid in sorted(processes):
    body.append(f'<text class="head" x="10" y="{y + 11}">{escape(processes[pid])}</text>')
    y += ROW + 2
    for key in sorted(k for k in names if k[0] == pid):
        mine = [e for e in slices if (e["pid"], e["tid"]) == key and e["ts"] < start + length and e["ts"] + e["dur"] > start]
        if not mine:
            continue
        body.append(f'<text x="20" y="{y + 11}">{escape(names[key])}</text>')
        deepest = 0
        for depth, e in rows_of(mine):
            x0 = max(0, (e["ts"] - start) / length)
            x1 = min(1, (e["ts"] + e["dur"] - start) / length)
            x, wide = LEFT + x0 * (WIDTH - LEFT - 10), (x1 - x0) * (WIDTH - LEFT - 10)
            deepest = max(deepest, depth)
            top = y + depth * ROW
            title = escape(f'{e["name"]}: {e["dur"] / 1000:.3f} ms')
            body.append(f'<rect class="k{kind(e["name"], names[key])}" x="{x:.1f}" y="{top}" width="{max(0.4, wide - 0.4):.1f}" '
                        f'height="{ROW - 2}"><title>{title}</title></rect>')
            if wide > 6 * len(e["name"]) + 6:
                body.append(f'<text class="in" x="{x + 3:.1f}" y="{top + 10}">{escape(e["name"])}</text>')
        y += (deepest + 1) * ROW + 4
x = 10
for i, name in enumerate(("computing", "communication", "update", "waiting", "input", "step, pass")):
    body.append(f'<rect class="k{i}" x="{x}" y="{y + 4}" width="11" height="11" rx="3"/><text x="{x + 17}" y="{y + 14}">{name}</text>')
    x += 40 + 7 * len(name)
y += 26
with open(sys.argv[2], "w") as out:
    out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">\n<title>Timeline</title>\n'
              f'<style>text{{font:11px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}}.head{{font-weight:600}}\n{style("light")}\n'
              f'@media (prefers-color-scheme: dark) {{{style("dark")}}}</style>\n'
              f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{y - 1}" rx="6"/>\n'
              f'<text class="head" x="10" y="20">{escape(middle["name"])} of all ranks on one clock, {length / 1000:.1f} ms</text>\n')
    out.write("\n".join(body) + "\n</svg>\n")
