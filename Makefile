# Two commands matter: `make serve` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PY := .venv/bin/python
CHECKED := toolkit serving workloads dashboards runbooks tests scripts
ARGS ?=

.PHONY: help install serve test proof lint format types contracts unit engine-test lock clean proof-run

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## Install what is missing: system packages, .venv, .venv-engine (instant when nothing is)
	@scripts/install.sh

# exec: Ctrl-C and SIGTERM meet the toolkit itself, not a shell in between.
serve: install ## Start prefill, decode and the gateway; options in ARGS="--port 9000"
	@TOOLKIT_STOP_WITH_PARENT=1 exec .venv/bin/toolkit serve $(ARGS)

test: ## Everything a change must pass: lint, types, contracts, unit, the real engine
	@scripts/test.sh install lint types contracts unit engine-test

proof: ## The long rest, before a release: results go to benchmarks/results
	@scripts/test.sh install proof-run

lint: ## ruff: rules and format
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --quiet --check .

format: ## ruff: fix what it can
	@.venv/bin/ruff check --quiet --fix .
	@.venv/bin/ruff format --quiet .

types: ## mypy --strict
	@.venv/bin/mypy

contracts: ## import-linter: the layout is the architecture
	@.venv/bin/lint-imports --no-logo

unit: ## Tests without the real engine
	@$(PY) -m pytest -m "not engine and not proof" $(ARGS)

engine-test: ## Tests on one shared service with the real engine; killing tests last
	@$(PY) -m pytest -m "engine and not proof" $(ARGS)

proof-run:
	@$(PY) -m pytest -m proof $(ARGS)

lock: ## Write requirements/{toolkit,fast,locust,dev}.txt from what .venv holds
	@$(PY) scripts/lock.py

clean: ## Remove caches and build leftovers; environments and runs stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	@find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +
