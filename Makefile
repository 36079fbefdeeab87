# `make demo` and `make test` are all that is needed on a fresh machine: each makes .venv and installs into it first,
# the demo what it needs, the others the development tools as well.

# The first Python found that is at least 3.11; override with `make test PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/installed
DEV := $(VENV)/installed-dev

# Which torch: nothing to choose by what is there, `existing`, `pinned`, or whatever pip takes (tools/install.py); a new choice is installed anew.
TORCH ?=
export TORCH
ifneq ($(TORCH),)
ifneq ($(TORCH),$(shell cat $(VENV)/torch-asked-for 2>/dev/null))
.PHONY: $(CORE) $(DEV)
endif
endif

# Two processes with two spinning threads each on two cores starve each other: waiting threads sleep, and tests use one thread.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: demo test lint types unit reliability fuzz audit constraints results docs format clean

demo: $(CORE)
	@$(BIN)/ltpll demo

test: lint types unit

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

unit: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# What docs/reliability.md promises, tried for minutes rather than seconds.
reliability: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m reliability -s

# Damaged and hostile files for every reader (fuzz/README.md); what is found lies in build/fuzz.
FUZZ_SECONDS ?= 600
fuzz: $(DEV)
	OMP_NUM_THREADS=1 nice $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) --json build/fuzz/summary.json

# Known weaknesses of the pinned versions; in an environment of its own, so that the tested one stays as it is.
audit: $(DEV)
	$(BIN)/python -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

# The figures of the README and the docs, measured anew on this machine.
results: $(DEV)
	rm -rf build/results
	$(BIN)/ltpll toy --out build/results
	$(BIN)/ltpll toy --cosine --out build/results
	$(BIN)/ltpll demo --out build/results
	$(BIN)/python tools/keep_results.py build/results
	cp build/results/toy.png docs/toy.png
	$(MAKE) docs

docs: $(DEV)
	$(BIN)/python tools/render_docs.py

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Versions resolved anew, as on a fresh machine; in an environment of its own, since pins that contradict each other cannot be installed.
constraints:
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --disable-pip-version-check packaging
	build/constraints/bin/python tools/constraints.py

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(CORE) $(DEV): pyproject.toml constraints.txt tools/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "error: Python 3.11 or newer was not found; install it or give PYTHON=/path/to/python." >&2; exit 2; }
	@$(PYTHON) tools/install.py $(if $(filter %-dev,$@),--dev) --torch="$$TORCH"
