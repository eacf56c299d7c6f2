# Every target sets up what it needs first: on a fresh machine `make run` and `make test` just work.

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup run test java lint bench clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## build the virtual environment .venv

$(READY): pyproject.toml Makefile
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && uv pip install --quiet --python $(BIN)/python -e '.[dev,spark]'; \
	elif $(PYTHON) -m venv --help >/dev/null 2>&1 && $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet -e '.[dev,spark]'; \
	else \
	  apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet -e '.[dev,spark]'; \
	fi
	@touch $@

run: setup  ## run the demonstration
	@$(BIN)/python examples/tour.py

test: setup java  ## run all tests
	@$(BIN)/python -m pytest $(ARGS)

java:
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; }

lint: setup  ## check style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: setup  ## measure the figures of the README; results go to benchmarks/results
	@$(BIN)/python -m pip show -q matplotlib 2>/dev/null || { command -v uv >/dev/null && uv pip install --quiet --python $(BIN)/python matplotlib || $(BIN)/python -m pip install --quiet matplotlib; }
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
