#!/bin/sh
# Makes an environment under .vendors for each program of vendors.txt: vendors.sh VENV
set -euf
venv=$1
here=$(dirname "$0")
mkdir -p .vendors
while read -r name packages; do
  case $name in '' | '#'*) continue ;; esac
  home=.vendors/$name
  if [ "$(cat "$home/.ready" 2>/dev/null)" = "$packages" ]; then continue; fi
  echo "vendors: installing $packages into $home"
  rm -rf "$home"
  "$venv/bin/uv" venv --quiet --python "$venv/bin/python" "$home"
  "$venv/bin/uv" pip install --quiet --python "$home/bin/python" $packages ||
    "$venv/bin/python" -m pip --python "$home/bin/python" install --quiet --disable-pip-version-check --no-compile $packages
  echo "$packages" >"$home/.ready"
done <"$here/vendors.txt"
