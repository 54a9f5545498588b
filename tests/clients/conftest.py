"""One server of the bundled model for all tests, and what the tests know about it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest

PROGRAM = os.environ.get("PROGRAM_UNDER_TEST", str(pathlib.Path(__file__).parents[2] / "build/dev/bin/deepinfer"))
MODEL = "nano"
PATIENCE = 60  # seconds, on a machine that is busy with other things


class Server:
    """A running `deepinfer serve` on a free port of loopback."""

    def __init__(self, *flags: str):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEEPINFER_")}
        self.process = subprocess.Popen([PROGRAM, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        found = re.search(r"https?://[\d.]+:(\d+)", line)
        if not found:
            self.process.kill()
            raise RuntimeError(f"the server did not start: {line}{self.process.stderr.read()}")
        self.url = found.group(0)

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.log = self.process.stderr.read()
        return code

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as reply:
            return json.load(reply)

    def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict]:
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def is_quiet(self) -> bool:
        health = self.get("/health")
        return all(health[name] == 0 for name in ("requests_running", "requests_waiting", "blocks_used", "slots_used"))

    def wait_until_quiet(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self.is_quiet():
            assert time.monotonic() < end, f"work goes on: {self.get('/health')}"
            time.sleep(0.01)


@pytest.fixture(scope="session")
def server():
    running = Server("--no-access-log")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def plain(text: str, **more) -> dict:
    """Arguments of a greedy request without thinking."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "extra_body": {"thinking": {"type": "disabled"}},
        **more,
    }


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]},
    },
}
