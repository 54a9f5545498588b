#!/usr/bin/env python3
"""Checks the room table of docs/architecture.md: which room may include which, and that only listed vendor headers appear in a room.

Usage: tools/check_includes.py            check src/; exit 1 with one line per forbidden include
       tools/check_includes.py --headers  also compile every header of src/ alone (needs g++; headers for CUDA where its toolkit is found)
"""

from __future__ import annotations

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
CUDA_HEADERS = pathlib.Path("/usr/local/cuda/include")

# Room -> rooms it may include. The same table stands in docs/architecture.md.
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "tensor": {"base"},
    "tokenizer": {"base"},
    "recipe": {"base", "tokenizer"},
    "grammar": {"base", "tokenizer"},
    "kvcache": {"base"},
    "scheduler": {"base", "kvcache"},
    "weights": {"base", "tensor"},
    "ops": {"base", "tensor"},
    "backends": {"base", "tensor", "ops", "sampling"},
    "comm": {"base", "tensor", "ops"},
    "model": {"base", "tensor", "weights", "ops", "comm"},
    "sampling": {"base", "tensor", "ops", "grammar"},
    "engine": {"base", "tensor", "tokenizer", "grammar", "kvcache", "scheduler", "weights", "ops", "comm", "model", "sampling"},
    "server": {"base", "recipe", "tokenizer", "grammar", "engine"},
    "apps": set(),  # everything
}

# Vendor header or prefix -> rooms that may include it (docs/dependencies.md). Headers without a slash or a listed prefix are the standard library's.
VENDORS: dict[str, set[str]] = {
    "boost/": {"server"},
    "unicode/": {"tokenizer", "grammar"},
    "hwy/": {"backends"},
    "jerror.h": {"recipe"},
    "jpeglib.h": {"recipe"},
    "png.h": {"recipe"},
    "webp/": {"recipe"},
    "CLI/": {"apps"},
    "fmt/": {"apps"},
    "spdlog/": {"apps"},
    "cuda_": {"backends"},
}

# System headers that are neither standard C++ nor a vendor's.
SYSTEM = re.compile(r"^(sys/|netinet/|arpa/|linux/|fcntl\.h|unistd\.h|pthread\.h|sched\.h|termios\.h|signal\.h|poll\.h|pwd\.h|cxxabi\.h)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def problems_of(path: pathlib.Path) -> list[str]:
    room = path.relative_to(SRC).parts[0]
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        where = f"{path.relative_to(ROOT)}:{number}"
        if kind == '"':
            target = name.split("/")[0]
            if target not in ROOMS:
                out.append(f'{where}: "{name}" names no room; write the path from src/')
            elif room != "apps" and target != room and target not in ROOMS[room]:
                out.append(f"{where}: room {room} may not include room {target}")
            elif room != target and target == "backends" and room != "apps":
                out.append(f"{where}: nothing above backends/ sees them")
        elif not SYSTEM.match(name):
            for prefix, rooms in VENDORS.items():
                if name.startswith(prefix) and room not in rooms:
                    out.append(f"{where}: <{name}> belongs to {', '.join(sorted(rooms))}")
            if "/" in name and not any(name.startswith(prefix) for prefix in VENDORS):
                out.append(f"{where}: <{name}> is no listed vendor header")
    return out


def compile_alone(header: pathlib.Path) -> str | None:
    command = ["g++", "-std=c++23", "-fsyntax-only", "-I", str(SRC), "-I", str(ROOT / "build"), "-isystem", str(CUDA_HEADERS), "-x", "c++", "-include", str(header), "/dev/null"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if run.returncode == 0 else f"{header.relative_to(ROOT)} does not compile alone:\n{run.stderr[:2000]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headers", action="store_true", help="also compile every header alone")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()

    sources = sorted(p for p in SRC.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"})
    problems = [problem for path in sources for problem in problems_of(path)]
    headers = [p for p in sources if p.suffix == ".h" and not p.name.endswith("-inl.h")]
    if not CUDA_HEADERS.is_dir():
        headers = [p for p in headers if "cuda" not in p.parts]
    if arguments.headers:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            problems += [problem for problem in pool.map(compile_alone, headers) if problem]
    for problem in problems:
        print(problem)
    print(f"check_includes: {len(sources)} files, {len(headers)} headers{' compiled alone' if arguments.headers else ''}, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
