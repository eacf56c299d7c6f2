# Every target sets up what it needs first: on a fresh machine `make run` and `make test` just work.

VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-spark-oldest
TOOLS := .venv-tools
SITE := .venv-docs
PEERS := .venv-peers
LOCKS := $(wildcard requirements/*.txt)
LOCKED := --no-deps --require-hashes --no-build-isolation
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set, every process of the tests and every worker of Spark would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run results cluster tour test ready-for-tests test-spark-oldest java tools faces lint docs lock audit screenshots bench bench-check bench-peers bench-growth clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## build the virtual environment .venv

$(READY): pyproject.toml Makefile $(LOCKS)
	$(call build,$(VENV),spark.txt)

# A virtual environment (its directory) with this package, and with what requirements/*.txt pins: what builds packages comes
# first, then all that they and the tests need, with the PySpark of a file of its own.
define build
	@$(call environment,$(1))
	@$(call install,$(1),$(LOCKED) -r requirements/build.txt)
	@$(call install,$(1),$(LOCKED) -r requirements/dev.txt -r requirements/$(2))
	@$(call install,$(1),--no-deps --no-build-isolation -e .)
	@touch $@
endef

# An empty virtual environment.
environment = if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(1); \
	else \
	  $(PYTHON) -c 'import ensurepip' 2>/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv; }; \
	  $(PYTHON) -m venv $(1); \
	fi

# Packages (arguments of pip) into a virtual environment.
install = if command -v uv >/dev/null; then \
	  uv pip install --quiet --python $(1)/bin/python $(2); \
	else \
	  $(1)/bin/python -m pip install --quiet $(2); \
	fi

run: setup java  ## run the main job: a broker, orders, workers, a pipeline on Spark, the dashboard
	@$(BIN)/python -m examples.orders.run $(ARGS)

results: setup  ## print what the main job has computed
	@$(BIN)/python -m examples.orders.results $(ARGS)

cluster: setup  ## run a cluster: an object store, three brokers, one of which is killed every 20 s, and a load
	@$(BIN)/python -m examples.cluster.run $(ARGS)

tour: setup  ## run the tour: publish, consume, fail, redrive, trace, crash, replay
	@$(BIN)/python examples/tour.py

test: ready-for-tests  ## run all tests
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 $(ARGS)

ready-for-tests: setup tools $(VENV)/spark-classes.jsa

$(VENV)/spark-classes.jsa: $(READY) | java
	@$(BIN)/python -m tests.spark.class_data $@ 2>/dev/null

test-spark-oldest: $(OLDEST)/.ready java  ## run the tests of Spark with the oldest PySpark that is supported
	@$(OLDEST)/bin/python -m pytest tests/spark $(ARGS)

$(OLDEST)/.ready: pyproject.toml Makefile $(LOCKS)
	$(call build,$(OLDEST),spark-oldest.txt)

java:
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; }

# What tests and benchmarks use beside Python: a browser, promtool, clients of the ports, a load tool for HTTP.
tools: java
	@missing=; for pair in chromium:chromium promtool:prometheus nc:netcat-openbsd telnet:telnet openssl:openssl curl:curl jq:jq wrk:wrk; do \
	  command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi

faces: setup  ## make again what is made from the table of operations and the awaited client (tools/faces.py)
	@$(BIN)/python -m tools.faces

lint: setup  ## check style, types, import rules and what is made from other files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.faces --check

docs: $(SITE)/.ready  ## build the site of the docs into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict $(ARGS)

$(SITE)/.ready: requirements/docs.txt
	@$(call environment,$(SITE))
	@$(call install,$(SITE),--no-deps --require-hashes -r requirements/docs.txt)
	@touch $@

lock: $(TOOLS)/.ready  ## pin all dependencies again, with hashes (ARGS=--upgrade takes newer ones)
	@$(call pin,build) --group build
	@$(call pin,spark) --no-deps --group spark
	@$(call pin,spark-oldest) --no-deps --group spark-oldest
	@$(call pin,dev) pyproject.toml --all-extras --constraint requirements/spark.txt --no-emit-package pyspark
	@$(call pin,server) pyproject.toml --extra bucket --extra otel --constraint requirements/dev.txt
	@$(call pin,bench) --group bench --constraint requirements/dev.txt
	@$(call pin,peers) pyproject.toml --group peers --constraint requirements/dev.txt
	@$(call pin,docs) --group docs --constraint requirements/dev.txt
	@$(call pin,tools) --group tools

# One file for all Pythons that are supported; it names no index.
pin = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' --output-file requirements/$(1).txt $(ARGS)

audit: $(TOOLS)/.ready  ## look for known vulnerabilities of the pinned dependencies
	@status=0; for file in $(LOCKS); do \
	  echo "$$file:"; $(TOOLS)/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes --requirement $$file || status=1; \
	done; exit $$status

$(TOOLS)/.ready: requirements/tools.txt
	@$(call environment,$(TOOLS))
	@$(call install,$(TOOLS),--no-deps --require-hashes -r requirements/tools.txt)
	@touch $@

screenshots: setup tools  ## take the pictures of the dashboard again
	@$(BIN)/python -m tests.dashboard.screenshots

bench: setup tools  ## measure the figures of the README; results go to benchmarks/results
	@$(call install,$(VENV),$(LOCKED) -r requirements/bench.txt)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-check: setup tools  ## measure again, and name what is slower than recorded, beside its baseline
	@$(BIN)/python -m benchmarks.check $(ARGS)

bench-peers: $(PEERS)/.ready java  ## measure beside Redis, NATS, Kafka and others; installs them first
	@KAFKA_JARS=$${KAFKA_JARS-$(CURDIR)/$(PEERS)/kafka} benchmarks/peers/install $(PEERS)/kafka
	@KAFKA_JARS=$${KAFKA_JARS-$(CURDIR)/$(PEERS)/kafka} $(PEERS)/bin/python -m benchmarks.peers $(ARGS)

$(PEERS)/.ready: pyproject.toml Makefile requirements/build.txt requirements/peers.txt
	@$(call environment,$(PEERS))
	@$(call install,$(PEERS),$(LOCKED) -r requirements/build.txt)
	@$(call install,$(PEERS),$(LOCKED) -r requirements/peers.txt)
	@$(call install,$(PEERS),--no-deps --no-build-isolation -e .)
	@touch $@

bench-growth: setup  ## measure how costs grow with messages, topics, groups, producers and delays; draws docs/benchmarks/growth
	@$(call install,$(VENV),$(LOCKED) -r requirements/bench.txt)
	@$(BIN)/python -m benchmarks.growth $(ARGS)

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(OLDEST) $(TOOLS) $(SITE) $(PEERS) site penstock-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
