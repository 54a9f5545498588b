#!/usr/bin/env python3
"""Times the `tokenizers` package (pip install tokenizers), one thread, on the texts that tokenizer_bench takes.

    python hf_tokenizers.py TOKENIZER.json TEXT...
"""

import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer, __version__  # noqa: E402  (reads the variables above)

ROUNDS = 5


def best_seconds(work):
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def main():
    tokenizer_json, *paths = sys.argv[1:]
    print(f"tokenizers {__version__}")
    print(f"load {best_seconds(lambda: Tokenizer.from_file(tokenizer_json)) * 1e3:.0f} ms")
    tokenizer = Tokenizer.from_file(tokenizer_json)
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        encode = best_seconds(lambda: tokenizer.encode_fast(text, add_special_tokens=False))
        ids = tokenizer.encode_fast(text, add_special_tokens=False).ids
        decode = best_seconds(lambda: tokenizer.decode(ids, skip_special_tokens=False))
        size = len(text.encode())
        print(f"{os.path.basename(path)}: encode {size / encode / 1e6:.2f} MB/s, decode {decode / len(ids) * 1e9:.0f} ns/token")


if __name__ == "__main__":
    main()
