# Leveret's commands; `make help` lists them. CI runs the same ones (.ci/run).
#
# Everything is installed into .venv, once: the stamp files in it are older than pyproject.toml only when that file has
# changed, as it may after a `git pull`.

VENV := .venv
BIN := $(VENV)/bin
# Arguments for the broker (`make run ARGS="--port 0"`) or for pytest (`make test ARGS="-k basic"`).
ARGS ?=
# How many test processes; 0 runs the tests in this one.
WORKERS ?= 2

.DEFAULT_GOAL := help
# Two installations at once would spoil the environment, and the targets here are whole runs: nothing to gain from -j.
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/installed ## start the broker on port 5672 (ARGS="--port 0" and the like are passed on)
	@exec $(BIN)/leveret $(ARGS)

.PHONY: test
test: needs-java $(VENV)/installed-test ## run the whole test suite; installs JDK 17+ and Maven first where it can
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: test-python
test-python: $(VENV)/installed-test ## run the test suite without what needs a JDK: the Java client and Spark
	$(BIN)/python -m pytest -n $(WORKERS) -m "not java and not spark" $(ARGS)

.PHONY: conformance
conformance: needs-url $(VENV)/installed-test ## run the black-box tests on any broker: URL=amqp://… [MANAGEMENT_URL=http://…]
	$(BIN)/python -m pytest tests/conformance --broker-url "$(URL)" \
		$(if $(MANAGEMENT_URL),--management-url "$(MANAGEMENT_URL)") $(ARGS)

.PHONY: bench
bench: $(VENV)/installed-test ## measure speed and memory
	$(BIN)/python -m tests.bench $(ARGS)

.PHONY: bench-lazy
bench-lazy: $(VENV)/installed-test ## measure what a backlog costs; needs 5 GB of disk for a while
	$(BIN)/python -m tests.bench.lazy $(ARGS)

.PHONY: lint
lint: $(VENV)/installed-test ## check style, types and import directions
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(VENV)/installed-test ## put the code into its form
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

.PHONY: clean
clean: ## remove what the commands made, the broker's data excepted
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find tests -name target -type d -prune -exec rm -rf {} +

.PHONY: needs-url
needs-url:
	@$(if $(URL),:,$(error say which broker: make conformance URL=amqp://guest:guest@localhost:5672))

.PHONY: needs-java
needs-java:
	@sh tests/system-needs.sh java

$(VENV)/created:
	@sh tests/system-needs.sh python
	"$$(sh tests/system-needs.sh find-python)" -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# The extras include all that `make run` needs.
$(VENV)/installed-test: $(VENV)/created pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(VENV)/installed $@
