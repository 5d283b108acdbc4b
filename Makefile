# Everything runs in .venv, which the first command builds and later ones reuse.

PYTHON ?= python3
DEMO_BUDGET ?= full
TORCH_INDEX ?=
PYTEST_ARGS ?=
MARKED ?= not nightly

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
PACKAGE := .venv/.package
STAMP := .venv/.complete

# What is imported is compiled once, whatever the environment says: pip leaves that to the first import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all test-fast bench docs doctests lint format clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-9s  %s\n' "$$name" "$$text"; done

setup: $(STAMP)  ## build .venv with the pinned versions (every command below does it when needed)

# torch comes first and alone: a later requirement is then met by what is there and cannot replace it. TORCH_INDEX
# is where it comes from, such as PyTorch's index of builds for the CPU, a fifteenth of the download on Linux.
# What is not imported need not be compiled, and the demo needs none of the tools of those who build the project.
$(PACKAGE): pyproject.toml constraints.txt src/harmonium/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "harmonium needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) torch $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX))
	$(PIP) --editable '.[all]'
	@touch $@

$(STAMP): $(PACKAGE)
	$(PIP) --editable '.[all,dev]'
	@touch $@

demo: $(PACKAGE)  ## train, evaluate and sample a real machine (DEMO_BUDGET=small for a short run)
	DEMO_BUDGET=$(DEMO_BUDGET) $(BIN)/python examples/demo.py

# The tests of a file run in one process, which makes its fixtures, and compiles what it needs, once.
test: $(STAMP)  ## run the test suite (PYTEST_ARGS='-k layers' to choose)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "$(MARKED)" $(PYTEST_ARGS)

# Counting takes a third of the time again with Python 3.11, too much for every change.
test-all: MARKED :=
test-all: PYTEST_ARGS += --cov --cov-fail-under=95 --cov-report=term:skip-covered
test-all: test  ## run it with the tests that are marked nightly, and count the lines that they run

# Together these touch every package.
FAST := tests/exact tests/implementation/test_bit_matmul.py tests/interface/test_cli_help.py \
	tests/interface/test_cli_sample.py tests/interface/test_data_rows.py tests/interface/test_exchange.py \
	tests/interface/test_machine_files.py tests/interface/test_outlier.py \
	tests/interface/test_recorded_states.py tests/interface/test_sequences.py

test-fast: $(STAMP)  ## run a part of it that takes at most a minute and touches every package
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(FAST) $(PYTEST_ARGS)

bench: $(STAMP)  ## time harmonium beside its peers and keep the record (BENCH_ARGS=--quick for a short run)
	@$(BIN)/python -m pip install --quiet --no-deps --requirement benchmarks/requirements.txt || \
		echo "a peer could not be installed and is left out" >&2
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

docs: $(STAMP)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# pytest ends with 5 where there is nothing to collect; two files need Triton, and have no examples.
doctests: $(STAMP)  ## run the examples in docstrings
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --doctest-modules src -p no:cacheprovider \
		--ignore-glob '*/backends/cuda/tensor_core_*kernels.py' || [ $$? -eq 5 ]

lint: $(STAMP)  ## check style, types, the direction of imports and the words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py
	$(BIN)/python .ci/papers.py --check

format: $(STAMP)  ## bring the code into shape: ruff's formatter and its safe fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove what the commands left, except .venv
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage*
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
