"""Whole bodies and event streams against an HTTP server on the official components, for every scripted reply."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from conftest import PROGRAM

REPOSITORY = pathlib.Path(__file__).parents[2]
TOOLS = REPOSITORY.parent / "shared/tools"
TABLE_SERVER = pathlib.Path(PROGRAM).parents[1] / "tests/server/table_server"


@pytest.mark.skipif(not (TOOLS / "oracle_server.py").exists(), reason=f"the official side, {TOOLS}/oracle_server.py, is not on this machine")
def test_bodies_and_streams_are_those_of_the_official_components():
    compare = [sys.executable, str(REPOSITORY / "tests/server/compare_with_official.py"), str(TABLE_SERVER), str(TOOLS), str(REPOSITORY / "models/nano")]
    run = subprocess.run(compare, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr
