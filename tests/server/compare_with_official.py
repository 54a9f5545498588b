#!/usr/bin/env python3
"""Compares whole bodies and event streams of our server with those of the official components, for every scripted reply.

Both sides get the same requests. The replies of ours come from a table that is made here with the official renderer and the script of
the official side, so both play the same token ids. One id per chunk on both sides; ids, times and signatures are normalised.

    python compare_with_official.py TABLE_SERVER TOOLS_DIR NANO_DIR

TOOLS_DIR holds oracle_server.py; needs deepseek-recipe 0.2.0.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import threading

# What no engine can be made to do by a table: another finish, ids that the tokenizer does not have.
LEFT_OUT = {"filtered": "a content filter", "control_text": "the end token in the middle", "unicode_cut_end": "bytes without a token", "unicode_invalid": "bytes without a token"}


def start_official(oracle_server, arguments):
    handler = type("Bound", (oracle_server.Handler,), {"oracle": oracle_server.Oracle(arguments), "args": arguments})
    server = oracle_server.Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return handler.oracle, "http://127.0.0.1:%d" % server.server_address[1]


def requests(oracle_server):
    for name, path, body, headers in oracle_server.script_requests():
        script = name.split("/")[1]
        if headers["X-Chunks"] == "ids" and script not in LEFT_OUT:
            body.pop("logprobs", None)  # scripted ones are no probabilities of any row
            body.pop("top_logprobs", None)
            yield name, path, body, {"X-Chunks": "ids", "X-Piece": "1"}


def reply_of(oracle_server, oracle, path, body):
    """(prompt ids, reply ids); a script that ends by length gets exactly that length as the limit of its body."""
    _, request, _, _ = oracle.convert(path, json.dumps(body).encode())
    script = oracle_server.default_script(request)
    version = oracle.version(request)
    ids = oracle.reply_ids(script, oracle_server.compose(script, request, version))
    if script.get("finish") == "length":
        body["max_output_tokens" if path == "/v1/responses" else "max_tokens"] = len(ids)
    return list(oracle.encoders[version].encode(request.conversation)), ids


def make_table(oracle_server, oracle, cases, file):
    replies = {}
    for name, path, body, _ in cases:
        prompt, reply = reply_of(oracle_server, oracle, path, body)
        if replies.setdefault(tuple(prompt), reply) != reply:
            sys.exit("two replies to one prompt: %s" % name)
    for prompt, reply in replies.items():
        file.write(json.dumps({"prompt": prompt, "reply": reply}) + "\n")
    file.flush()


def difference(left, right):
    if left[0] == right[0] and isinstance(left[1], list) and isinstance(right[1], list):
        at = next((i for i, pair in enumerate(zip(left[1], right[1])) if pair[0] != pair[1]), min(len(left[1]), len(right[1])))
        left, right = ("event %d" % at, left[1][at:at + 1]), ("event %d" % at, right[1][at:at + 1])
    return "  official %s\n  ours     %s" % tuple(json.dumps(side, ensure_ascii=False)[:600] for side in (left, right))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("server")
    parser.add_argument("tools")
    parser.add_argument("nano")
    given = parser.parse_args()
    sys.path.insert(0, given.tools)
    import oracle_server

    arguments = argparse.Namespace(tokenizer=given.nano + "/tokenizer.json", added_tokens=None, model=[], context=8192, delay_ms=0, queue=0, api_key=None)
    oracle, official = start_official(oracle_server, arguments)
    cases = list(requests(oracle_server))
    num_different = 0
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as table:
        make_table(oracle_server, oracle, cases, table)
        ours = subprocess.Popen([given.server, table.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address = ours.stdout.readline().strip()
        for name, path, body, headers in cases:
            left, right = (oracle_server.ask(base, path, body, headers) for base in (official, address))
            if left != right:
                num_different += 1
                print("%s differs\n%s" % (name, difference(left, right)))
        ours.stdin.close()
        ours.wait(20)
    print("%d of %d equal; left out: %s" % (len(cases) - num_different, len(cases), ", ".join("%s (%s)" % item for item in LEFT_OUT.items())))
    return 1 if num_different or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
