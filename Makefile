# Every target makes the environment it needs; Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RELEASE ?= 26.05

.PHONY: demo test test-fast test-slurm check lint format docs clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sadvise needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

demo: $(VENV)/.installed  ## the advice for the queue that ships with the package
	$(BIN)/sadvise recommend --demo

test: $(VENV)/.installed-dev  ## all tests; live Slurm tests run for every release that can start here
	$(BIN)/python -m tools.lanes --logs $(VENV)
	$(BIN)/python -m coverage combine --quiet $(addprefix .coverage.,others edges simulator)
	$(BIN)/python -m coverage report

test-fast: $(VENV)/.installed-dev  ## the tests that need no Slurm, without coverage: at most 5 minutes on two cores
	$(BIN)/python -m tools.lanes --fast --logs $(VENV)

test-slurm: $(VENV)/.installed-dev  ## the live tests of one release: make test-slurm RELEASE=26.05
	SADVISE_SLURM_RELEASES=$(RELEASE) SADVISE_REQUIRE_SLURM=1 $(BIN)/python -m pytest tests/live

check: lint test  ## all that CI runs: lint, then the tests with coverage

lint: $(VENV)/.installed-dev  ## formatter, linter, types, import contracts, spelling, the container file, the role of Ansible, generated pages
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
