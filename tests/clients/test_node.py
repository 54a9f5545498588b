"""The official Node client, whose tests are node/client.test.mjs. Installed by run.sh into build/node."""

from __future__ import annotations

import os
import pathlib
import subprocess

INSTALLED = pathlib.Path(__file__).parents[2] / "build/node"


def test_the_official_node_client(server):
    run = subprocess.run(["node", "--test", "client.test.mjs"], cwd=INSTALLED, env={**os.environ, "SERVER_URL": server.url}, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
