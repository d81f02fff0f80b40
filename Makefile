# Dovetail: `make run` and `make test` are all a fresh machine needs to know.

PYTHON ?= python3
HOME_DIR := .dovetail
VENV := $(HOME_DIR)/venv
BIN := $(VENV)/bin
# With one order of every set: tests come and draw as they did the time before.
PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest
# Of the images: the package's version.
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# Everything that tools write goes into the one ignored folder.
export PIP_CACHE_DIR := $(CURDIR)/$(HOME_DIR)/cache/pip
export UV_CACHE_DIR := $(CURDIR)/$(HOME_DIR)/cache/uv
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(HOME_DIR)/cache/pycache
# Without bytecode every start of a service would take three times as long.
export PYTHONDONTWRITEBYTECODE :=
export NUMBA_CACHE_DIR := $(CURDIR)/$(HOME_DIR)/cache/numba
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/$(HOME_DIR)/cache/hypothesis

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/running ## Start everything and show it live (FOR=60 stops after a minute and verifies; RATE=20000|max, SKEW=1.0, TIMING=steady|bursty, PIPELINE=file, ENGINE=services|spark, LAYOUT=split|fused, PLAN=5m|off, PROMETHEUS=1, SECURE=1: TLS, users, ACLs, roles, tokens)
	@$(BIN)/python -m deploy.local.run $(if $(FOR),--for $(FOR)) $(if $(RATE),--rate $(RATE)) $(if $(SKEW),--skew $(SKEW)) $(if $(TIMING),--timing $(TIMING)) $(if $(PIPELINE),--pipeline $(PIPELINE)) $(if $(PLAN),--plan-every $(PLAN)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(LAYOUT),--layout $(LAYOUT)) $(if $(PROMETHEUS),--prometheus) $(if $(SECURE),--secure)

.PHONY: test
test: $(VENV)/ready ## Check and test everything, against a real Kafka and a real PostgreSQL (docs/testing.md)
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check kernels
	@$(MAKE) --no-print-directory -j 2 --output-sync=target test-pipeline test-parts

# Before both halves, which would compile them at the same time.
.PHONY: kernels
kernels: $(VENV)/ready
	@$(BIN)/python -m tests.kernels

# Side by side: the one waits for brokers and processes most of the time, the other computes.
.PHONY: test-pipeline
test-pipeline: $(VENV)/ready ## Whole pipelines: the end-to-end tests, and jobs on Spark
	$(PYTEST) $(SLOWEST) tests/e2e $(JOBS) $(patsubst %,--ignore=%,$(CONTROL_TESTS) $(SECURE_TESTS)) $(patsubst %,--deselect=%,$(FAULT_TESTS)) $(TESTS)

# A minute or more each: `make test` kills every service once, these do so in special shapes.
FAULT_TESTS := tests/e2e/test_order.py::test_the_order_is_kept_when_services_are_killed_and_slots_move \
	tests/e2e/test_chain.py::test_phases_of_a_chain_are_killed_and_the_output_stays_exact \
	tests/e2e/test_kill.py::test_while_the_database_is_cut_off_the_disk_phase_waits_and_then_goes_on \
	tests/e2e/test_http.py::test_a_request_is_sent_once_whenever_ingest_is_killed \
	tests/e2e/test_layouts.py

# What to look at when `make test` takes too long.
SLOWEST := --durations=15 --durations-min=5

JOBS := $(addprefix tests/integration/test_,backfill.py spark_commit.py spark_plan_worth.py spark_runs.py spark_snapshot.py)
# The longest of Spark's parts are left to `make test-spark`.
SPARK_PARTS := $(addprefix tests/integration/test_spark_,tasks.py frequency.py)

.PHONY: test-parts
test-parts: $(VENV)/ready ## Their parts: the unit, property and integration tests
	$(PYTEST) $(SLOWEST) tests/unit tests/property tests/fuzz tests/chaos/test_schedule.py tests/integration $(patsubst %,--ignore=%,$(JOBS) $(SPARK_PARTS) $(LOCAL_TESTS)) $(TESTS)

# Each starts brokers and servers of its own, fetches packages, or measures.
LOCAL_TESTS := $(addprefix tests/integration/test_,local_debian.py local_postgres.py local_stack.py spaced_path.py bench_engine.py capacity.py)

.PHONY: test-local
test-local: $(VENV)/ready ## The local stack itself: killed, half made, as another user, in a path with a space, without Maven; that a benchmark runs, and the handbook's capacity tables
	$(PYTEST) $(LOCAL_TESTS) $(TESTS)

.PHONY: matrix
matrix: $(VENV)/ready ## Every algorithm, kind of join, kind of key and number of nodes, end to end (an hour)
	DOVETAIL_MATRIX=1 $(PYTEST) tests/e2e/test_algorithms.py tests/e2e/test_order.py $(TESTS)

.PHONY: test-spark
test-spark: $(VENV)/ready ## All tests of the jobs on Spark, of which `make test` runs a few
	DOVETAIL_SPARK=1 $(PYTEST) tests/e2e/test_spark_*.py tests/integration/test_spark_*.py tests/integration/test_control_spark.py tests/integration/test_spaced_path.py $(TESTS)

# On Spark whatever the engine of the others is: `make test-spark` has them.
ON_SPARK_TESTS := $(addprefix tests/e2e/test_spark_,enrich.py forgetting.py)

.PHONY: test-spark-e2e
test-spark-e2e: $(VENV)/ready ## The end-to-end tests of the services, unchanged, with engine: spark
	DOVETAIL_ENGINE=spark DOVETAIL_SPARK=1 $(PYTEST) tests/e2e $(patsubst %,--ignore=%,$(WATCH_TESTS) $(SECURE_TESTS) $(ON_SPARK_TESTS)) $(TESTS)

# Over a stack of its own, with a PostgreSQL that was built with TLS.
SECURE_TESTS := $(wildcard tests/e2e/test_secure*.py) tests/e2e/test_permissions.py

# Spark has no layouts; the secured tests take away what each service of the split layout needs
# (what a fused node needs is in tests/unit/test_permissions.py), dashboards and alerts are asked for
# its stages by name; the last has the layout anyway.
NOT_FUSED := $(wildcard tests/e2e/test_spark_*.py) $(SECURE_TESTS) $(addprefix tests/e2e/test_,observability.py fused.py)

.PHONY: test-fused
test-fused: kernels ## The end-to-end tests of the services, unchanged, with layout: fused
	DOVETAIL_TESTED_LAYOUT=fused $(PYTEST) tests/e2e $(patsubst %,--ignore=%,$(NOT_FUSED)) $(TESTS)

.PHONY: test-cluster
test-cluster: $(VENV)/ready ## A job on a real Spark cluster of one master and two workers on this machine
	$(PYTEST) tests/cluster $(TESTS)

# Over a running pipeline; what can be tested of the API without one is in `make test`.
WATCH_TESTS := tests/e2e/test_cli.py tests/e2e/test_observability.py
CONTROL_TESTS := tests/e2e/test_control.py $(WATCH_TESTS)

.PHONY: test-control
test-control: $(VENV)/ready ## A running pipeline controlled and watched: API, command line, Prometheus
	$(PYTEST) $(CONTROL_TESTS) $(TESTS)

.PHONY: test-secure
test-secure: $(VENV)/ready ## A secured stack, and each service with each of its permissions taken away
	$(PYTEST) $(SECURE_TESTS) $(TESTS)

# Over a stack of its own, whose data are lost.
.PHONY: test-recovery
test-recovery: $(VENV)/ready ## The handbook's procedures, kills, and a short chaos: nodes, broker, database, snapshot lost under load (half an hour)
	$(PYTEST) tests/recovery tests/chaos/test_chaos.py $(FAULT_TESTS) $(TESTS)

.PHONY: test-upgrade
test-upgrade: $(VENV)/ready ## From the previous release's code to this one and back, under load (needs git's history)
	$(PYTEST) tests/upgrade $(TESTS)

.PHONY: test-console
test-console: $(VENV)/ready ## The web console in a real Chromium, over a running pipeline
	$(PYTEST) tests/console $(TESTS)

# Of the other suites at least what they import is there.
OTHER_TESTS := $(addprefix tests/,recovery upgrade image cluster console deploy chaos) $(CONTROL_TESTS) $(SECURE_TESTS) $(LOCAL_TESTS)

.PHONY: check
check: $(VENV)/ready ## Lint, format, types; advisories on what is pinned are named
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@$(PYTEST) --collect-only -qq $(OTHER_TESTS) >$(HOME_DIR)/collected || { cat $(HOME_DIR)/collected; exit 1; }
	$(BIN)/python -m deploy.advisories

.PHONY: advisories
advisories: $(VENV)/ready ## Advisories on what is pinned; fails if there is one, or none can be asked
	@$(BIN)/python -m deploy.advisories --strict

.PHONY: format
format: $(VENV)/ready ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: proto
proto: $(VENV)/ready ## Generate dovetail/contracts from proto/
	$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. proto/dovetail/contracts/*.proto

.PHONY: grafana
grafana: $(VENV)/ready ## Write deploy/grafana/dashboards from the modules beside it
	$(BIN)/python -m deploy.grafana

.PHONY: chaos
chaos: $(VENV)/ready ## Kill and restart everything under load, then compare with SQL (SEED=, MINUTES=5, ALGORITHM=srj, RATE=3000, ENGINE=services|spark, LAYOUT=split|fused)
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ALGORITHM),--algorithm $(ALGORITHM)) $(if $(RATE),--rate $(RATE)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(LAYOUT),--layout $(LAYOUT))

.PHONY: fuzz
fuzz: $(VENV)/ready ## Random search: mutated inputs, property tests, requests to the API (SECONDS=30 a target, SEED=, TARGET=)
	@$(BIN)/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(TARGET),--target $(TARGET))

.PHONY: bench-e2e
bench-e2e: $(VENV)/ready ## Measure `auto` end to end against scripts, a bare copy, fixed algorithms and the broker: rates, latency, CPU, memory, start (QUICK=1: about ten minutes)
	@$(BIN)/python -m bench.end_to_end $(if $(QUICK),--quick)

.PHONY: capacity
capacity: $(VENV)/ready ## Print the capacity tables of docs/operations.md, by the cost models
	@$(BIN)/python -m bench.capacity

.PHONY: soak
soak: $(VENV)/ready ## Run the pipeline at full rate for MINUTES=10: memory flat, budget kept, lag bounded
	@$(BIN)/python -m bench.soak $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench-engine
bench-engine: $(VENV)/ready ## Measure every join algorithm on disk (QUICK=1: a smaller grid, five minutes; else half an hour)
	@$(BIN)/python -m bench.engine $(if $(QUICK),--quick)

.PHONY: bench-spark
bench-spark: $(VENV)/ready ## Measure `enrich` on Spark against Spark's own joins (QUICK=1: under five minutes)
	@$(BIN)/python -m bench.spark $(if $(QUICK),--quick)

.PHONY: image
image: ## Build the images dovetail and dovetail-spark, by Docker, Podman or Buildah (TAG=, BUILD='--build-arg …')
	@$(PYTHON) -m deploy.image.build $(TAG) $(BUILD)

.PHONY: test-image
test-image: $(VENV)/ready ## Build both images and run the pipeline from them, compared with SQL (IMAGES=0.2.0: take those; else PYTHON_IMAGE=, or a base from Debian's archive)
	$(PYTEST) tests/image $(TESTS)

.PHONY: lock
lock: $(VENV)/running ## Write deploy/image/*.lock, what images are installed from, by uv (after a change of constraints.txt)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m deploy.image.lock

.PHONY: chart
chart: $(VENV)/ready ## Render the chart by Helm into the file that `make test` compares with
	$(BIN)/python -m tests.deploy.render

.PHONY: test-deploy
test-deploy: $(VENV)/ready ## The chart by Helm, Kubernetes' own schemas, Compose's own reader (compiles Helm once: some minutes)
	$(PYTEST) tests/deploy $(TESTS)

.PHONY: sbom
sbom: $(VENV)/ready ## Write what the images hold, and under which licences, into .dovetail/sbom
	@$(BIN)/python -m deploy.sbom --into $(HOME_DIR)/sbom/services
	@$(BIN)/python -m deploy.sbom --into $(HOME_DIR)/sbom/spark --extra spark

.PHONY: clean
clean: ## Delete everything that was downloaded or written, data included
	rm -rf $(HOME_DIR)

# Stamps, written last: an environment that was only half made is made anew.
# What `make run` needs comes first; Spark is installed beside it (deploy/local/spark_install.py).
$(VENV)/running: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.11 or newer, or say make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: say make PYTHON=/path/to/a/newer/python"; exit 1; }
	@echo "making the virtual environment in $(VENV), once"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m deploy.local.install local
	@touch $@

# And what tests need.
$(VENV)/ready: $(VENV)/running
	@$(BIN)/python -m deploy.local.install local spark dev
	@touch $@
