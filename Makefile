# `make demo` and `make test` each turn a fresh clone into a working set-up. Needs make and Python 3.11 or newer.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# The first interpreter that is new enough and really runs (a shim may exist without its Python).
FIND_PYTHON = for python in python3.11 python3.12 python3 python3.13; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$python; break; fi; done

.PHONY: help setup browser demo test lint docs bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z]+):.*## /  make \1\t/'

setup: $(STAMP) browser ## install looptaps into its own .venv; quick when nothing changed

$(STAMP): pyproject.toml constraints.txt
	@if [ ! -x $(PY) ]; then \
	  python="$(PYTHON)"; [ -n "$$python" ] || python=$$($(FIND_PYTHON)); \
	  if [ -z "$$python" ]; then \
	    echo "make: no Python 3.11 or newer was found. Install one, or name it: make setup PYTHON=/path/to/python" >&2; exit 1; fi; \
	  if ! $$python -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "make: $$python lacks the venv module. Install it (on Debian: apt install python3-venv)." >&2; exit 1; fi; \
	  $$python -m venv $(VENV); fi
	$(PY) -m pip install -q -c constraints.txt "torch==2.13.0"
	$(PY) -m pip install -q -c constraints.txt -e ".[dev,lm-eval]"
	@touch $@

# The test of the report's page drives Debian's chromium. Where it cannot be installed, that test says so (in CI: fails).
browser: ## install chromium for the page's test, where apt-get and root are there; quick when it is
	@if ! command -v chromium >/dev/null; then \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	      || echo "make: chromium could not be installed; the page's browser test will not run." >&2; \
	  else \
	    echo "make: no chromium, and no apt-get as root to install it; the page's browser test will not run." >&2; fi; fi

demo: $(STAMP) ## run `looptaps demo`
	$(VENV)/bin/looptaps demo

# One thread per process: several threads in each of several processes get in each other's way.
test: $(STAMP) browser ## run the test suite
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $${PYTEST_WORKERS:-2} $(PYTEST_ARGS)

lint: $(STAMP) ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m mypy

docs: $(STAMP) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

bench: $(STAMP) ## run every script in benchmarks/
	@set -e; for script in $(sort $(wildcard benchmarks/*.py)); do echo "== $$script"; $(PY) $$script; done

clean: ## remove what was built, but not .venv
	rm -rf build dist site htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-out
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
