#!/usr/bin/env python3
"""Times the `tokenizers` package (pip install tokenizers) and tokenizer_bench in turn, one thread, CPU time, on the same texts.

    python hf_tokenizers.py TOKENIZER_BENCH TOKENIZER.json TEXT...

Prints the best of several rounds of each and the ratio of the two encoders.
"""

import json
import os
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, __version__  # noqa: E402  (reads the variables above)

ROUNDS = 5
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def seconds(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def package_times(tokenizer, text):
    """Seconds for encoding, the faster of its calls, and for decoding per token."""
    calls = [lambda: tokenizer.encode(text, add_special_tokens=False), lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False)]
    ids = calls[0]().ids
    return min(seconds(call) for call in calls), seconds(lambda: tokenizer.decode(ids, skip_special_tokens=False)) / len(ids), len(ids)


def bench_times(bench, tokenizer_json, paths):
    """Seconds of CPU by name of the benchmark, with and without the way back per text."""
    command = [bench, tokenizer_json, *paths, "--benchmark_format=json", "--benchmark_min_time=0.2", "--benchmark_filter=^(encode|stream)/[^/]*$"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {run["name"]: run["cpu_time"] * NANOSECONDS[run["time_unit"]] / 1e9 for run in report["benchmarks"]}


def main():
    bench, tokenizer_json, *paths = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer_json)
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            texts[os.path.basename(path)] = file.read()
    theirs, ours = {}, {}
    for _ in range(ROUNDS):
        for name, seconds_now in bench_times(bench, tokenizer_json, paths).items():
            ours[name] = min(seconds_now, ours.get(name, seconds_now))
        for name, text in texts.items():
            now = package_times(tokenizer, text)
            theirs[name] = tuple(map(min, now, theirs.get(name, now)))
    print(f"tokenizers {__version__}")
    for name, text in texts.items():
        encode, decode, num_ids = theirs[name]
        size = len(text.encode())
        own = ours[f"encode/{name}"]
        stream = ours[f"stream/{name}"] / num_ids
        print(f"{name}: {size} bytes, {num_ids} tokens; encode {size / encode / 1e6:.2f} and {size / own / 1e6:.2f} MB/s, ratio {encode / own:.1f}; "
              f"decode whole {decode * 1e9:.0f} ns/token, stream {stream * 1e9:.1f} ns/token")


if __name__ == "__main__":
    main()
