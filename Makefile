# Two commands for users: `make demo` and `make test`. Everything they need is set up on the way.
# The rest is for developers: `make check` is the quick one before a commit.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AXE := tests/browser/node_modules/.ready

# `make clients ONLY='-m short'`: one of each kind of case.
ONLY ?=
# `make pairs PAIRS=kompact-stream`: some of them.
PAIRS ?=

.PHONY: image jobs release words demo test clients wheels pairs model axe docs pictures setup vendors lock check format lint types imports quick fuzz unit clean help

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: $(READY)   ## set up everything and show what the instrument can see, offline, with a real (small) model
	@$(BIN)/context-bench model fetch
	@$(BIN)/context-bench demo --run demo

# Tests wait for servers and children as much as they reckon: more processes than cores.
test: $(READY) model $(AXE)  ## set up everything and run the whole test suite
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# They are started one after another: several at once only wait for the machine. Recordings are left in build/clients.
clients: vendors  ## real clients (Claude Code, Codex, opencode, aider, mini-swe-agent, Gemini CLI) behind a watch, on loopback
	$(BIN)/python -m pytest tests/clients $(ONLY)

wheels: $(READY)  ## the wheel in clean environments: 3.11, 3.12, 3.13, with the highest and the lowest versions of what it needs
	$(BIN)/python scripts/wheels.py $(ONLY)
	@if [ -z "$(ONLY)" ]; then $(BIN)/python scripts/wheels.py --demo && $(MAKE) --no-print-directory jobs; fi

jobs: $(READY)  ## six questions of a newcomer, from zero, with the wheel in a clean environment; `ONLY='--job gate'`: one
	$(BIN)/python scripts/jobs.py $(ONLY)

release: $(READY)  ## sdist, wheel, hashes and list of components in dist/; the changelog gets the version. `ONLY=--dry-run` changes nothing
	$(BIN)/python scripts/release.py $(ONLY)

image: $(READY)  ## a container image, built and tried where docker or podman answers; its file is checked in any case
	$(BIN)/python scripts/image.py

# Versions are installed into the user's cache (CONTEXT_BENCH_PAIRS names another folder), then driven on loopback.
pairs: $(READY)  ## real bugs: are the affected and the mended version of each package told apart?
	$(BIN)/python benchmarks/time_machine.py $(PAIRS)

model: $(READY)  ## fetch the model that everything here can run on offline, unless it is there
	@$(BIN)/context-bench model fetch --quiet

setup: $(READY)  ## leave a .venv with everything for development in it

docs: $(READY)   ## build the documentation into site/, links checked; it opens from disk
	@$(BIN)/python scripts/docs.py

vendors: $(READY)  ## install the programs that are measured (agents, clients, proxies), each in an environment of its own
	@sh scripts/vendors.sh $(VENV)

$(READY): pyproject.toml lock.txt scripts/setup.sh
	@sh scripts/setup.sh $(VENV)
	@touch $@

pictures: $(READY) model  ## the documentation's pictures, from the demo's run (made first if it is not there) and the last browser tests
	$(BIN)/python scripts/pictures.py

# The accessibility checker of the browser tests; where there is no npm, they are listed as not run.
axe: $(AXE)

$(AXE): tests/browser/package-lock.json
	@if command -v npm >/dev/null; then cd tests/browser && npm ci --silent && touch node_modules/.ready; fi

check: $(READY)  ## under a minute: format, lint, types, import contract, and the unit tests that name nothing slow
	@MYPY_NUM_WORKERS=2 $(MAKE) --no-print-directory --jobs 2 --output-sync=target format lint words types imports quick

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

words: $(READY)  ## spelling, and words that are not used here
	$(BIN)/codespell src docs scripts README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md
	$(BIN)/python scripts/words.py

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports --no-cache

quick: $(READY)
	$(BIN)/python -m pytest --quick -n 2 --dist loadfile tests/unit

fuzz: $(READY)   ## the 20 parsers nearest to the network, 200,000 inputs each, led by coverage: hours (benchmarks/fuzz)
	$(BIN)/python benchmarks/fuzz/fuzz.py

unit: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit

lock:            ## refresh lock.txt (versions and hashes of all files) from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --generate-hashes --upgrade --quiet --output-file lock.txt
	awk '/^xllamacpp==/ { found = 1 } found { print } found && !/\\$$/ { exit }' lock.txt >src/context_bench/llm/engine.txt

clean:           ## remove what setup and the tests leave behind
	rm -rf $(VENV) .vendors tests/browser/node_modules build/pictures build/clients .pytest_cache .mypy_cache .ruff_cache .hypothesis
