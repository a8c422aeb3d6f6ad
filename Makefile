# Every target makes the environment it needs; Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RELEASE ?= 22.05
COMMA := ,
SPACE := $(subst ,, )
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Live tests mostly wait, in real time.
LIVE_WORKERS ?= 8

# Several processes share the cores. Each command that a test starts would compile the package again.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-rest test-live test-python test-all check lint format docs clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sadvise needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) has no ensurepip, which makes environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@$${CC:-cc} --version >/dev/null 2>&1 || { echo "no C compiler: installing ziglang, which brings one"; $(PIP) ziglang; }
	$(BIN)/python -m advisor.sim.engine.build
	@touch $@

# Tests import a part of these, which Python compiles then.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) "pip>=26.1"
	$(PIP) --no-compile --group dev
	@touch $@

$(VENV)/.installed-train: $(VENV)/.installed-dev
	$(PIP) --no-compile --group train
	@touch $@

demo: $(VENV)/.installed  ## the advice for the queue that ships with the package
	$(BIN)/sadvise recommend --demo

# Where lines are counted, tests that count none are left out.
test: $(VENV)/.installed-dev  ## the tests that need no Slurm, no root and no network: about six minutes on two cores
	$(PYTEST) --numprocesses auto --dist worksteal -m "not live and not slow$(if $(COVERAGE), and not no_cover)" $(COVERAGE)

test-rest: $(VENV)/.installed-train  ## slow tests, and those that need more than Python: packages, a browser, PyTorch, root
	$(PYTEST) --numprocesses auto --dist worksteal -m "not live and (slow or needs)"

test-live: $(VENV)/.installed-dev  ## the live tests of one release, with what they need: make test-live RELEASE=26.05
	$(BIN)/python -m tools.test_machine --live $(RELEASE:%=--release %)
	SADVISE_SLURM_RELEASES=$(subst $(SPACE),$(COMMA),$(RELEASE)) SADVISE_REQUIRE_SLURM=1 \
	$(PYTEST) --numprocesses $(LIVE_WORKERS) --dist loadgroup -m live tests/live

test-python: $(VENV)/.installed-dev  ## the README's commands with the coverage, and the package, with the Python of Debian 13
	$(BIN)/python -m tools.other_python

test-all: export SADVISE_REQUIRE_SLURM := 1
test-all: export SADVISE_ALL_EXAMPLES := 1
test-all: $(VENV)/.installed-train  ## everything: all of the above on three releases of Slurm, and the coverage
	$(BIN)/python -m tools.test_machine
	$(MAKE) test
	$(MAKE) test-rest test-python test-live RELEASE="22.05 24.11 26.05"

check: lint test-all  ## all that CI runs

lint: $(VENV)/.installed-train  ## formatter, linter, types, import contracts, spelling, the container file, the role of Ansible, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/hadolint Containerfile
	$(BIN)/ansible-lint --offline -q --profile production ansible
	$(BIN)/python -m tools.generate_docs --check

format: $(VENV)/.installed-dev  ## rewrite the sources in the agreed form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev  ## regenerate the schema and the reference pages
	$(BIN)/python -m tools.generate_docs

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .coverage dist
