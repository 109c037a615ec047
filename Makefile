# make run         everything at scale quick: tables, figures and a report in results/
# make test        what a change must pass: style, types, the workflow's rules, and the test suite
# make test-long   the tests that are marked long
# All first install the pinned versions of constraints.txt into $(VENV), once; PYTHON=python3.12 chooses another Python.

PYTHON ?= python3
VENV ?= .venv

bin := $(VENV)/bin
pins := $(VENV)/constraints.txt

.PHONY: run lint test test-long
.DELETE_ON_ERROR:

run: $(VENV)/.installed
	@. $(bin)/activate && snakemake --cores all
	@echo "Tables are in results/tables, figures in results/figures; results/report.html shows them all."

lint: $(VENV)/.installed-dev
	@. $(bin)/activate && ruff check
	@. $(bin)/activate && ruff format --check
	@. $(bin)/activate && mypy
	@. $(bin)/activate && snakefmt --check Snakefile workflow
	@. $(bin)/activate && snakemake --lint --workflow-profile none

# One process a core, each with one thread and whole files, whose tests share what is expensive to make.
test: lint
	@. $(bin)/activate && OMP_NUM_THREADS=1 pytest --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.installed-dev
	@. $(bin)/activate && pytest -m long

# A machine that has a new enough torch keeps it: the environment then sees the system's packages, and neither torch is
# pinned nor what it asks for in versions of its own.
$(bin)/python:
	@if $(call has_torch,$(PYTHON)); then shared=--system-site-packages; fi; $(PYTHON) -m venv $$shared $(VENV)

$(pins): constraints.txt | $(bin)/python
	@if $(call has_torch,$(bin)/python); then grep -vE "^(torch|triton|setuptools)[=><]" $< > $@; else cp $< $@; fi

$(VENV)/.installed: pyproject.toml $(pins)
	@echo "Installing polarvrp into $(VENV); this takes some minutes, once."
	@$(bin)/python -m pip install --quiet --constraint $(pins) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(pins)
	@echo "Installing polarvrp and its test tools into $(VENV); this takes some minutes, once."
	@$(bin)/python -m pip install --quiet --constraint $(pins) --editable ".[dev]"
	@touch $(VENV)/.installed $@

has_torch = $(1) -c "from importlib.metadata import version; \
	raise SystemExit(tuple(map(int, version('torch').split('.')[:2])) < (2, 9))" 2> /dev/null
