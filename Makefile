# make repro   from nothing to the verdict table      make test   ruff, pytest, nbval
# make lab     JupyterLab on 127.0.0.1                make bench  speed, into results/benchmarks
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)

.PHONY: repro test lab bench lock clean

$(VENV)/.installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: Python 3.11 or later is needed (make PYTHON=python3.12 ...)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m ipykernel install --sys-prefix --name python3 --display-name "Python 3 (elm)" >/dev/null
	touch $@

repro: $(VENV)/.installed
	dvc repro
	python -m elm_lib.paper --readme README.md

test: $(VENV)/.installed
	ruff check .
	pytest -n 2 --dist loadfile
	cd notebooks && pytest --nbval

lab: $(VENV)/.installed
	jupyter lab --ip=127.0.0.1 --ServerApp.root_dir=$(CURDIR)/notebooks $(if $(filter 0,$(shell id -u)),--allow-root)

bench: $(VENV)/.installed
	python benchmarks/loader.py
	python benchmarks/simulator.py
	python benchmarks/recurrence.py
	python benchmarks/practice.py

clean:
	rm -rf runs notebooks/scratch scratch
