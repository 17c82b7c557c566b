# Everything there is to do here. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: .venv/compiled ## Set up, then start the broker with its log under ./data
	@$(BIN)/headwater serve --data data $(ARGS)

.PHONY: pipeline
PROJECT ?= pipeline
pipeline: .venv/spark ## Set up Spark, then turn the broker's topics into tables, in ./$(PROJECT)
	@[ -e $(PROJECT) ] || $(BIN)/headwater pipeline init $(PROJECT)
	@$(BIN)/headwater pipeline run --project $(PROJECT) $(ARGS)

.PHONY: demo
demo: .venv/spark .venv/compiled ## Set up, then run a broker, simulated clients and a pipeline to look at
	@$(BIN)/headwater demo $(ARGS)

# Costly tests have a marker; `make test` takes those of them that are marked smoke (CONTRIBUTING.md).
PYTEST := $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder
COSTLY := (spark or spark_process or torture or bench or browser)

.PHONY: test
test: .venv/classes.jsa browser ## Set up, then run the tests that touch every feature
	@$(PYTEST) --budget test -m "smoke or not $(COSTLY)" $(ARGS)

.PHONY: test-rest
test-rest: .venv/classes.jsa browser ## Run the tests that `make test` leaves out
	@$(PYTEST) --budget rest -m "$(COSTLY) and not smoke" $(ARGS)

.PHONY: test-all
test-all: .venv/classes.jsa browser ## Run all tests
	@$(PYTEST) --budget all $(ARGS)

.PHONY: test-compiled
test-compiled: .venv/classes.jsa ## Run the tests of the hot path on compiled modules
	@TEST_COMPILED=1 $(PYTEST) -m "not plain and not $(COSTLY)" \
		tests/protocols tests/transport tests/broker tests/log tests/test_message.py $(ARGS)

.PHONY: browser
browser: ## Install chromium and its font for the tests of the console, where apt-get may
	@tests/console/browser/install.sh

.PHONY: check
check: lint types test test-compiled bench-check test-rest ## All that CI runs: lint, format, types, all tests

.PHONY: lint
lint: .venv/dev ## Lint and check the format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

.PHONY: types
types: .venv/dev ## Check the types
	@$(BIN)/mypy

.PHONY: format
format: .venv/dev ## Format the code and fix what lint can fix
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: bench
bench: .venv/dev .venv/compiled ## Benchmark against nats-server, JetStream, mosquitto and redis (minutes)
	@$(BIN)/python -m bench $(ARGS)

.PHONY: bench-check
bench-check: .venv/dev .venv/compiled ## Compare the cost of the hot paths with an earlier commit (two minutes)
	@$(BIN)/python -m bench.check $(ARGS)

.PHONY: bench-spark
bench-spark: .venv/dev .venv/compiled ## Benchmark Spark on the log (minutes)
	@$(BIN)/python -m bench.spark $(ARGS)

.PHONY: bench-console
bench-console: .venv/dev .venv/compiled ## Measure what it costs the broker to be looked at (minutes)
	@$(BIN)/python -m bench.console $(ARGS)

.PHONY: torture
torture: .venv/dev .venv/compiled ## Do harm to brokers, and account for every message (minutes)
	@$(BIN)/python -m torture $(ARGS)

.PHONY: torture-spark
torture-spark: .venv/dev .venv/compiled ## Kill Spark and the broker while a stream and a pipeline run (many minutes)
	@$(BIN)/python -m torture --only spark --cycles 21 --seconds 4 $(ARGS)
	@$(BIN)/python -m torture --only pipeline --cycles 20 --seconds 8 $(ARGS)

.PHONY: hostile
hostile: .venv/dev .venv/compiled ## Attack brokers, and see whether other clients notice (minutes)
	@$(BIN)/python -m hostile $(ARGS)

.PHONY: fuzz
fuzz: .venv/dev ## Give 2 million inputs to everything that reads bytes of strangers (an hour and more)
	@$(BIN)/python -m fuzz $(ARGS)

.PHONY: fuzz-properties
fuzz-properties: .venv/dev ## Run the property tests of codecs and log with very many examples (minutes)
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/pytest -n 2 -m property -o timeout=0 $(ARGS)

.PHONY: docs
docs: .venv/dev ## Write the generated parts of the documentation anew
	@$(BIN)/python -m tests.generated_docs

.PHONY: screenshots
screenshots: .venv/dev browser ## Take the pictures in docs/screenshots anew (minutes)
	@$(BIN)/python -m tests.console.browser.screenshots $(ARGS)

.PHONY: proto
proto: .venv/dev ## Compile the protobuf messages of CrystalConnector
	@cd src && ../$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. \
		headwater/protocols/crystal/crystal.proto

.PHONY: lock
lock: .venv/dev ## Pin the newest versions that the project accepts
	@$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header \
		pyproject.toml -o requirements/run.lock
	@$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --extra spark \
		-c requirements/run.lock pyproject.toml -o requirements/spark.lock
	@$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --extra compile \
		-c requirements/spark.lock pyproject.toml -o requirements/compile.lock
	@$(BIN)/uv pip compile -q --upgrade --universal --generate-hashes --no-header --extra dev \
		-c requirements/spark.lock -c requirements/compile.lock pyproject.toml -o requirements/dev.lock

.PHONY: clean
clean: ## Remove what set-up and the tools made (never ./data)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Set-up. Each stamp is renewed when the files it was made from change.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Headwater needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv \
		|| { echo "Python's venv module is missing (on Debian: apt-get install python3-venv)"; exit 1; }

.venv/run: .venv/bin/python requirements/run.lock pyproject.toml
	@echo "installing into .venv ..."
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/run.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

# The modules of the hot path as C, from the same source; `make COMPILE=0 run` goes without.
COMPILE ?= 1
.venv/compiled: .venv/run requirements/compile.lock $(shell find src/headwater -name '*.py')
ifneq ($(COMPILE),0)
	@$(BIN)/python -c 'import mypyc, setuptools' 2>/dev/null \
		|| $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/compile.lock
	-@$(BIN)/python -m headwater.compiling
	@touch $@
endif

.venv/spark: .venv/run requirements/spark.lock
	@echo "installing Spark into .venv ..."
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/spark.lock
	@touch $@

.venv/dev: .venv/spark requirements/dev.lock
	@echo "installing the tools for tests into .venv ..."
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

.venv/classes.jsa: .venv/dev .venv/compiled tests/spark/class_archive.py
	@echo "recording the classes that Spark loads, so that tests start it in half the time ..."
	@$(BIN)/python -m tests.spark.class_archive $@
