# Everything runs in .venv, made on first use with the versions pinned in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= sample_data

.DEFAULT_GOAL := help
.PHONY: help run test lint bench bench-training docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "batchplan needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/made pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-%: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

run: .venv/installed  ## plan the sample data with gcbs and measure the plan against random batches
	$(BIN)/batchplan gcbs sample_data/pairs.parquet --batch-size 64 --output plan.npy --force
	$(BIN)/batchplan evaluate plan.npy sample_data/pairs.parquet

test: .venv/installed-test  ## install what the tests need and run them all
	HYPOTHESIS_PROFILE=$(if $(CI),ci,default) $(BIN)/python -m pytest -q

lint: .venv/installed-lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed-test .venv/installed-bench  ## run the benchmarks (DATA=folder for other data)
	$(BIN)/python -m tests.benchmarks --data $(DATA)

bench-training: .venv/installed-test  ## train with plans and with shuffled batches, and compare (minutes)
	$(BIN)/python -m tests.benchmarks.training

docs: .venv/installed  ## regenerate docs/cli.md
	$(BIN)/python -m tests.docs.cli_reference

clean:  ## remove the environment and every cache
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
