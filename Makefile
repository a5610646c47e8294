# Everything runs in .venv, made on first use with the versions pinned in constraints.txt; only
# test-oldest has an environment of its own, with the versions of constraints-oldest.txt.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= sample_data
# Modules are compiled once, and not by each of the hundred processes that the tests start.
PYTEST = PYTHONDONTWRITEBYTECODE= \
	HYPOTHESIS_PROFILE=$(if $(CI),ci,default) $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal
# One more than processors, as tests wait for processes.
MORE_WORKERS = PYTEST_XDIST_AUTO_NUM_WORKERS=$(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')
# Kernels are compiled before the tests, and not by each of their processes, which would say so.
WARMUP = PYTHONDONTWRITEBYTECODE= $(BIN)/batchplan warmup
# Libraries and kernels choose other instructions under these, as on an older processor.
OTHER_MACHINE = ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE \
	NUMBA_CPU_NAME=generic OMP_NUM_THREADS=1
SAME_ELSEWHERE = tests/docs tests/planners/test_contract.py tests/planners/test_same_everywhere.py

.DEFAULT_GOAL := help
.PHONY: help run test test-frameworks test-ray test-oldest test-other-machine test-wheel test-readme test-site lint bench bench-training docs site clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "batchplan needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/made pyproject.toml constraints.txt
	@echo "installing batchplan, torch, numba, pyarrow and others into .venv: some minutes, and some GB with the CUDA libraries of torch"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-%: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

.venv-oldest/installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the oldest versions need Python 3.11, this is " + sys.version + "; pass PYTHON=python3.11")'
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check -c constraints-oldest.txt -e '.[test]'
	touch $@

run: .venv/installed  ## plan the sample data and measure the plan against random batches
	$(BIN)/batchplan plan sample_data/pairs.parquet --output plan.npy --force
	$(BIN)/batchplan evaluate plan.npy sample_data/pairs.parquet

test: .venv/installed-test  ## install what the tests need and run them all
	$(WARMUP)
	$(MORE_WORKERS) $(PYTEST)

.venv/installed-streaming: .venv/installed-test-frameworks tests/frameworks/streaming.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r tests/frameworks/streaming.txt
	touch $@

define install-apart
	rm -rf $@
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(BUILD) --target $@ -r $<
	touch $@
endef

.venv/apart-deepspeed: BUILD = --no-build-isolation
.venv/apart-deepspeed: export DS_ACCELERATOR = cpu

.venv/apart-%: tests/frameworks/apart/%.txt .venv/installed-test-frameworks
	$(install-apart)

.venv/apart-moto: tests/ray/moto.txt .venv/installed-test-ray
	$(install-apart)

APART_PROGRAMS := $(patsubst tests/frameworks/apart/%.txt,.venv/apart-%,$(wildcard tests/frameworks/apart/*.txt))

test-frameworks: .venv/installed-test .venv/installed-streaming $(APART_PROGRAMS)  ## train with the frameworks that plans plug into
	HF_HUB_OFFLINE=1 $(PYTEST) tests/frameworks tests/benchmarks/test_finetune.py tests/benchmarks/test_law.py \
		tests/benchmarks/test_gpu.py tests/docs/test_docstrings.py

test-ray: .venv/installed-test-ray .venv/apart-moto  ## plan on Ray clusters of this machine, and kill their workers
	$(WARMUP)
	$(BIN)/python -m pytest -q tests/ray

test-oldest: BIN := .venv-oldest/bin
test-oldest: .venv-oldest/installed  ## run the tests with the oldest versions of all libraries
	$(WARMUP)
	$(PYTEST)

test-other-machine: .venv/installed-test  ## run what must be the same elsewhere as another processor would
	$(OTHER_MACHINE) $(WARMUP)
	$(OTHER_MACHINE) $(PYTEST) $(SAME_ELSEWHERE)

test-wheel: .venv/installed-build  ## build a wheel, install it alone elsewhere and run the main job there
	rm -rf build dist .venv-wheel .venv-numpy
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python tests/wheel.py dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	folder=$$(mktemp -d) && cd $$folder && batchplan=$(CURDIR)/.venv-wheel/bin/batchplan \
		&& $$batchplan --version \
		&& $$batchplan gcbs $(CURDIR)/sample_data/pairs.parquet --batch-size 64 \
		&& $$batchplan evaluate plan.npy $(CURDIR)/sample_data/pairs.parquet \
		&& for kind in npz jsonl txt parquet; do \
			$$batchplan random $(CURDIR)/sample_data/pairs.parquet --output plan.$$kind --quiet; done \
		&& $(PYTHON) -m venv $(CURDIR)/.venv-numpy \
		&& $(CURDIR)/.venv-numpy/bin/pip install --quiet --disable-pip-version-check --no-deps \
			-c $(CURDIR)/constraints.txt numpy $(CURDIR)/dist/*.whl \
		&& $(CURDIR)/.venv-numpy/bin/python $(CURDIR)/tests/numpy_alone.py . \
		&& rm -r $$folder

test-readme:  ## install what the README says above its program, and run that
	rm -rf build
	$(PYTHON) tests/readme.py .venv-readme

lint: .venv/installed-lint  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python --warnings

bench: .venv/installed-test .venv/installed-bench  ## run the benchmarks (DATA=folder for other data)
	$(BIN)/python -m tests.benchmarks --data $(DATA)

bench-training: .venv/installed-test  ## train with plans and with shuffled batches, and compare (minutes)
	$(BIN)/python -m tests.benchmarks.training

docs: .venv/installed-test  ## regenerate batchplan/keywords.py, docs/cli.md and the picture of a terminal
	$(BIN)/python -m tests.docs.keywords
	$(BIN)/python -m tests.docs.cli_reference
	$(BIN)/python -m tests.docs.terminal

site: .venv/installed-site  ## build the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

test-site: site .venv/installed-test  ## build the site and read it in a browser
	$(BIN)/python -m pytest -q tests/site

clean:  ## remove the environments and every cache
	rm -rf .venv .venv-oldest .venv-wheel .venv-numpy .venv-readme build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache
	rm -rf .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
