"""Case builders for the recipe probe protocol: systematic lists and seeded random requests.

Only inputs are made here; expected values always come from oracle.py.
"""
import base64
import json
import random
import struct
import zlib

from material import ARGS, D, FLASH, NAMES, NONSTRICT_BAD, OFF, PRO, SCHEMAS, STRANGE_FLOATS, STRICT, TEXTS


def J(x):
    return json.dumps(x, ensure_ascii=False, separators=(",", ":"))


def u(t):
    return {"role": "user", "content": t}


def sy(t):
    return {"role": "system", "content": t}


def tl(i, t):
    return {"role": "tool", "tool_call_id": i, "content": t}


def asst(t, r=None, calls=None, **k):
    d = {"role": "assistant", "content": t, **k}
    if r is not None:
        d["reasoning_content"] = r
    if calls:
        d["tool_calls"] = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return d


def fn(name="f", p={"type": "object"}, **k):
    return {"type": "function", "function": {"name": name, "parameters": p, **k}}


def rfn(name="f", p={"type": "object"}, **k):
    return {"type": "function", "name": name, "parameters": p, **k}


def mfn(name="f", p={"type": "object"}, **k):
    return {"name": name, "input_schema": p, **k}


def png(w, h, seed=0, color=2):
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    rows = []
    for y in range(h):
        row = bytearray(b"\0")
        for x in range(w):
            row += bytes(((x * 255 // max(1, w - 1)) if c == 0 else (y * 255 // max(1, h - 1)) if c == 1 else (seed * 37) % 256 if c == 2 else 255) for c in range(channels))
        rows.append(bytes(row))

    def chunk(t, d):
        return struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d) & 0xffffffff)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, color, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(b"".join(rows), 9)) + chunk(b"IEND", b""))


def b64(b):
    return base64.b64encode(b).decode()


def call_block(calls, v41=True, newline=True):
    """calls: [(name, [(key, is_string, value)])] as the model would write them."""
    s = " " if v41 else ""
    w = " calls" if v41 else "tool_calls"
    out = [f"<{D}{w}>\n"]
    for name, params in calls:
        out.append(f"<{D}{s}invoke name=\"{name}\">\n")
        for k, st, v in params:
            out.append(f"<{D}{s}parameter name=\"{k}\" string=\"{'true' if st else 'false'}\">{v}</{D}{s}parameter>\n")
        if not params:
            out.append("\n")
        out.append(f"</{D}{s}invoke>\n")
    out.append(f"</{D}{w}>")
    return "".join(out)


# ------------------------------------------------------------------ random requests

def rtext(r):
    k = r.random()
    if k < 0.75:
        return r.choice(TEXTS)
    if k < 0.9:
        return "".join(r.choice(TEXTS)[:12] for _ in range(r.randint(1, 5)))
    return "".join(chr(r.choice([r.randint(32, 126), r.randint(0x4e00, 0x9fa5), r.randint(0x1f300, 0x1f6ff), 10])) for _ in range(r.randint(1, 40)))


def rtools(r, make, n=None):
    names = r.sample(NAMES, n or r.randint(1, 4))
    out = []
    for name in names:
        k = {}
        if r.random() < .7:
            k["description"] = rtext(r)
        kind = r.random()
        if kind < .2:
            k["strict"] = False
        elif kind < .3:
            k["strict"] = True
        schemas = STRICT if kind > .2 and kind < .32 else NONSTRICT_BAD if kind > .98 else SCHEMAS
        out.append(make(name, r.choice(schemas), **k))
    return out


def rchat(r, images=True):
    body = {"model": r.choice([FLASH, FLASH, PRO]), "messages": []}
    m = body["messages"]
    if r.random() < .5:
        m.append(sy(rtext(r)))
    for turn in range(r.randint(1, 5)):
        m.append(u(rtext(r)))
        if images and r.random() < .1:
            m.append(u([{"type": "text", "text": rtext(r)}, {"type": "image_url", "image_url": {"url": "https://example.com/%d.png" % r.randint(0, 9), "detail": r.choice(["low", "high", "original", "auto"])}}]))
        if r.random() < .15:
            m.append(sy(rtext(r)))
        if r.random() < .1:
            m.append({"role": "latest_reminder", "content": rtext(r)})
        if r.random() < .75:
            calls = None
            if r.random() < .45:
                calls = [("c%d_%d_%d" % (turn, i, r.randint(0, 9)), r.choice(NAMES), r.choice(ARGS)) for i in range(r.randint(1, 4))]
            m.append(asst(rtext(r) if r.random() < .8 or not calls else None, rtext(r) if r.random() < .6 else None, calls))
            if calls:
                order = list(calls)
                r.shuffle(order)
                for c in order:
                    t = rtext(r)
                    m.append(tl(c[0], t if r.random() < .8 else [{"type": "text", "text": t}, {"type": "text", "text": rtext(r)}]))
    if r.random() < .3:
        body["thinking"] = {"type": r.choice(["enabled", "disabled", "adaptive"])}
    if r.random() < .3:
        body["reasoning_effort"] = r.choice(["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"])
    if r.random() < .4:
        body["tools"] = rtools(r, fn)
        if r.random() < .4:
            body["tool_choice"] = r.choice(["auto", "none", "required", {"type": "function", "function": {"name": body["tools"][0]["function"]["name"]}}])
    if r.random() < .15:
        body["response_format"] = r.choice([{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": r.choice(SCHEMAS)}}, {"type": "regex", "regex": "^a+$"}])
    if r.random() < .1 and "tools" not in body:
        m.append(asst(rtext(r), rtext(r) if r.random() < .5 else None, prefix=True))
    for k, vs in (("temperature", STRANGE_FLOATS if r.random() < .1 else [0, .3, 1, 1.7, 2]), ("top_p", [.1, .5, .95, .99, 1]), ("max_tokens", [1, 100, 8192, 393216]), ("seed", [0, 7, 2**53 + 1]), ("stop", ["a", ["x", "yy"], "\n\n"]), ("stream", [True, False])):
        if r.random() < .2:
            body[k] = r.choice(vs)
    if r.random() < .08:
        k = r.choice(["messages", "tools", "temperature", "stop", "model", "max_tokens"])
        body[k] = r.choice([None, 5, "x", [], {}, -1, True])
    return body


def rmessages(r):
    body = {"model": r.choice([FLASH, FLASH, PRO]), "max_tokens": r.choice([1, 100, 4096, 500000]), "messages": []}
    if r.random() < .5:
        body["system"] = rtext(r) if r.random() < .5 else [{"type": "text", "text": rtext(r)} for _ in range(r.randint(1, 3))]
    tools = rtools(r, mfn) if r.random() < .5 else None
    if tools:
        if r.random() < .2:
            tools[0]["defer_loading"] = True
        body["tools"] = tools
        if r.random() < .4:
            body["tool_choice"] = r.choice([{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": tools[-1]["name"]}])
    m = body["messages"]
    for turn in range(r.randint(1, 4)):
        blocks = [{"type": "text", "text": rtext(r)}]
        if r.random() < .15:
            blocks.append({"type": "image", "source": r.choice([{"type": "url", "url": "https://example.com/a.png"}, {"type": "base64", "media_type": "image/png", "data": b64(b"abc%d" % turn)}])})
        if r.random() < .05:
            blocks.append({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}})
        m.append({"role": "user", "content": blocks if r.random() < .5 else rtext(r)})
        if r.random() < .1:
            m.append({"role": "system", "content": rtext(r)})
        if r.random() < .75:
            a = []
            if r.random() < .6:
                a.append({"type": "thinking", "thinking": rtext(r), "signature": "s"})
            if r.random() < .7:
                a.append({"type": "text", "text": rtext(r)})
            uses = [{"type": "tool_use", "id": "t%d_%d" % (turn, i), "name": r.choice(NAMES), "input": r.choice([{}, {"a": 1}, {"é": "ü", "n": [1.0, 1e16, None]}, {"s": rtext(r)}, {"b": {"c": {"d": True}}}])} for i in range(r.randint(1, 3))] if r.random() < .45 or not a else []
            m.append({"role": "assistant", "content": a + uses})
            if uses:
                order = list(uses)
                r.shuffle(order)
                res = [{"type": "tool_result", "tool_use_id": x["id"], "content": rtext(r) if r.random() < .6 else [{"type": "text", "text": rtext(r)}, {"type": "text", "text": rtext(r)}]} for x in order]
                if r.random() < .3:
                    res.append({"type": "text", "text": rtext(r)})
                m.append({"role": "user", "content": res})
    if r.random() < .3:
        body["thinking"] = r.choice([{"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}, {"type": "adaptive"}])
    if r.random() < .3:
        body["output_config"] = {"effort": r.choice(["low", "medium", "high", "xhigh", "max", "ultra"])}
    for k, vs in (("temperature", [0, .3, 1, 1.7]), ("top_p", [.1, .95, 1]), ("stop_sequences", [["a"], ["x", "yy"]]), ("stream", [True])):
        if r.random() < .2:
            body[k] = r.choice(vs)
    return body


def rresponses(r):
    body = {"model": r.choice([FLASH, FLASH, PRO])}
    if r.random() < .4:
        body["instructions"] = rtext(r)
    if r.random() < .15:
        body["input"] = rtext(r)
        return body
    items = []
    body["input"] = items
    n = 0
    for turn in range(r.randint(1, 4)):
        role = r.choice(["user", "user", "user", "developer", "system"])
        items.append({"type": "message", "role": role, "content": rtext(r) if r.random() < .5 else [{"type": "input_text", "text": rtext(r)} for _ in range(r.randint(1, 2))]})
        if r.random() < .75:
            if r.random() < .5:
                items.append({"type": "reasoning", "id": "rs_%d" % n, "summary": [], "content": [{"type": "reasoning_text", "text": rtext(r)} for _ in range(r.randint(1, 2))]})
            if r.random() < .7:
                items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": rtext(r)}]})
            if r.random() < .5:
                calls = []
                for _ in range(r.randint(1, 3)):
                    n += 1
                    c = {"type": "function_call", "call_id": "c%d" % n, "name": r.choice(NAMES), "arguments": r.choice(ARGS)}
                    if r.random() < .2:
                        c["namespace"] = "ns"
                    calls.append(c)
                items += calls
                order = list(calls)
                r.shuffle(order)
                items += [{"type": "function_call_output", "call_id": c["call_id"], "output": rtext(r)} for c in order]
    if r.random() < .5:
        tools = rtools(r, rfn)
        if r.random() < .3:
            tools.append({"type": "namespace", "name": "ns", "description": rtext(r), "tools": rtools(r, rfn)})
        if r.random() < .2:
            tools.append({"type": "custom", "name": "apply_patch"})
        if r.random() < .2:
            tools.append({"type": "web_search"})
        body["tools"] = tools
        if r.random() < .3:
            body["tool_choice"] = r.choice(["auto", "none", "required", {"type": "function", "name": tools[0]["name"]}])
    if r.random() < .4:
        body["reasoning"] = {"effort": r.choice(["none", "low", "medium", "high", "xhigh", "max", None])}
    if r.random() < .2:
        body["text"] = {"format": r.choice([{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "name": "n", "schema": r.choice(SCHEMAS)}])}
    for k, vs in (("temperature", [0, .3, 1, 1.7]), ("top_p", [.1, .95, 1]), ("max_output_tokens", [1, 100]), ("stream", [True]), ("user", ["u"])):
        if r.random() < .2:
            body[k] = r.choice(vs)
    return body


def ranswer(r):
    """Random model output, sometimes well formed, sometimes not."""
    out = []
    if r.random() < .7:
        out.append(rtext(r) + r.choice(["</think>", "\n</think>\n\n", "\n\n</think>", ""]))
    for _ in range(r.randint(0, 2)):
        out.append(rtext(r))
    if r.random() < .6:
        params = [(r.choice(["a", "city", "x y", "é", ""]), r.random() < .6, r.choice(["v", "1", "{\"k\":[1,2]}", "q\"\\\n", "a<b", "", "</x>", "日本"])) for _ in range(r.randint(0, 3))]
        block = call_block([(r.choice(NAMES), params) for _ in range(r.randint(1, 3))], r.random() < .7)
        if r.random() < .3:
            i = r.randrange(len(block))
            block = block[:i] + r.choice(["", "<", "\"", D, "\n", " "]) + block[i + r.randint(0, 3):]
        out.append(r.choice(["", "\n", "\n\n"]) + block)
        if r.random() < .2:
            out.append(rtext(r))
    text = "".join(out)
    if r.random() < .2:
        text = text[:r.randrange(len(text) + 1)]
    return text


def rpieces(r, text):
    pieces = []
    while text:
        n = r.choice([1, 1, 2, 3, 5, 8, 20, 60])
        pieces.append(text[:n])
        text = text[n:]
    return pieces


def rstream(r):
    api = r.choice(["chat", "chat", "messages", "responses"])
    tools = r.random() < .7
    body = {"model": r.choice([FLASH, PRO])}
    think = r.random() < .6
    if api == "chat":
        body.update(messages=[u("x")], stream=r.random() < .8)
        if tools:
            body["tools"] = [fn(n) for n in NAMES[:3]]
        if not think:
            body.update(OFF)
        if body["stream"] and r.random() < .5:
            body["stream_options"] = {"include_usage": r.random() < .7}
        if r.random() < .2:
            body["stop"] = r.choice(["a", ["\n\n", "b"], "}"])
    elif api == "messages":
        body.update(messages=[u("x")], max_tokens=100, stream=True)
        if tools:
            body["tools"] = [mfn(n) for n in NAMES[:3]]
        if not think:
            body.update(OFF)
        if r.random() < .2:
            body["stop_sequences"] = ["a", "\n\n"]
    else:
        body.update(input="x", stream=True)
        if tools:
            body["tools"] = [rfn(n) for n in NAMES[:3]]
        if not think:
            body["reasoning"] = {"effort": "none"}
    text = ranswer(r)
    chunks = []
    if r.random() < .8:
        p = r.randint(0, 5000)
        chunks.append({"ready": {"prompt_tokens": p, "prompt_cache_hit_tokens": r.randint(0, p), "system_fingerprint": r.choice([None, "fp_1"])}})
    chunks += [{"text": t, "token_count": r.randint(0, 4)} for t in rpieces(r, text)]
    if r.random() < .9:
        chunks.append({"finish": r.choice(["stop", "stop", "length", "content_filter"])})
    return {"op": "stream", "api": api, "body": J(body), "id": "id-%d" % r.randint(0, 99), "chunks": chunks}


def random_case(r):
    k = r.random()
    if k < .35:
        return rstream(r)
    api = r.choice(["chat", "messages", "responses"])
    body = {"chat": rchat, "messages": rmessages, "responses": rresponses}[api](r)
    case = {"op": r.choice(["convert", "render", "render"]), "api": api, "body": J(body)}
    if case["op"] == "render" and r.random() < .3:
        case["encode"] = True
    if r.random() < .15:
        case["options"] = r.choice([{"default_thinking_mode": False}, {"reasoning_content_behavior": "reject"}, {"messages_web_search": "drop"}, {"responses_web_search": "reject"}])
    return case
