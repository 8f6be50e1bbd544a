# What a newcomer types: `make run`, then `make test`. Both need Python 3.11 or newer, with pip and venv, and nothing else.
#
#   make run     train p31 on the built-in model and show what was reached       (ARGS="--seed 1" for more)
#   make test    everything .ci/run checks: ruff, format, mypy, pytest           (ARGS="-k sampler" for some tests,
#                                                                                 ARGS="-n 0" in one process)
#   make lint    the same without pytest
#   make slow    the few tests that `make test` leaves out: a real model, TRL, the wheel; minutes of CPU
#   make services   tests with a real browser, database server or cluster; installs them where it can, names what it skips
#   make gpu     on a CUDA machine: tries every CUDA path in 10 minutes, writes docs/gpu.md and docs/gpu.json; exit code 2
#                without a device         (ARGS=--rehearse: every part on the CPU, in 5 minutes, written into build/)
#   make clean   removes $(VENV), $(VENV)-gpu, caches and built packages; never your runs in .grpoctl/
#
# PYTHON=/path/to/python chooses the interpreter of a new environment, VENV=folder where it lives.

SHELL := /bin/sh
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DELETE_ON_ERROR:
.PHONY: run test slow services gpu lint clean

run: $(VENV)/.installed
	$(BIN)/grpoctl run $(strip p31 $(ARGS))

# A process of tests for each core, up to four (tests/spread.py): a second thread in each would only be in the way.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m $(strip pytest -n auto --dist loadfile $(ARGS))

# Ended after 25 minutes, so that a machine that is too small for a real model says so instead of hanging.
slow: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 timeout 1500 $(BIN)/python -m $(strip pytest -m slow -n auto --dist loadfile $(ARGS))

services: $(VENV)/.installed-dev
	sh tests/services/install.sh $(BIN)/python
	OMP_NUM_THREADS=1 timeout 1800 $(BIN)/python -m $(strip pytest -m services -n 0 $(ARGS))

# Whether there is a device is found out first, in no time; only then is anything installed. A torch that sees the device is
# used where it is and never replaced: constraints.txt pins torch's version, not its build, and a $(VENV) made from an
# index of CPU builds has one without CUDA. Then $(VENV)-gpu is made beside it (benchmarks/gpu_check/start.sh).
# A rehearsal needs no device: it takes $(VENV) as the tests do.
ifneq (,$(findstring --rehearse,$(ARGS)))
gpu: $(VENV)/.installed-dev
	@$(BIN)/python -m $(strip benchmarks.gpu_check $(ARGS))
else
gpu:
	@VENV=$(VENV) PYTHON=$(PYTHON) sh $(strip benchmarks/gpu_check/start.sh $(ARGS))
endif

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The two stamps say what was installed, and from which versions of these two files.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing grpoctl into $(VENV), some minutes the first time"
	@$(PIP_INSTALL) -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing grpoctl and what its tests need into $(VENV), some minutes the first time"
	@$(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.installed $@

# A name on the PATH proves nothing (a pyenv shim may have no Python behind it): the first that runs and is new enough is taken.
# 3.11 comes first because constraints.txt was tested with it.
$(BIN)/python:
	@tried=; for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3); do \
	    if "$$python" -c '$(NEW_ENOUGH)' 2>/dev/null; then exec "$$python" -m venv $(VENV); fi; \
	    version=$$("$$python" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo absent); \
	    tried="$$tried $$python ($$version)"; \
	done; \
	echo "grpoctl needs Python 3.11 or newer; tried$$tried; name one: make PYTHON=/path/to/python3.11" >&2; exit 1

clean:
	rm -rf $(VENV) $(VENV)-gpu build dist .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find core grpoctl tests -name __pycache__ -type d -prune -exec rm -rf {} +
