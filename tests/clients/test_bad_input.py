"""What clients get wrong: one clear sentence each, and the next request works."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse

import openai
import pytest

from conftest import MODEL, PROGRAM, plain

HELLO = [{"role": "user", "content": "Hello"}]


def body(**more) -> bytes:
    return json.dumps({"model": MODEL, "messages": HELLO, "thinking": {"type": "disabled"}, **more}).encode()


CASES = [
    ("malformed JSON", b'{"model": "nano", "messages": [', 400, "invalid JSON"),
    ("empty body", b"", 400, "invalid JSON"),
    ("unknown field type", body(temperature="hot"), 400, "invalid request body"),
    ("messages of another type", body(messages="Hello"), 400, "invalid request body"),
    ("content of another type", body(messages=[{"role": "user", "content": 5}]), 400, "invalid request body"),
    ("unknown role", body(messages=[{"role": "wizard", "content": "x"}]), 400, "invalid request body"),
    ("empty messages", body(messages=[]), 400, "Empty input messages"),
    ("max_tokens 0", body(max_tokens=0), 400, "max_tokens"),
    ("max_tokens huge", body(max_tokens=2**31), 400, "max_tokens"),
    ("max_tokens beyond 64 bits", body(max_tokens=10**30), 400, "invalid"),
    ("prompt longer than the context", body(messages=[{"role": "user", "content": "word " * 20000}]), 400, "maximum context length is 8192 tokens"),
    ("invalid UTF-8", b'{"model": "nano", "messages": [{"role": "user", "content": "\xff\xfe"}]}', 400, "invalid JSON"),
    ("lone surrogate", b'{"model": "nano", "messages": [{"role": "user", "content": "\\ud800"}]}', 400, "invalid JSON"),
    ("deep nesting", b"[" * 100_000, 400, "invalid JSON"),
    ("body over the limit", b" " * ((32 << 20) + 1), 413, "larger than"),
    ("unknown model", body(model="gpt-9"), 400, "supported API model names"),
]


@pytest.mark.parametrize("wrong, status, says", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_wrong_body_gets_one_clear_answer(server, client, wrong, status, says):
    got, reply = server.post("/v1/chat/completions", wrong)
    assert got == status
    assert says in reply["error"]["message"]
    assert client.chat.completions.create(**plain("Hello")).choices[0].finish_reason == "stop"
    server.wait_until_quiet()


def test_the_official_client_raises_its_own_errors(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**plain("Hello", max_tokens=0))
    assert "max_tokens" in refused.value.message


@pytest.mark.parametrize("bytes_sent", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"\r\n\r\n\r\n"], ids=["TLS hello", "broken header", "empty lines"])
def test_bytes_that_are_no_http(server, client, bytes_sent):
    with socket.create_connection(("127.0.0.1", urllib.parse.urlparse(server.url).port), timeout=20) as connection:
        connection.sendall(bytes_sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert client.chat.completions.create(**plain("Hello")).choices[0].finish_reason == "stop"


def test_a_port_in_use_is_one_sentence(server):
    port = str(urllib.parse.urlparse(server.url).port)
    run = subprocess.run([PROGRAM, "serve", "--port", port], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and run.stdout == ""
    assert port in run.stderr and "--port" in run.stderr and run.stderr.count("\n") == 1


def test_a_missing_model_is_one_sentence():
    run = subprocess.run([PROGRAM, "run", "--model", "/no/such/model", "--prompt", "x"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "/no/such/model" in run.stderr and run.stderr.count("\n") == 1
