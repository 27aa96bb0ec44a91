#!/usr/bin/env python3
"""report_check.py PAGE [RUN...]: the page is well-formed HTML that needs nothing from outside, and shows figures that
are computed here from the metrics of the runs."""
import html.parser
import json
import re
import sys

VOID = {"meta", "link", "img", "input", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.cells, self.rows, self.text = [], set(), [], [], ""

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        assert len(named) == len(attributes), f"<{tag}> has an attribute twice"
        for key in ("src", "href"):
            value = named.get(key) or "#"
            assert value.startswith(("#", "data:")), f"{tag} {key}={value}: the page needs another file"
        if "id" in named:
            assert named["id"] not in self.ids, f"id {named['id']} twice"
            self.ids.add(named["id"])
        if tag == "svg" and "plot" in named.get("class", ""):
            assert named.get("role") == "img" and named.get("aria-label"), "a plot without a name"
        if tag == "path":
            assert not re.search(r"nan|inf", named["d"], re.I), f"path {named['d'][:60]}"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.text = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> at line {self.getpos()[0]} closes {self.open[-1:]}"
        self.open.pop()
        if tag in ("td", "th"):
            self.rows[-1].append(self.text)

    def handle_data(self, data):
        self.text += data


def figure(value):
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def lines(run):
    for line in open(run + "/metrics.jsonl", "rb"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "kind" in record and "step" in record:
            yield record


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, f"left open: {page.open}"
    assert text.startswith("<!DOCTYPE html>") and "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert len(text) < 5_000_000
    cells = {cell for row in page.rows for cell in row}
    for run in sys.argv[2:]:
        records = list(lines(run))
        steps = [r for r in records if r["kind"] == "step" and "seconds" in r]
        counted = steps[1:]
        speed = sum(r["samples"] for r in counted) / sum(r["seconds"] for r in counted)
        assert figure(speed) in cells, f"{run}: {figure(speed)} samples/s is not in a table"
        evals = [r for r in records if r["kind"] == "eval"]
        if evals:
            best = min(100 * (1 - r["top1"]) for r in evals)
            assert f"{best:.2f} %" in text or figure(best) in cells, f"{run}: best error {best}"
            assert figure(evals[-1]["loss"]) in cells or f"loss {figure(evals[-1]['loss'])}" in text, f"{run}: final loss"


main()
