# make repro  from nothing, profile laptop, into results/laptop         make test   format, types, pytest, nbval
# make paper  the committed results made again, into results/desk       make lab    JupyterLab on 127.0.0.1
# make open   the report of desk in a browser (PROFILE=laptop: that of make repro)
# make bench  speed, into results/benchmarks                            make freeze this laptop run as the reference
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
REFERENCE := results/reference/laptop.csv
PROFILE ?= desk

.PHONY: repro paper open test pytest nbval lab bench freeze lock clean

$(VENV)/.installed: requirements.txt requirements-torch.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: Python 3.11 or later is needed (make PYTHON=python3.12 ...)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-torch.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m ipykernel install --sys-prefix --name python3 --display-name "Python 3 (elm)" >/dev/null
	$(BIN)/python -m elm_lib.pipeline.repro --prepare
	touch $@

repro: $(VENV)/.installed
	@python -m elm_lib.pipeline.repro -q
	@test ! -d results/laptop || python -m elm_lib.paper.compare results/laptop $(REFERENCE)

paper: $(VENV)/.installed
	@python -m elm_lib.pipeline.paper $(if $(ALL),--all)

open:
	@test -f results/$(PROFILE)/report.html || { echo "results/$(PROFILE)/report.html is missing: make $(if $(filter desk,$(PROFILE)),paper,repro) writes it"; exit 1; }
	@$(PYTHON) -m webbrowser -t "file://$(CURDIR)/results/$(PROFILE)/report.html"

freeze: $(VENV)/.installed
	@python -m elm_lib.paper.compare results/laptop $(REFERENCE) --write

test: $(VENV)/.installed
	ruff format --check .
	ruff check .
	mypy
	@$(MAKE) --no-print-directory -j 2 pytest nbval

# both at once: the last test file keeps one core alone for minutes
pytest:
	pytest -n 2 --dist loadfile --no-loadscope-reorder

nbval:
	cd notebooks && pytest --nbval --nbval-kernel-startup-timeout 600 --nbval-cell-timeout 3600

lab: $(VENV)/.installed
	jupyter lab --ip=127.0.0.1 --ServerApp.root_dir="$(CURDIR)/notebooks" $(if $(filter 0,$(shell id -u)),--allow-root)

bench: $(VENV)/.installed
	python benchmarks/loader.py
	python benchmarks/simulator.py
	python benchmarks/recurrence.py
	python benchmarks/practice.py
	python benchmarks/streaming.py

lock:
	UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --no-deps --universal --python-version 3.11 --no-annotate \
		--generate-hashes --default-index https://pypi.org/simple requirements.in -o requirements.txt

clean:
	rm -rf runs notebooks/scratch scratch
