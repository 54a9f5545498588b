#!/usr/bin/env bash
# Runs the official clients (openai and anthropic for Python, openai for Node, an agent framework) against `deepinfer serve` on the
# bundled nano model.
# Usage: tests/clients/run.sh PATH/TO/deepinfer [pytest arguments]
# Exits 69 (unavailable) when PyPI cannot be reached. Without npm or its registry the Node client is left out.
set -euo pipefail
program=$(realpath "${1:?the deepinfer program}")
shift
cd "$(dirname "$0")"
build=$(realpath ../../build)
venv=$build/venv

# The clients do not install: is the place they come from unreachable, or are they wrong? The command asks for what is surely there.
fail_if_reachable() {
  if "$@" >/dev/null 2>&1; then
    echo "the official clients do not install although their registry answers; see above" >&2
    exit 1
  fi
}

if ! cmp -s requirements.txt "$venv/installed.txt"; then
  python3 -m venv "$venv"
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt; then
    fail_if_reachable "$venv/bin/pip" download --quiet --no-deps --dest "$build/reachable" idna
    echo "PyPI cannot be reached: the official clients are not tested" >&2
    exit 69
  fi
  cp requirements.txt "$venv/installed.txt"
fi

selection=()
leave_node_out() {
  echo "$*: the official Node client is not tested" >&2
  selection=(--ignore=test_node.py)
}
if command -v npm >/dev/null; then
  mkdir -p "$build/node"
  cp node/client.test.mjs "$build/node"
  if ! cmp -s node/package-lock.json "$build/node/installed.json"; then
    cp node/package.json node/package-lock.json "$build/node"
    if npm ci --prefix "$build/node" --silent --no-audit --no-fund; then
      cp node/package-lock.json "$build/node/installed.json"
    else
      fail_if_reachable npm view openai version
      leave_node_out "the npm registry cannot be reached"
    fi
  fi
else
  leave_node_out "npm is not installed"
fi
PROGRAM_UNDER_TEST=$program exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "${selection[@]}" "$@" .
