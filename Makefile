# On a new machine `make demo` or `make test` is enough: both create .venv and install the packages first.
# `make demo` installs what the package needs; all other targets also install the development tools.

# The first Python found that is 3.11 or newer; `make test PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/installed
DEV := $(VENV)/installed-dev

# Which torch to install: `existing` (the one this Python has), `pinned`, or any requirement that pip accepts. Without a value,
# tools/install.py decides. A new value reinstalls.
TORCH ?=
export TORCH
ifneq ($(TORCH),)
ifneq ($(TORCH),$(shell cat $(VENV)/torch-asked-for 2>/dev/null))
.PHONY: $(CORE) $(DEV)
endif
endif

# Idle OpenMP threads sleep instead of spinning: two processes that spin on two cores slow each other down.
export OMP_WAIT_POLICY := PASSIVE
# Tests start many processes, which would otherwise compile the package again and again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo journeys test lint types unit gpu reliability fuzz audit lowest newest interop constraints results docs gallery site release format clean

help:  ## Show this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(CORE)  ## Train and compare on handwritten digits, about a minute
	@$(BIN)/ltpll-research demo
	@echo "Next: '$(BIN)/ltpll demo' cleans an example table; docs/get-started.md shows how to clean your own."

# Tests sometimes wait for processes, so the type checker runs beside them.
test: lint  ## Linter, type checker and all tests that need no GPU
	@$(MAKE) --no-print-directory -j 2 types unit

lint: $(DEV)  ## Linter, formatter and spelling, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs src research/src tools benchmarks examples

types: $(DEV)  ## Type checker
	$(BIN)/mypy

unit: $(DEV)  ## Tests that need no GPU
	$(PYTEST) -n 2

gpu: $(DEV)  ## Tests that need a CUDA device
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || \
		{ echo "error: torch finds no CUDA device, so the GPU tests cannot run." >&2; exit 2; }
	$(PYTEST) -m "gpu or kernels" -n 4

reliability: $(DEV)  ## The promises of docs/reliability.md, tested for minutes
	$(PYTEST) -m "reliability and not gpu" -s

FUZZ_SECONDS ?= 600
fuzz: $(DEV)  ## Damaged and hostile files for every reader (fuzz/README.md); writes findings to build/fuzz
	OMP_NUM_THREADS=1 nice $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) --json build/fuzz/summary.json

# In an environment of its own, so that these tools do not change the one that is tested.
audit: $(DEV)  ## Licences of the pinned versions, a bill of materials (CycloneDX), known vulnerabilities
	$(BIN)/python tools/licences.py
	$(BIN)/python -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-audit
	build/audit/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --mc-type library --output-file build/audit/sbom.json $(BIN)/python
	build/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

# In environments of their own; uv, unlike pip, can choose the oldest versions, of what pyproject.toml names.
lowest:  ## Tests with the oldest versions that pyproject.toml allows
lowest: RESOLUTION = lowest-direct
newest:  ## Tests with the newest versions of all packages
newest: RESOLUTION = highest
lowest newest:
	$(PYTHON) -m venv build/$@
	build/$@/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/$@/bin/uv pip install --quiet --python build/$@/bin/python --resolution $(RESOLUTION) --editable '.[dev]' --editable ./research
	OMP_NUM_THREADS=1 build/$@/bin/python -m pytest -n 2

# In an environment of its own, since these packages need a hundred others.
interop:  ## Notebooks, and tests with cleanlab, crowd-kit, Hugging Face datasets, Label Studio and skops
	$(PYTHON) -m venv build/interop
	build/interop/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[interop]' --editable ./research
	OMP_NUM_THREADS=1 build/interop/bin/python -m pytest tests/interop

journeys: $(CORE)  ## Count the files that training on a table, and a benchmark, lead through (tools/journeys.py)
	@OMP_NUM_THREADS=1 $(BIN)/python tools/journeys.py

results: $(DEV)  ## Measure the figures in README.md and docs again on this machine
	rm -rf build/results
	$(BIN)/ltpll-research toy --out build/results
	$(BIN)/ltpll-research toy --cosine --out build/results
	$(BIN)/ltpll-research demo --out build/results
	$(BIN)/python tools/keep_results.py build/results
	cp build/results/toy.png docs/toy.png
	$(MAKE) docs

docs: $(DEV)  ## Update the generated parts of README.md and docs, and the pages of docs/methods
	$(BIN)/python tools/render_docs.py
	$(BIN)/python tools/render_methods.py
	$(BIN)/python tools/draw_figures.py

site: $(DEV)  ## Build the documentation into build/site, without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html, or run '$(BIN)/python -m http.server --directory build/site' for search."

# In environments of their own: the tools that build must not change the environment that is tested, and the wheels must work without it.
release: site  ## Build and check the wheels and source distributions: twine, size, a fresh environment, the demo
	$(BIN)/python tools/release.py

gallery: $(DEV)  ## Run the examples and the tutorial again, and update their pages
	OMP_NUM_THREADS=1 $(BIN)/python tools/render_gallery.py
	$(BIN)/python tools/render_tutorial.py

format: $(DEV)  ## Format the code and apply the linter's fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# In an environment of its own, since pins that contradict each other cannot be installed.
constraints:  ## Resolve the pinned versions again, as on a new machine
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --disable-pip-version-check packaging
	build/constraints/bin/python tools/constraints.py

clean:  ## Delete .venv, caches and everything that was built
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info research/build research/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(CORE) $(DEV): setup.py pyproject.toml research/pyproject.toml constraints.txt tools/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "error: Python 3.11 or newer was not found; install it or give PYTHON=/path/to/python." >&2; exit 2; }
	@$(PYTHON) tools/install.py $(if $(filter %-dev,$@),--dev) --torch="$$TORCH"
