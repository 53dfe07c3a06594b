#!/usr/bin/env python3
"""Reads a timeline of DDP_TIMELINE: how much of the buckets' exchange is under backward, and a picture of its last step.

usage: timeline.py TIMELINE PICTURE      needs matplotlib
"""
import json
import sys


def read(path):
    """Returns (backwards, buckets) of one rank's file as lists of (name, begin, end), in microseconds."""
    text = open(path, encoding="utf-8").read().rstrip().rstrip(",")
    events = json.loads(text if text.endswith("]") else text + "]")  # the file of a process that has not ended is open
    backwards, buckets, begun = [], [], {}
    for event in events:
        if event["ph"] == "X" and event["name"] == "backward":
            backwards.append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b" and event.get("cat") == "bucket":
            begun[event["id"]] = event["ts"]
        elif event["ph"] == "e" and event["id"] in begun:
            buckets.append((event["name"], begun.pop(event["id"]), event["ts"]))
    return backwards, buckets


def hidden_share(backwards, buckets):
    """Returns the percentage of the buckets' time that is under a backward; None: there are no buckets."""
    total = sum(end - begin for _, begin, end in buckets)
    under = sum(max(0, min(end, last) - max(begin, first)) for _, begin, end in buckets for _, first, last in backwards)
    return 100 * under / total if total else None


def draw(path, picture):
    """Draws the last backward that has several buckets."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    backwards, buckets = read(path)
    def buckets_of(backward):
        return [bucket for bucket in buckets if backward[1] <= bucket[1] <= backward[2]]
    backward = max(backwards, key=lambda one: (min(len(buckets_of(one)), 2), one[1]))
    rows = [backward, *buckets_of(backward)]
    figure, axes = pyplot.subplots(figsize=(10, 0.3 * len(rows) + 1))
    for row, (_, begin, end) in enumerate(rows):
        axes.barh(row, (end - begin) / 1e3, left=(begin - backward[1]) / 1e3, color="tab:blue" if row == 0 else "tab:orange")
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("ms (host)")
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    draw(*sys.argv[1:])
