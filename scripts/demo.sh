#!/usr/bin/env bash
# Installs what is missing, builds a release and asks the bundled nano model one question.
# Usage: ./scripts/demo.sh ["question"]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

question=${1:-"What is the capital of France?"}
install_packages "${build_packages[@]}"
if [ ! -f build/release/build.ninja ]; then
  say "configuring build/release"
  cmake --preset release >/dev/null
fi
say "building (a few minutes the first time)"
cmake --build build/release --target deepinfer 1>&2
say "question: $question"
exec build/release/bin/deepinfer run --prompt "$question"
