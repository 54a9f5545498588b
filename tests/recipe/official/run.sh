#!/usr/bin/env bash
# Random requests and replies through the recipe probe and through the official package: no difference may show.
# Usage: tests/recipe/official/run.sh RECIPE_PROBE [--seconds N] [--seed N] [more arguments of compare.py]
# Exit code 77 when the official package is not installed and PyPI cannot be reached: ctest then says "skipped".
set -euo pipefail
probe=$(realpath "${1:?the recipe_probe program}")
shift
cd "$(dirname "$0")"
root=$(realpath ../../..)
venv=$root/build/venv-official
if ! cmp -s requirements.txt "$venv/installed.txt"; then
  python3 -m venv "$venv"
  if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement requirements.txt; then
    echo "skipped: $(tr '\n' ' ' <requirements.txt)cannot be installed from PyPI" >&2
    exit 77
  fi
  cp requirements.txt "$venv/installed.txt"
fi
exec "$venv/bin/python" compare.py "$probe" --tokenizer "$root/tests/data/tokenizer/deepseek-tokenizer.json.gz" \
  --added-tokens "$root/tests/data/tokenizer/added_tokens_v41.json" "$@"
