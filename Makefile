# Each target does all its own set-up: a fresh machine needs Python 3.11 or later and nothing else.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test check pages clean

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

H200 := tests/data/patients/h200/all-everything

# Of what was recorded on an H200. They carry the charts' library, and so are made and not kept.
pages: install
	$(BIN)/gobrrr show $(H200)-sick.json.gz -o docs/pages/everything-wrong.html >/dev/null
	$(BIN)/gobrrr show $(H200)-healthy.json.gz -o docs/pages/everything-right.html >/dev/null
	$(BIN)/gobrrr compare $(H200)-sick.json.gz $(H200)-healthy.json.gz -o docs/pages/difference.html >/dev/null
	$(BIN)/gobrrr show benchmarks/results/h200/patient_treated.json -o docs/pages/everything-treated.html >/dev/null
	$(BIN)/gobrrr show benchmarks/results/h200/patient_after.json.gz -o docs/pages/after-treatment.html >/dev/null
	$(BIN)/gobrrr trace benchmarks/results/h200/patient_trace.json.gz -o docs/pages/trace.html >/dev/null
	$(BIN)/gobrrr show benchmarks/results/h200/lab.json -o docs/pages/lab.html >/dev/null

clean:
	rm -rf docs/pages .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
