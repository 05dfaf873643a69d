# Commands, each from nothing but Python 3.11+ and make:
#   make train   train STAGNN on the embedded graph of handwritten digits
#   make test    lint, types, layers, tests and documentation: everything that CI checks
#   make faults  inject death, torn writes, full disks and flipped bits at every write (20 minutes)
#   make docs    the documentation as a site, in build/site
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help train test faults docs clean

help:
	@sed -n 's/^#   //p' Makefile

train: $(VENV)/.installed
	@$(BIN)/sta train
	@echo "next: $(BIN)/sta --help, or 'source $(BIN)/activate' and then 'sta'"

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=15

# The same tests as in 'make test', with many more random tables and run folders.
faults: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults --out results/faults.json
	STA_EXAMPLES=500 $(BIN)/python -m pytest -q -n 2 tests/corpus tests/runs/test_hostile_folders.py \
	  tests/datasets/tables tests/ops/test_extremes.py

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict
	@echo "written to build/site: open build/site/index.html"

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# The marks are written last, so that an installation that was interrupted is taken up again.
$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(VENV)/.installed $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 ..."; exit 1; }
	@echo "Installing into $(VENV) (once; a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@
