# make run    everything at scale quick: tables, figures and a report in results/
# make test   the whole test suite
# Both first create $(VENV) with the pinned versions of constraints.txt; PYTHON=python3.12 chooses another interpreter.

PYTHON ?= python3
VENV ?= .venv

bin := $(VENV)/bin
pins := $(VENV)/constraints.txt

.PHONY: run test
.DELETE_ON_ERROR:

run: $(VENV)/.installed
	@. $(bin)/activate && snakemake --cores all
	@echo "Tables are in results/tables, figures in results/figures; open results/report.html for all of them."

test: $(VENV)/.installed-dev
	@. $(bin)/activate && pytest

# A machine that has a torch new enough keeps it: the environment then sees the system's packages.
$(bin)/python:
	@if $(PYTHON) -c "$(has_torch)"; then shared=--system-site-packages; fi; $(PYTHON) -m venv $$shared $(VENV)

$(pins): constraints.txt | $(bin)/python
	@if $(bin)/python -c "$(has_torch)"; then grep -v "^torch==" constraints.txt > $@; else cp constraints.txt $@; fi

$(VENV)/.installed: pyproject.toml $(pins)
	$(bin)/python -m pip install --quiet --constraint $(pins) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(pins)
	$(bin)/python -m pip install --quiet --constraint $(pins) --editable ".[dev]"
	@touch $(VENV)/.installed $@

define has_torch
import importlib.metadata, sys; sys.exit(tuple(map(int, importlib.metadata.version('torch').split('.')[:2])) < (2, 9))
endef
