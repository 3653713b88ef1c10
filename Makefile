# Every target prepares .venv by itself; a machine with Python 3.11 or newer needs nothing else.

.DEFAULT_GOAL := help
.PHONY: help install demo test check format bench docs site ui screenshots release fuzz torture integrations lock clean
.DELETE_ON_ERROR:
SHELL := /bin/sh

BIN := .venv/bin
READY := .venv/.installed
PEERS := .venv/.peers
ORCHESTRATORS := .integrations/.installed

# Name another interpreter with `make install PYTHON=/path/to/python`.
PYTHON ?=
# Workers for the tests, and further arguments for pytest: `make test ARGS="-k parser"`.
# One more than there are cores: many tests wait for processes and servers of theirs.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1)
ARGS ?=
# Where tests make their graphs: in memory, where there is room for it, because each of them makes many files.
SCRATCH ?= $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm"; found = 1 } \
	END { if (!found) print "$${TMPDIR:-/tmp}" }')
# The tests of languages and loads whose tasks `make torture` spreads over more partitions than there are rows.
SCATTERED := tests/pipeline/query/test_cases.py tests/pipeline/test_load.py tests/pipeline/test_merge.py \
	tests/pipeline/test_diff.py tests/pipeline/test_sink.py tests/pipeline/test_algorithms.py
# How many inputs each property test of `make fuzz` tries.
OMNIGRAPH_FUZZ ?= 50000

# Tests start many processes, and without compiled files each of them would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

install: $(READY) ## Make .venv with the omnigraph command in it
	@echo "Ready: $(BIN)/omnigraph"

demo: $(READY) ## Give a tour with a million rows and real output; ARGS=--quick for a short one, ARGS=--cluster for a deployment
	@$(BIN)/python demo/run.py $(ARGS)

test: $(READY) ## Run the tests
	@TMPDIR=$(SCRATCH) $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 $(ARGS)

check: $(READY) ## Lint, format check, strict types, import contracts, retired words
	@failed=0; \
	$(BIN)/ruff check --quiet . || failed=1; \
	$(BIN)/ruff format --check --quiet . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	$(BIN)/python tests/house/retired_words.py || failed=1; \
	exit $$failed

format: $(READY) ## Rewrite the source in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(PEERS) ## Run all workloads beside other databases; ARGS=--quick for less than ten minutes
	@$(BIN)/python -m bench $(ARGS)

docs: $(READY) ## Rewrite the generated parts of docs/ and the stored --help
	@$(BIN)/python -m omnigraph.cli.reference docs

site: $(READY) ## Put docs/ together as a site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Written: build/site/index.html"

ui: $(READY) ## Build the explorer that `omnigraph ui` and the server show
	@$(BIN)/python ui/build.py

screenshots: $(READY) ui ## Take the pictures of docs/explorer.md with a browser
	@$(BIN)/python -m tests.ui.screenshots docs/images

release: $(READY) ui ## Build wheel and sdist in dist/, and run the README with the wheel in an empty environment
	@$(BIN)/python requirements/release.py

fuzz: $(READY) ## Run the long form of the property tests
	@OMNIGRAPH_FUZZ=$(OMNIGRAPH_FUZZ) $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 -m fuzz $(ARGS)

torture: $(READY) ## Run the long form of the crash tests, and tasks on Spark with more partitions than rows
	@OMNIGRAPH_TORTURE=1 TMPDIR=$(SCRATCH) $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 -m crash $(ARGS)
	@OMNIGRAPH_TEST_SPARK_MASTER='local[4,1]' OMNIGRAPH_TEST_SPARK_PARTITIONS=32 TMPDIR=$(SCRATCH) \
		$(BIN)/python -m pytest $(SCATTERED) $(ARGS)

integrations: $(ORCHESTRATORS) ## Run the tests with Airflow, Dagster and OpenLineage, in an environment of their own
	@PYTHONPATH=$(CURDIR)/src:$(CURDIR) TMPDIR=$(SCRATCH) .integrations/bin/python -m pytest -c tests/integrations/real/pytest.ini tests/integrations/real $(ARGS)

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" pyproject.toml

lock: $(READY) ## Pin the newest dependencies, with hashes, in requirements/
	@$(COMPILE) --extra dev --output-file requirements/dev.txt
	@$(COMPILE) --constraint requirements/dev.txt --output-file requirements/runtime.txt
	@$(COMPILE) --constraint requirements/dev.txt --extra bench --output-file requirements/bench.txt
	@$(COMPILE) --extra integrations --extra spark --output-file requirements/integrations.txt

clean: ## Remove .venv, caches and build results
	@rm -rf .venv .venv.lock .integrations dist build ui/node_modules src/omnigraph/server/page demo/out demo/out-cluster .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): requirements/dev.txt requirements/install.py pyproject.toml
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	  if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    exec "$$python" requirements/install.py; \
	  elif [ -n "$(PYTHON)" ]; then \
	    echo "error: $(PYTHON) is not a Python 3.11 or newer with venv and ensurepip" >&2; exit 1; \
	  fi; \
	done; \
	echo "error: no Python 3.11 or newer with venv and ensurepip was found" >&2; \
	echo "  help: install one, or name it: make install PYTHON=/path/to/python" >&2; exit 1

$(PEERS): $(READY) requirements/bench.txt
	@echo "Installing the databases to compare with ..."
	@$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@

$(ORCHESTRATORS): $(READY) requirements/integrations.txt
	@echo "Installing Airflow, Dagster and OpenLineage ..."
	@$(BIN)/python -m venv --clear .integrations
	@.integrations/bin/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes -r requirements/integrations.txt
	@touch $@
