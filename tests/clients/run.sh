#!/usr/bin/env bash
# Runs the official clients (openai and anthropic for Python, openai for Node, an agent framework) against `deepinfer serve` on the
# bundled nano model. Without npm the Node client is left out, which is said.
# Usage: tests/clients/run.sh PATH/TO/deepinfer [pytest arguments]
# Exits 69 (unavailable) when the clients cannot be had from PyPI or the npm registry.
set -euo pipefail
program=$(realpath "${1:?the deepinfer program}")
shift
cd "$(dirname "$0")"
build=$(realpath ../../build)
venv=$build/venv
unavailable() { echo "the official clients cannot be installed: $*" >&2; exit 69; }

if ! cmp -s requirements.txt "$venv/installed.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt || unavailable "PyPI cannot be reached"
  cp requirements.txt "$venv/installed.txt"
fi

selection=()
if command -v npm >/dev/null; then
  mkdir -p "$build/node"
  cp node/client.test.mjs "$build/node"
  if ! cmp -s node/package-lock.json "$build/node/package-lock.json" || [ ! -d "$build/node/node_modules" ]; then
    cp node/package.json node/package-lock.json "$build/node"
    npm ci --prefix "$build/node" --silent --no-audit --no-fund || unavailable "the npm registry cannot be reached"
  fi
else
  echo "npm is not installed: the official Node client is not tested"
  selection=(--ignore=test_node.py)
fi
PROGRAM_UNDER_TEST=$program exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "${selection[@]}" "$@" .
