# Installs the Debian packages a build needs; sourced by demo.sh and test.sh. Quick when nothing is missing.

# shellcheck shell=bash
say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

build_packages=(ca-certificates ccache cmake g++ git libboost1.81-dev libcli11-dev libfmt-dev libhwy-dev libicu-dev libsimdjson-dev libspdlog-dev
                libssl-dev ninja-build pkg-config zlib1g-dev)
test_packages=(libbenchmark-dev libgtest-dev python3 python3-venv)

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing ${missing[*]}"
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Missing packages: ${missing[*]}. Install them as root, or install sudo." >&2; exit 2; }
    sudo=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
