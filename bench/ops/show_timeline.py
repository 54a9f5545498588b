#!/usr/bin/env python3
"""Prints the last step of a timeline of gpu_timeline.cpp: usage show_timeline.py FILE

A step begins with `embed_kernel`. Columns: begin, duration, what it adds to the end of everything before it (us), blocks or bytes, stream, name.
Sums by name follow, of the time that each kernel adds."""

import re
import subprocess
import sys


def short(name):
    for pattern in (r"deepinfer::cuda::", r"\(anonymous namespace\)::", r"^void ", r"\(.*$"):
        name = re.sub(pattern, "", name)
    return name[:90]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = sorted((line.rstrip("\n").split(" ", 4) for line in file), key=lambda row: int(row[0]))
    names = subprocess.run(["c++filt"], input="\n".join(r[4] for r in rows), capture_output=True, text=True, check=True).stdout.split("\n")
    events = [(int(r[0]), int(r[1]), r[2], r[3], short(name)) for r, name in zip(rows, names)]
    steps = [i for i, e in enumerate(events) if "embed_kernel" in e[4]]
    if len(steps) < 2:
        sys.exit("fewer than two steps: let the program repeat them")
    first, last = steps[-2:]
    begin, end = events[first][0], max(e[1] for e in events[:first]) if first else events[first][0]
    added = {}
    for start, stop, shape, stream, name in events[first:last]:
        more = max(0, stop - end)
        end = max(end, stop)
        added[name] = added.get(name, 0) + more
        print(f"{(start - begin) / 1e3:9.1f} {(stop - start) / 1e3:8.1f} {more / 1e3:8.1f}  {shape:14} {stream:>3} {name}")
    print(f"step {(events[last][0] - begin) / 1e3:.1f} us, {last - first} kernels and copies")
    for name, time in sorted(added.items(), key=lambda item: -item[1]):
        print(f"{time / 1e3:9.1f} {name}")


main()
