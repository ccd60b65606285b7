# Leveret's commands; `make help` lists them. CI runs the same ones (.ci/run).
#
# Everything is installed into .venv, once: the stamp files in it are older than pyproject.toml only when that file has
# changed, as it may after a `git pull`.

VENV := .venv
BIN := $(VENV)/bin
# Arguments for the broker (`make run ARGS="--port 0"`) or for pytest (`make test ARGS="-k basic"`).
ARGS ?=
# How many test processes; 0 runs the tests in this one. Many tests wait for others, so that two cores have work for four.
WORKERS ?= 4
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' broker/version.py)

PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Prints what the broker needs, a line each.
NEEDED := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")

# Says what a step of three does, and when it is done, how many seconds it has taken: $(call step,1,what,command).
step = echo "make: $(1)/3 $(2)" >&2; began=$$(date +%s); $(3); echo "make: $(1)/3 done in $$(($$(date +%s) - began)) s" >&2

# By these, modules have the names in a checkout that they have where the package is installed.
LINKS := leveret/analytics leveret/broker leveret/policies leveret/protocol leveret/storage

.DEFAULT_GOAL := help
# Two installations at once would spoil the environment, and the targets here are whole runs: nothing to gain from -j.
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/installed compiled ## start the broker on port 5672 (ARGS="--port 0" and the like are passed on)
	@exec $(BIN)/leveret $(ARGS)

.PHONY: setup
setup: needs-java needs-chromium offer-etcd offer-slapd offer-helm $(VENV)/installed-test compiled needs-rabbitmqadmin ## install what the tests need: packages, JDK 17+, Maven, Chromium, etcd and slapd where it may

.PHONY: test
test: offer-java offer-chromium offer-etcd offer-slapd $(VENV)/installed-test compiled needs-rabbitmqadmin ## run the tests but for what is slow by nature, in minutes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not docker" $(ARGS)

.PHONY: test-all
test-all: setup ## run all tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: coverage
coverage: $(VENV)/installed-test ## test in pure Python what may be compiled, report which lines of the product these tests do not run
	rm -rf build/coverage && mkdir -p build/coverage
	LEVERET_COMPILE=0 $(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist worksteal tests/unit tests/contract \
		tests/conformance tests/fuzz tests/integration/embedding tests/integration/leveretctl \
		tests/integration/ldap tests/integration/test_delete_messages.py tests/integration/test_readers.py \
		tests/integration/test_etcd_register.py tests/integration/test_kubernetes_register.py tests/integration/test_failover.py \
		--ignore=tests/unit/analytics -m "not spark and not docker" $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=cover

.PHONY: compile
compile: $(VENV)/created | $(LINKS) ## compile the modules that pyproject.toml lists, if they have changed; LEVERET_COMPILE=0 forbids it
	$(PIP_INSTALL) --no-deps --editable .

# Compiled modules that are older than their sources are not used, and compiled again here.
.PHONY: compiled
compiled:
	@$(BIN)/python -c 'from leveret.compilation import main; main()' >&2 || { \
		echo "make: compiling again what has changed; this takes up to a minute or two" >&2; $(MAKE) --no-print-directory compile; }

.PHONY: docker
docker: ## build the image, tagged leveret and leveret:VERSION; BASE=… starts from another image
	docker build --file docker/Dockerfile --target broker --tag leveret --tag "leveret:$(VERSION)" \
		--build-arg "VERSION=$(VERSION)" $(if $(BASE),--build-arg "BASE=$(BASE)") .

.PHONY: docker-test
docker-test: needs-docker offer-etcd $(VENV)/installed-test ## build the image and test it in a Docker of its own (DOCKER_HOST: in that one)
	$(BIN)/python -m pytest tests/docker -m docker $(ARGS)

.PHONY: dist
dist: $(VENV)/installed-test ## build the source distribution and the wheels in dist/: one compiled, if there is a compiler, one pure
	LEVERET_COMPILE=0 $(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .
	@# The name of a wheel with Linux libraries has to say with which C library they run (manylinux).
	@for wheel in dist/*-linux_*.whl; do if test -e "$$wheel"; then \
		PATH="$(BIN):$$PATH" auditwheel repair --only-plat --wheel-dir dist "$$wheel" && rm "$$wheel" || exit 1; fi; done

.PHONY: release
release: $(VENV)/installed-test ## make a release up to its upload: VERSION=1.2.3 [ARGS=--dry-run]
	@$(if $(filter command line,$(origin VERSION)),:,$(error say which: make release VERSION=1.2.3))
	@$(BIN)/python -m tests.packaging.release $(VERSION) $(ARGS)

.PHONY: constraints
constraints: $(VENV)/created $(LINKS) ## take up the newest versions of what the project depends on, in constraints.txt
	rm -rf build/constraints
	$(BIN)/python -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --editable ".[test]"
	{ sed -n '/^#/p' constraints.txt; build/constraints/bin/python -m pip freeze --all --exclude pip --exclude-editable; } > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/constraints

.PHONY: links
links: $(LINKS) ## make the links of the folder leveret, which source distributions come without

.PHONY: conformance
conformance: needs-url $(VENV)/installed-test ## run the black-box tests on any broker: URL=amqp://… [MANAGEMENT_URL=http://…]
	$(BIN)/python -m pytest tests/conformance --broker-url "$(URL)" \
		$(if $(MANAGEMENT_URL),--management-url "$(MANAGEMENT_URL)") $(ARGS)

.PHONY: matrix
matrix: $(VENV)/installed-test compiled ## try Celery, Dramatiq and other programs on the broker [and on another: URL=amqp://… MANAGEMENT_URL=http://…]
	$(BIN)/python -m tests.matrix $(if $(URL),--url "$(URL)") $(if $(MANAGEMENT_URL),--management-url "$(MANAGEMENT_URL)") $(ARGS)

.PHONY: torture
torture: $(VENV)/installed-test compiled ## end brokers in every way while clients use them, and compare what is left: SECONDS=3600 SEED=7
	$(BIN)/python -m tests.torture --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

.PHONY: mutants
mutants: $(VENV)/installed-test ## change modules in small ways, show what no test notices: PLACES="policies/policy_keys.py storage" MUTANTS=200 SEED=1
	LEVERET_COMPILE=0 $(BIN)/python -m tests.mutants $(PLACES) --mutants $(or $(MUTANTS),200) --seed $(or $(SEED),1) $(ARGS)

.PHONY: bench
bench: $(VENV)/installed-test compiled ## measure speed and memory; keep the results in bench-results/, compare with the last ones
	$(BIN)/python -m tests.bench --results bench-results $(ARGS)

.PHONY: bench-forms
bench-forms: $(VENV)/installed-test compiled ## measure what a message costs without sockets, compiled and in pure Python
	$(BIN)/python -m tests.bench.forms --results bench-results/forms $(ARGS)

.PHONY: bench-compare
bench-compare: $(VENV)/installed-test ## compare two files of bench-results/: make bench-compare BEFORE=… AFTER=…
	$(BIN)/python -m tests.bench.history "$(BEFORE)" "$(AFTER)"

.PHONY: profile
profile: $(VENV)/installed-test compiled ## leave a flame graph of the broker in bench-results/: make profile SHAPE=task
	@$(if $(SHAPE),:,$(error say which: make profile SHAPE=task; shapes are the scenarios of make bench))
	$(BIN)/python -m tests.bench.flame_graph $(SHAPE) $(ARGS)

.PHONY: bench-lazy
bench-lazy: $(VENV)/installed-test ## measure what a backlog costs; needs 5 GB of disk for a while
	$(BIN)/python -m tests.bench.lazy $(ARGS)

.PHONY: bench-stream
bench-stream: $(VENV)/installed-test compiled ## measure what streams cost; needs 5 GB of disk for a while
	$(BIN)/python -m tests.bench.stream $(ARGS)

.PHONY: bench-scan
bench-scan: $(VENV)/installed-test needs-java compiled ## measure what reading a backlog costs with Arrow, DuckDB and Spark, and the same rows in Parquet; needs 1.5 GB of disk for a while
	$(BIN)/python -m tests.bench.scan $(ARGS)

.PHONY: bench-archive
bench-archive: $(VENV)/installed-test compiled ## measure what an archiver costs, kill it often, and compare; needs 4 GB of disk for a while
	$(BIN)/python -m tests.bench.archive $(ARGS)

.PHONY: bench-backup
bench-backup: $(VENV)/installed-test compiled ## measure what backups cost, and what restoring takes; needs 40 GB of disk for a while
	$(BIN)/python -m tests.bench.backup $(ARGS)

.PHONY: bench-replication
bench-replication: offer-etcd $(VENV)/installed-test compiled ## measure what standbys cost a leader, and publishers (ARGS="--peer-url amqp://…")
	$(BIN)/python -m tests.bench.replication $(ARGS)

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
	rm -rf $(VENV) build dist leveret/compiled .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .docker-cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find tests -name target -type d -prune -exec rm -rf {} +

.PHONY: needs-url
needs-url:
	@$(if $(URL),:,$(error say which broker: make conformance URL=amqp://guest:guest@localhost:5672))

.PHONY: needs-docker
needs-docker:
	@$(if $(DOCKER_HOST),:,sh tests/system-needs.sh docker)

.PHONY: needs-java
needs-java:
	@sh tests/system-needs.sh java

# What the tests can do without is installed only where it may be; else they leave out what needs it.
.PHONY: offer-java offer-chromium offer-etcd offer-slapd offer-helm
offer-java offer-chromium offer-etcd offer-slapd offer-helm:
	@sh tests/system-needs.sh offer $(@:offer-%=%)

.PHONY: needs-chromium
needs-chromium:
	@sh tests/system-needs.sh chromium

# Where it is not to be had (status 3), its tests are skipped, which the summary says.
.PHONY: needs-rabbitmqadmin
needs-rabbitmqadmin: $(VENV)/created
	@sh tests/system-needs.sh rabbitmqadmin $(VENV)/cache/rabbitmqadmin || [ $$? -eq 3 ]

$(VENV)/created:
	@sh tests/system-needs.sh python
	@set -e; $(call step,1,making the Python environment $(VENV),"$$(sh tests/system-needs.sh find-python)" -m venv $(VENV))
	@touch $@

$(LINKS):
	ln -s ../$(@F) $@

# Compiling takes longest. What the broker needs is installed beside it, and mypy, which runs once, gets no byte code.
$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt | $(LINKS)
	@set -e; { trap 'kill $$pip 2>/dev/null || :' TERM; $(call step,2,installing what the broker needs,\
		$(BIN)/python -c '$(NEEDED)' | $(PIP_INSTALL) --requirement /dev/stdin & pip=$$!; wait $$pip); } & \
	needed=$$!; trap 'kill $$needed 2>/dev/null || :' EXIT INT TERM; \
	$(call step,3,compiling Leveret if there is a C compiler; this takes longest: a minute or two,\
		PIP_NO_COMPILE=1 $(PIP_INSTALL) --no-deps --editable .); wait $$needed
	@touch $@

# The extras include all that `make run` needs.
$(VENV)/installed-test: $(VENV)/created pyproject.toml constraints.txt | $(LINKS)
	$(PIP_INSTALL) --editable ".[test]"
	touch $(VENV)/installed $@
