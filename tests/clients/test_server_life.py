"""Start, keys and end of a server of its own."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import threading

import openai
import pytest

from conftest import MODEL, PATIENCE, Server, plain


def test_keys_names_and_log(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# testers\nfirst-key\n")
    server = Server("--api-key-file", str(keys), "--served-model-name", "my/model", "--log-format", "json")
    make = lambda key: openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=PATIENCE)  # noqa: E731
    with pytest.raises(openai.AuthenticationError):
        make("wrong").models.list()
    assert [model.id for model in make("first-key").models.list()][0] == "my/model"
    reply = make("first-key").chat.completions.create(**{**plain("Hello"), "model": "my/model"})
    assert reply.model == "my/model"
    keys.write_text("second-key\n")
    server.process.send_signal(signal.SIGHUP)
    for _ in range(200):
        try:
            make("second-key").models.list()
            break
        except openai.AuthenticationError:
            threading.Event().wait(0.05)
    with pytest.raises(openai.AuthenticationError):
        make("first-key").models.list()
    assert server.stop() == 0
    assert '"api":"chat"' in server.log and "first-key" not in server.log and "second-key" not in server.log


def test_https(tmp_path):
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    server = Server("--tls-cert-file", str(tmp_path / "cert.pem"), "--tls-key-file", str(tmp_path / "key.pem"))
    assert server.url.startswith("https://")
    trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with openai.DefaultHttpxClient(verify=trust) as http:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE, http_client=http)
        whole = client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=60)).choices[0].message.content
        for _ in range(3):
            chunks = client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=60, stream=True))
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
        stream = client.chat.completions.create(**plain("Tell me a story about a fox.", max_tokens=2000, stream=True, temperature=1.5))
        next(iter(stream))
        stream.close()
    port = int(server.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:  # no TLS at all
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in connection.recv(4096)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection, trust.wrap_socket(connection, server_hostname="127.0.0.1") as tls:
        tls.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        reply = b"".join(iter(lambda: tls.recv(4096), b""))  # an end without goodbye would raise
        assert reply.startswith(b"HTTP/1.1 200")
    assert server.stop() == 0


def test_a_running_stream_ends_well_when_the_server_is_told_to_stop():
    server = Server("--drain-timeout", "60")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    stream = iter(client.chat.completions.create(**plain("Tell me a story about a fox.", stream=True, max_tokens=100)))
    next(stream)
    server.process.terminate()
    finish = None
    for chunk in stream:
        finish = chunk.choices[0].finish_reason or finish
    assert finish in ("stop", "length")
    assert server.process.wait(PATIENCE) == 0


def test_a_stream_that_outlives_the_drain_time_gets_an_error():
    server = Server("--drain-timeout", "0")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE)
    stream = iter(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Tell me a story."}], stream=True, max_tokens=8000, seed=3))
    next(stream)
    server.process.terminate()
    with pytest.raises(openai.APIError, match="shutting down"):
        for _ in stream:
            pass
    assert server.process.wait(PATIENCE) == 0
