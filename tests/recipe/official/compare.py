#!/usr/bin/env python3
"""Compares the recipe probe with the official package on random lines of the probe protocol (docs/spec/recipe_probe.md).

  compare.py PROBE --tokenizer FILE.json[.gz] --added-tokens FILE [--seconds N] [--seed N] [--failures DIRECTORY]

A third of the lines are well-formed requests and replies of cases.py, the others are broken in one or more places or are made of ids,
images and tokenizer texts. Equal means: the rules of section 1 of the protocol. Prints the seed; a line that differs is written to
DIRECTORY. Exit code 0 only without a difference.
"""
import argparse
import base64
import collections
import copy
import gzip
import io
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import cases
import oracle
from PIL import Image

TIMES = {"created", "created_at", "completed_at"}
CALL_ID = re.compile(r"^(call_\d{2,}_(?:ET_)?)(?:[A-Za-z0-9]{20}\d{4}|#\d+)$")
# What follows these beginnings may differ: texts of third-party validators, and the one of several open calls that a hash order picks.
LOOSE = [re.compile(beginning) for beginning in (
    r'^(\{"error":\{"message":"Invalid json schema: ).*',
    r'^(\{"error":\{"message":"No tool output found for tool call ).*',
    r'^(\{"error":\{"message":"Invalid tool parameters schema : ).*',
    r"^(\{\"error\":\{\"message\":\"Invalid schema for function '(?:[^']*)': )(?!schema must be a JSON Schema).*",
)]
JUNK = [None, True, 0, -1, 1, 2, 1.5, 1e300, 2**63, 2**64, -2**63 - 1, 10**30, "", "x", "none", "low", "\u0000", "😀", "a\"b", [], [None], [[]], [""],
        {}, {"type": "text"}, {"type": "x"}, {"type": "function"}, {"a": 1}, "http://x/y", "data:image/png;base64,AAAA",
        "data:text/plain,x", [{"type": "text", "text": "t"}], [{"type": "image_url", "image_url": {"url": "http://a/b"}}], "json", "required"]


class Probe:
    """The program under test. A crash or a hang is an answer, and the next line gets a fresh process."""

    def __init__(self, command):
        self.command, self.process = command, None

    def ask(self, line):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.process.stdin.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if answer:
            return json.loads(answer)
        code = self.process.wait()
        self.process = None
        return {"probe": f"ended with {code}"}


def normalised(value, ids):
    if isinstance(value, list):
        return [normalised(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, member in value.items():
        match = CALL_ID.match(member) if key in ("id", "call_id") and isinstance(member, str) else None
        if match:
            out[key] = ids.setdefault(member, f"{match.group(1)}#{len(ids)}")
        elif key in TIMES and isinstance(member, (int, float)) and not isinstance(member, bool):
            out[key] = 0
        else:
            out[key] = normalised(member, ids)
    return out


def comparable(answer):
    if "result" in answer and isinstance(answer["result"], dict) and "steps" in answer["result"]:
        ids = {}
        answer["result"] = {key: normalised(value, ids) if key in ("steps", "response") else value for key, value in answer["result"].items()}
    error = answer.get("error")
    if isinstance(error, dict):
        if error.get("stage") in ("json", "body", "conversation", "encode"):
            return {"error": error["stage"]}
        for pattern in LOOSE:
            match = pattern.match(str(error.get("body")))
            if match:
                error["body"] = match.group(1)
    return answer


def difference(want, got, path="answer"):
    """The first difference as text, or None. Integers and floats are apart; means of colours may differ by 8."""
    if path.endswith(".grid") and isinstance(want, list) and isinstance(got, list):
        near = all(abs(a - b) <= 8 for x, y in zip(want, got) for a, b in zip(x, y))
        return None if near and len(want) == len(got) else f"{path}: {got} instead of {want}"
    if isinstance(want, dict) and isinstance(got, dict):
        for key in want.keys() | got.keys():
            if key not in want or key not in got:
                return f"{path}.{key}: only the {'official' if key in want else 'own'} answer has it"
            found = difference(want[key], got[key], f"{path}.{key}")
            if found:
                return found
        return None
    if isinstance(want, list) and isinstance(got, list):
        found = next(filter(None, (difference(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(want, got)))), None)
        return found or (None if len(want) == len(got) else f"{path}: {len(got)} items instead of {len(want)}")
    same = type(want) is type(got) and (want == got or want != want and got != got)
    return None if same else f"{path}: {json.dumps(got)[:300]} instead of {json.dumps(want)[:300]}"


def places(value, place=()):
    """Every place in a JSON value, as a path of keys and indices."""
    if place:
        yield place
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, place + (key,))


def break_body(body, source):
    """The body with one to three members changed, removed or copied to another place."""
    for _ in range(source.choice([1, 1, 1, 2, 3])):
        spots = list(places(body))
        if not spots:
            return body
        place = source.choice(spots)
        parent = body
        for key in place[:-1]:
            parent = parent[key]
        kind = source.random()
        if kind < .6:
            parent[place[-1]] = copy.deepcopy(source.choice(JUNK))
        elif kind < .8:
            del parent[place[-1]]
        else:
            donor = body
            for key in source.choice(spots):
                donor = donor[key] if isinstance(donor, dict) and key in donor or isinstance(donor, list) and isinstance(key, int) and key < len(donor) else donor
            parent[place[-1]] = json.loads(json.dumps(donor))
    return body


def broken_case(source):
    case = cases.random_case(source)
    while case["op"] == "stream":
        case = cases.random_case(source)
    kind = source.random()
    if kind < .9:
        case["body"] = json.dumps(break_body(json.loads(case["body"]), source), ensure_ascii=source.random() < .5)
    else:
        text = case["body"]
        at = source.randrange(len(text))
        case["body"] = text[:at] + source.choice(["", ",", "\"", "}", "\\u", "\\ud800", "\t", "\u0001", "NaN"]) + text[at + source.randrange(3):]
    return case


def token_case(source, context):
    """A stream case whose text chunks have become chunks of ids."""
    case = cases.rstream(source)
    text = "".join(chunk["text"] for chunk in case["chunks"] if "text" in chunk)
    ids = list(context.tokenizer().encode(text))
    for _ in range(source.choice([0, 0, 1, 2])):
        ids.insert(source.randrange(len(ids) + 1), source.choice([128821, 128822, 128825, 128803, 1, 225, 28927, source.randrange(128000)]))
    chunks = [chunk for chunk in case["chunks"] if "ready" in chunk]
    with_logprobs = source.random() < .3
    while ids:
        count = source.choice([1, 1, 1, 2, 3, 7])
        chunk = {"token_ids": ids[:count]}
        if with_logprobs:
            chunk["logprobs"] = [[-source.random(), [[source.randrange(128000), -source.random() * 5]] * source.randrange(3)] for _ in ids[:count]]
        chunks.append(chunk)
        del ids[:count]
    case["chunks"] = chunks + [chunk for chunk in case["chunks"] if "finish" in chunk]
    return case


def image_case(source):
    if source.random() < .5:
        return {"op": "image", "size": [max(1, int(2 ** source.uniform(0, 13))), max(1, int(2 ** source.uniform(0, 13)))]}
    image = Image.effect_noise((source.randint(1, 700), source.randint(1, 700)), 60).convert(source.choice(["RGB", "L", "P", "1", "RGBA"]))
    data = io.BytesIO()
    image.save(data, source.choice({"RGB": ["PNG", "JPEG", "GIF"], "L": ["PNG", "JPEG"], "RGBA": ["PNG"]}.get(image.mode, ["PNG", "GIF"])))
    content = data.getvalue()
    if source.random() < .1:
        content = content[:source.randrange(30)]
    return {"op": "image", "bytes_base64": base64.b64encode(content).decode(), "detail": source.choice(["low", "high", "original", "auto"])}


def random_line(source, context):
    kind = source.random()
    if kind < .35:
        return cases.random_case(source)
    if kind < .7:
        return broken_case(source)
    if kind < .9:
        return token_case(source, context)
    if kind < .97:
        return {"op": "encode", "text": cases.rtext(source), "plain": source.random() < .5}
    return image_case(source)


def is_accident(want, got):
    """docs/recipe.md: the official reader takes a list of its values for an object, and a number for the type of a tool or source; here
    both are a misfit of the body."""
    message = got.get("error", {}).get("message", "") if not got["ok"] and got["error"].get("stage") == "body" else ""
    is_tool_type = re.search(r"\.type`: expected a string, not a number$", message)
    return (want["ok"] or want["error"].get("stage") == "convert") and (message.endswith(": expected an object") or bool(is_tool_type))


def unpacked(path):
    if not path.endswith(".gz"):
        return path
    with tempfile.NamedTemporaryFile("wb", suffix=".json", delete=False) as out:
        out.write(gzip.decompress(pathlib.Path(path).read_bytes()))
    return out.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--added-tokens", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failures", type=pathlib.Path)
    parser.add_argument("--show", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer = unpacked(arguments.tokenizer)
    context = oracle.Context(tokenizer, arguments.added_tokens)
    probe = Probe([arguments.probe, "--tokenizer", tokenizer, "--added-tokens", arguments.added_tokens])
    source = random.Random(arguments.seed)
    counts, wrong = collections.Counter(), 0
    deadline = time.monotonic() + arguments.seconds
    while time.monotonic() < deadline:
        line = random_line(source, context)
        want = json.loads(json.dumps(oracle.answer(line, context)))
        got = probe.ask(line)
        problem = difference(comparable(want), comparable(got))
        name = line["op"] + ("." + line["api"] if "api" in line else "")
        counts[name + ("" if want["ok"] else " refused")] += 1
        if problem is None:
            continue
        if is_accident(want, got):
            counts["accidents of the official reader"] += 1
            continue
        wrong += 1
        if wrong <= arguments.show:
            print(f"DIFFERENCE in line {sum(counts.values())} ({name}): {problem}\n  {json.dumps(line)[:1500]}")
        if arguments.failures:
            arguments.failures.mkdir(parents=True, exist_ok=True)
            (arguments.failures / f"{arguments.seed}_{sum(counts.values())}.json").write_text(json.dumps(line) + "\n")
    print(f"seed {arguments.seed}: {sum(counts.values())} lines, {wrong} differences; " + ", ".join(f"{k} {n}" for k, n in sorted(counts.items())))
    return 1 if wrong or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
