# Two commands do all set-up on a fresh machine with Python >= 3.11, git and make:
#   make demo    a real scheduler deadlocks on this machine, is caught and paged
#   make test    every test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help setup demo test lint bench-logs bench-detection bench-delivery bench-footprint docs clean

help:
	@echo "make demo              set up, then watch a real scheduler deadlock be caught and paged (KEEP=1 stays up)"
	@echo "make test              set up, then run every test"
	@echo "make lint              style, types and import directions"
	@echo "make bench-logs        speed of the log engine beside ripgrep and others"
	@echo "make bench-detection   false pages, missed wedges and delay in simulation"
	@echo "make bench-delivery    the fault campaign against receivers"
	@echo "make bench-footprint   memory and CPU of the idle daemon"
	@echo "make docs              the documentation as a site, in build/site"

setup: $(STAMP)

# The CPU build of torch is enough for the tests and the demo; on a CUDA machine `pip install torch` before `make demo`
# keeps what is there.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): about a minute, most of it torch (CPU build)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit("wedgewatch needs Python 3.11 or newer, this is %d.%d; set PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[reproducer,re2,zstd,apprise,plots]" --group dev
	@touch $@

demo: $(STAMP)
	@$(BIN)/wedgewatch demo $(if $(KEEP),--keep)

test: $(STAMP)
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench-logs: $(STAMP)
	@$(BIN)/python -m bench.logs

bench-detection: $(STAMP)
	@$(BIN)/python -m bench.detection

bench-delivery: $(STAMP)
	@$(BIN)/python -m bench.delivery

bench-footprint: $(STAMP)
	@$(BIN)/python -m bench.footprint

docs: $(STAMP)
	@$(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "open build/site/index.html, or build/site/first-ten-minutes/index.html"

clean:
	rm -rf $(VENV) .cache build dist .mypy_cache .pytest_cache .ruff_cache
