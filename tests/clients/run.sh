#!/usr/bin/env bash
# Runs the official clients against `deepinfer serve` on the bundled nano model.
# Usage: tests/clients/run.sh PATH/TO/deepinfer [pytest arguments]
set -euo pipefail
program=$(realpath "${1:?the deepinfer program}")
shift
cd "$(dirname "$0")"
venv=../../build/venv
if ! cmp -s requirements.txt "$venv/installed.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt
  cp requirements.txt "$venv/installed.txt"
fi
PROGRAM_UNDER_TEST=$program exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@" .
