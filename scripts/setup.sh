#!/bin/sh
# Makes the virtual environment: setup.sh VENV
set -eu
venv=$1

python=""
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "setup: no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3 setup" >&2
  exit 1
fi

# Debian and Ubuntu keep the part of `venv` that brings pip in a package of its own.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ]; then as_root=""; else as_root="sudo"; fi
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  echo "setup: installing $package (this Python cannot make virtual environments without it)"
  { $as_root apt-get update -qq && $as_root apt-get install -y -qq "$package" >/dev/null; } || {
    echo "setup: that failed; run as root: apt-get install $package" >&2
    exit 1
  }
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing context-bench and what it needs into $venv"
# Everything comes by the hashes of lock.txt, the installer first; the project itself is built with what was installed, and brings nothing.
awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' lock.txt >"$venv/uv.txt"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$venv/uv.txt"
# uv takes a sixth of pip's time; pip knows more kinds of private index, so it is the second try. Modules are compiled when they are first
# imported: one in ten ever is.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes --requirement lock.txt ||
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement lock.txt
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
