# Everything that a developer types. Only Python 3.11, make and git are needed beforehand.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BENCH  := .venv-bench
CHECKOV := .venv-checkov
# Seconds after which the whole test run is stopped: a hang must fail, not wait. As by Ctrl-C, so that pytest still tells
# which tests had failed by then.
TEST_DEADLINE ?= 2400
# The same for the VMs that QEMU boots, without an accelerator and on a busy machine.
BOOT_DEADLINE ?= 7200
# How many scenarios of each kind `make campaign` runs, from which seed on.
COUNT ?= 1000
FIRST ?= 0
# pytest-xdist workers, three a core: many tests mostly wait, and are spread among those that compute
# (tests/conftest.py). `make test WORKERS=0` runs the tests one after another.
WORKERS ?= $(shell expr 3 \* $$(nproc))

# The tests start hundreds of interpreters: each would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

# Modules whose tests `make test` leaves to `make test-tools`: to collect all others would take as long again.
WITH_TOOLS = $(shell grep -rl --include="test_*.py" "pytest.mark.tools" tests)

.DEFAULT_GOAL := help
.PHONY: help setup demo collected test test-system test-tools test-boot campaign lint terraform bench reference lock release clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready $(BIN)/cloud-init ## make the environment in .venv (instant when it is up to date)

# Two stamps, so that a change of pyproject.toml alone does not go through every requirement again. Python compiles what
# is imported when it is; to compile all of the clouds' SDKs, most of which nobody calls, was half of the time.
$(VENV)/.requirements: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cloud-dispatch needs Python 3.11 or newer; name one: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.requirements pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Its `schema` command judges the boot documents in the tests. Where it can't be had, setup goes on and is tried again.
$(BIN)/cloud-init: tools/cloud_init.py $(VENV)/.requirements
	$(BIN)/python tools/cloud_init.py $@

# The maker's own emulator of Azure's Blob Storage, at the versions and hashes beside its tests, which are skipped, and say
# so, where it can't be had.
AZURITE := $(VENV)/azurite

$(AZURITE)/.ready: tests/install/azurite/package-lock.json $(VENV)/.requirements
	mkdir -p $(AZURITE) && cp tests/install/azurite/package*.json $(AZURITE)
	npm ci --silent --no-audit --no-fund --ignore-scripts --fetch-retries=1 --prefix $(AZURITE) \
	  && touch $@ || echo "no Azurite: copies in Azure's buckets are not tested"

demo: setup ## run 200 and more real tasks on local instances, then show what they cost
	$(BIN)/cloud-dispatch demo

lint: setup ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup $(AZURITE)/.ready ## lint and all tests but the three kinds below; fails if anything fails
	$(MAKE) --no-print-directory --output-sync -j2 lint collected
	timeout --signal=INT --kill-after=30 $(TEST_DEADLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# Each worker would compile all tests, and what they import, at the same time. What is wrong with it is told here.
collected: setup
	@timeout --kill-after=30 $(TEST_DEADLINE) $(BIN)/python -m pytest -q --collect-only > $(VENV)/collected.txt || { tail -n 50 $(VENV)/collected.txt; exit 1; }

test-system: setup ## whole deployments: dispatchers, agents, PostgreSQL and fakes of the clouds as processes; minutes
	timeout --signal=INT --kill-after=30 $(TEST_DEADLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m system tests/system

test-tools: setup ## what other projects' tools say: pip and build of the package, Terraform, cloud-init's schema; minutes
	timeout --signal=INT --kill-after=30 $(TEST_DEADLINE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m tools $(WITH_TOOLS)

test-boot: setup ## boot VMs in QEMU from our user data; as root, minutes (apt brings what it takes)
	$(BIN)/python -m tools.boot_image
	timeout --signal=INT --kill-after=30 $(BOOT_DEADLINE) $(BIN)/python -m pytest -m boot tests/boot

campaign: setup ## simulate COUNT scenarios of each kind, and as many hostile requests: make campaign COUNT=1000 FIRST=0
	$(BIN)/python -m cloud_dispatch.simulation seeds --first $(FIRST) --count $(COUNT)
	for theme in money money-to-the-last-cent money-and-guests money-and-faults money-and-clocks money-and-crashes money-and-backups three-clouds \
	  three-clouds-and-faults three-clouds-and-crashes three-clouds-and-money \
	  configurations configurations-and-faults configurations-and-money terms terms-and-faults late-answers late-answers-and-crashes lost-answers lost-answers-and-faults \
	  sharing sharing-and-faults sharing-and-configurations sharing-and-money neighbours neighbours-and-faults payers payers-and-faults payers-and-windows leaving stops clocks clocks-and-faults frozen frozen-and-faults frozen-spot demands demands-and-faults demands-and-spot \
  long-work long-work-and-configurations long-work-and-faults \
	  lost-answers-and-money lost-answers-and-fleets lost-commits lost-commits-and-faults lost-store lost-store-and-faults lost-store-and-fleets lost-store-and-clouds lost-store-and-money mixed; do \
	  $(BIN)/python -m cloud_dispatch.simulation seeds --first $(FIRST) --count $(COUNT) --theme $$theme || exit 1; done
	MONEY_EXAMPLES=$(COUNT) $(BIN)/python -m pytest -q tests/simulation/test_money.py -k whatever
	HOSTILE_EXAMPLES=$(COUNT) $(BIN)/python -m pytest -q --timeout 0 tests/api/test_hostile_schema.py

$(CHECKOV)/.ready: Makefile
	$(PYTHON) -m venv $(CHECKOV)
	$(CHECKOV)/bin/python -m pip install --quiet --disable-pip-version-check checkov==3.3.30
	@touch $@

terraform: setup $(CHECKOV)/.ready ## what make test has no time for: checkov, and the providers' whole schemas (150 MB)
	$(CHECKOV)/bin/checkov --directory terraform --framework terraform --quiet --compact --skip-download
	$(BIN)/python -m tools.terraform_policies --check
	$(BIN)/python -m tools.provider_schemas --check

$(BENCH)/.ready: requirements-bench.txt pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.txt
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

bench: $(BENCH)/.ready ## measure: make bench NAME=claims
	@test -n "$(NAME)" || { echo "say which: make bench NAME=claims (python -m bench lists them)" >&2; exit 2; }
	$(BENCH)/bin/python -m bench $(NAME) --json

reference: setup ## rewrite the parts of docs/reference that follow from the code
	$(BIN)/python -m tools.reference

lock: setup ## resolve the dependencies again and rewrite what pins them
	$(BIN)/python tools/lock.py
	$(BIN)/python -m tools.npm_lock

release: setup ## build what is tagged, twice to the same bytes, with checksums, into dist/: uploads nothing
	$(BIN)/python -m tools.release

clean: ## remove the environments, the caches and what was built
	rm -rf $(VENV) $(BENCH) .venv-lock build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
