#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests. The README's test command; .ci/run calls exactly this.
# Usage: ./scripts/test.sh          include table, unit tests, goldens, laws, the official clients
#        ./scripts/test.sh full     the same, then every header alone, every room again under ASan and UBSan, engine and server under TSan
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

jobs=$(nproc)
started=$SECONDS
stage() { say "[$((SECONDS - started)) s] $*"; }

configure() {  # preset
  cmake --preset "$1" >"build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log"; exit 1; }
}

# Clients come from PyPI and npm. Where these cannot be reached, everything else still counts.
official_clients() {
  local status=0
  tests/clients/run.sh build/dev/bin/deepinfer || status=$?
  if [ "$status" = 69 ]; then
    stage "left out: the official clients (see the reason above)"
  elif [ "$status" != 0 ]; then
    exit "$status"
  fi
}

install_packages "${build_packages[@]}" "${test_packages[@]}"
mkdir -p build

stage "include table"
python3 tools/check_includes.py

stage "building"
configure dev
cmake --build --preset dev -j "$jobs" 2>&1 | tee build/dev.build.log
# ptxas says in passing that it runs products on the tensor cores one by one, which halves their speed (C7510 to C7515).
if grep '(C75' build/dev.build.log; then
  say "a kernel's products wait for each other: see the lines above (kernels/gemm_operands.cuh says how to keep operands apart)"
  exit 1
fi
stage "tests"
ctest --test-dir build/dev --output-on-failure --no-tests=error -j "$jobs"
stage "official clients against deepinfer serve"
official_clients
[ "${1:-}" = full ] || { stage "all tests passed"; exit 0; }

stage "every header alone"
python3 tools/check_includes.py --headers --jobs "$jobs"

stage "building with AddressSanitizer and UndefinedBehaviorSanitizer"
configure asan
cmake --build --preset asan -j "$jobs"
stage "tests under AddressSanitizer and UndefinedBehaviorSanitizer"
# The plain reference kernels are slow and have nothing to find here that the fast ones and the contract table do not.
GTEST_FILTER='-*/Reference' ctest --test-dir build/asan --output-on-failure --no-tests=error -j "$jobs"

stage "building engine, server and threads with ThreadSanitizer"
configure tsan
cmake --build --preset tsan -j "$jobs" --target base_tests comm_tests engine_tests server_tests
stage "tests under ThreadSanitizer"
ctest --test-dir build/tsan --output-on-failure --no-tests=error -R '^(base|comm|engine|server)$'
stage "all tests passed"
