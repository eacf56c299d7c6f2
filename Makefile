# Every target sets up what it needs first: on a fresh machine `make run` and `make test` just work.

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-spark-oldest
PACKAGE := -e '.[dev,spark]'
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set, every process of the tests and every worker of Spark would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run results tour test ready-for-tests test-spark-oldest java tools lint screenshots bench clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## build the virtual environment .venv

$(READY): pyproject.toml Makefile
	$(call build,$(VENV),$(PACKAGE))

# A virtual environment (its directory), with packages (arguments of pip) in it.
define build
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(1) && uv pip install --quiet --python $(1)/bin/python $(2); \
	elif $(PYTHON) -m venv --help >/dev/null 2>&1 && $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet $(2); \
	else \
	  apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet $(2); \
	fi
	@touch $@
endef

run: setup java  ## run the main job: a broker, orders, workers, a pipeline on Spark, the dashboard
	@$(BIN)/python -m examples.orders.run $(ARGS)

results: setup  ## print what the main job has computed
	@$(BIN)/python -m examples.orders.results $(ARGS)

tour: setup  ## run the tour: publish, consume, fail, redrive, trace, crash, replay
	@$(BIN)/python examples/tour.py

test: ready-for-tests  ## run all tests
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 $(ARGS)

ready-for-tests: setup tools $(VENV)/spark-classes.jsa

$(VENV)/spark-classes.jsa: $(READY) | java
	@$(BIN)/python -m tests.spark.class_data $@ 2>/dev/null

test-spark-oldest: $(OLDEST)/.ready java  ## run the tests of Spark with the oldest PySpark that is supported
	@$(OLDEST)/bin/python -m pytest tests/spark $(ARGS)

$(OLDEST)/.ready: pyproject.toml Makefile
	$(call build,$(OLDEST),$(PACKAGE) 'pyspark==4.2.0')

java:
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; }

# What tests and benchmarks use beside Python: a browser, promtool, clients of the ports, a load tool for HTTP.
tools: java
	@missing=; for pair in chromium:chromium promtool:prometheus nc:netcat-openbsd telnet:telnet openssl:openssl curl:curl jq:jq wrk:wrk; do \
	  command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi

lint: setup  ## check style, types and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

screenshots: setup tools  ## take the pictures of the dashboard again
	@$(BIN)/python -m tests.dashboard.screenshots

bench: setup tools  ## measure the figures of the README; results go to benchmarks/results
	@$(BIN)/python -m pip show -q matplotlib 2>/dev/null || { command -v uv >/dev/null && uv pip install --quiet --python $(BIN)/python matplotlib || $(BIN)/python -m pip install --quiet matplotlib; }
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(OLDEST) penstock-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
