# Each target does all its own set-up: a fresh machine needs Python 3.11 or later and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test check clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gobrrr needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[torch,html,nvidia,dev]'
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -qq -y chromium >/dev/null; } || \
		echo "there is no Chromium here: browser tests will be skipped"
	@touch $@

demo: install
	$(BIN)/gobrrr demo

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest --numprocesses auto

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
