#!/bin/sh
# Makes an environment under .vendors for each program of vendors.txt, and one for the clients of tests/clients/package-lock.json: vendors.sh VENV
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

# Programs from npm. Their own install scripts are not run; the one that is needed puts Claude Code's program in its place.
clients=tests/clients
home=.vendors/clients
if ! command -v npm >/dev/null; then
  echo "vendors: npm is not there, so the clients of $clients are not installed"
elif ! cmp -s "$clients/package-lock.json" "$home/.ready"; then
  echo "vendors: installing the clients of $clients into $home"
  rm -rf "$home"
  mkdir -p "$home/bin"
  cp "$clients/package.json" "$clients/package-lock.json" "$clients/.npmrc" "$home/"
  (cd "$home" && npm ci --silent --ignore-scripts)
  (cd "$home/node_modules/@anthropic-ai/claude-code" && node install.cjs >/dev/null)
  for program in .bin/claude .bin/codex .bin/gemini opencode-linux-x64-baseline/bin/opencode; do
    if [ -e "$home/node_modules/$program" ]; then ln -s "../node_modules/$program" "$home/bin/"; fi
  done
  cp "$clients/package-lock.json" "$home/.ready"
fi
