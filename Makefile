# `make` lists the targets; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONUTF8 := 1
# Or each command that a test starts compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE
# Reviews during which memory must not grow; default: some thousand.
REQUESTS ?=
# Seconds for each fuzz target: 10 show that every target runs, 600 are a search.
FUZZ_SECONDS ?= 60
RELEASE := .venv-release
# The source of advisories, as options of pip-audit; a package known to have one; the exit status without any.
ADVISORIES ?= --vulnerability-service pypi
KNOWN := jinja2==2.4.1
UNAUDITED ?= 0
AUDIT = $(RELEASE)/bin/pip-audit --disable-pip --progress-spinner off $(ADVISORIES)
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
# The Kubernetes of e2e tests, v1.31 or v1.31.4; without one, that of tests/e2e/assets/go.mod.
KUBERNETES ?=
# Each process has clusters of its own; its tests mostly wait.
TWO_CLUSTERS := --numprocesses 2 --dist loadfile
# The image's base by its digest, as a release gives it; the Dockerfile's own without.
BASE ?=
# The version of the image and the bill of materials, whose tools do not read Git.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' 2> /dev/null | sed 's/^v//; s/-\([0-9]*\)-g/.post\1+g/')

# For which Pythons the archive is; and the operating system and processor of this machine, as krew names them.
PYTHONS ?= $(PYTHON)
PLATFORM := $(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

# The catalogue's own conventions, and files that others are made of: schemas, reference page, chart.
GENERATED := tests/rules/catalog/test_catalog.py tests/rules/schema/test_json_schema.py \
	tests/rules/schema/test_built_in.py tests/rules/cuda/test_stored_tables.py \
	tests/project/test_reference.py tests/project/test_chart.py

.DEFAULT_GOAL := help
.PHONY: help run serve test test-all check pictures chart bench bench-quick browser fuzz faults demo e2e e2e-assets e2e-node test-lowest lock audit sbom dist archive try-dist package-chart image clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# The environment is made again where pyproject.toml changes.
$(VENV)/.runtime: pyproject.toml
	@echo "setting up $(VENV) (once, some twenty seconds)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpugate needs Python 3.11 or newer; say make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

# pip learnt --group in 25.1.
$(VENV)/.dev: $(VENV)/.runtime
	@$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	@touch $@

run: $(VENV)/.runtime ## preview three example pods with the built-in rules, with no cluster
	@echo '$$ gpugate preview -f docs/examples'
	@$(BIN)/gpugate preview -f docs/examples || test $$? = 1
	@echo
	@echo 'Yours:       $(BIN)/gpugate preview -f YOUR.yaml'
	@echo 'The rules:   $(BIN)/gpugate rules'
	@echo 'The webhook: $(BIN)/gpugate serve        (or: make serve; then curl -k https://localhost:8443/readyz)'

# Root has real nodes if this machine can run them; the demo says so if it cannot.
demo: $(VENV)/.dev ## show in a cluster what gpugate does with three Deployments; builds its programs first (minutes, once; needs Go)
	@$(BIN)/python tests/e2e/assets/build.py --cluster > /dev/null
	@test "$$(id -u)" != 0 || $(BIN)/python -m tests.e2e.assets.node > /dev/null || true
	@$(BIN)/python -m tests.e2e.demo

serve: $(VENV)/.runtime ## serve the webhook on port 8443 with a self-signed certificate
	@$(BIN)/gpugate serve

test: $(VENV)/.dev ## run the tests on all cores, in minutes
	$(BIN)/pytest --numprocesses auto -m 'not slow'

test-all: $(VENV)/.dev ## run the slow tests too, and more examples of each law; with branch coverage of rules/
	GPUGATE_LAW_EXAMPLES=100 $(BIN)/pytest --numprocesses auto --cov --cov-report=
	$(BIN)/coverage report --fail-under=95 --skip-covered

check: $(VENV)/.dev ## types, lint, imports, built-in rules and their tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/gpugate lint rules/catalog --fail-on warn
	$(BIN)/gpugate test rules/catalog
	$(BIN)/pytest -q $(GENERATED)

pictures: $(VENV)/.dev ## write the pictures of the pages
	$(BIN)/pytest -q tests/project/test_pictures.py --update-golden

chart: $(VENV)/.dev ## after a change to rules, tables or manifests: write their copies for the Helm chart and for commands
	$(BIN)/pytest -q tests/project/test_chart.py tests/rules/schema/test_built_in.py \
		tests/rules/cuda/test_stored_tables.py --update-golden

bench: $(VENV)/.dev ## measure everything, as ratios in one run, into docs/performance.md; REQUESTS=1000000: memory, too
	$(BIN)/python -m tests.bench.before
	$(BIN)/python -m tests.bench --write docs/performance.md $(addprefix --requests ,$(REQUESTS))

bench-quick: $(VENV)/.dev ## the same in a minute, to the terminal alone
	$(BIN)/python -m tests.bench.before
	$(BIN)/python -m tests.bench --quick

browser: $(VENV)/.dev ## check HTML in Chromium, by a validator and an accessibility checker; needs Chromium, its driver and npm
	$(BIN)/pip install --quiet --disable-pip-version-check --group browser
	npm ci --silent --ignore-scripts --no-audit --no-fund --prefix tests/browser
	$(BIN)/pytest tests/browser

fuzz: $(VENV)/.dev ## search for inputs that break a promise, FUZZ_SECONDS for each target; findings are in .fuzz
	$(BIN)/pip install --quiet --disable-pip-version-check --group fuzz
	@for target in $$($(BIN)/python -c 'from tests.fuzz.targets import TARGETS; print(*TARGETS)'); do \
		echo "$$target"; \
		$(BIN)/python -m tests.fuzz $$target -max_total_time=$(FUZZ_SECONDS) -verbosity=0 || exit 1; \
	done

e2e: $(VENV)/.dev ## end-to-end tests against a real API server; KUBERNETES=v1.31 builds and runs that one; see e2e-assets
	$(if $(KUBERNETES),assets=$$($(BIN)/python tests/e2e/assets/build.py $(KUBERNETES)) && KUBEBUILDER_ASSETS=$$assets )$(BIN)/pytest $(TWO_CLUSTERS) --ignore tests/e2e/node tests/e2e

faults: $(VENV)/.dev ## break everything under load, into docs/reliability.md; see e2e-assets
	$(BIN)/python -m tests.faults --write docs/reliability.md

e2e-assets: $(VENV)/.dev ## build etcd, Kubernetes, programs of its packages, Karpenter, Helm and a base for the image (minutes the first time; needs Go)
	$(BIN)/python tests/e2e/assets/build.py $(KUBERNETES)
	$(BIN)/python -m tests.e2e.assets.base

# Without root, cgroup v1 or namespaces of its own, the tests say so and are skipped.
e2e-node: $(VENV)/.dev ## end-to-end tests on real nodes: kubelet, containerd, NVIDIA's toolkit; builds them; after e2e-assets
	$(BIN)/python -m tests.e2e.assets.node
	$(BIN)/pytest $(TWO_CLUSTERS) tests/e2e/node

# Without the tests of rules and pages alone, which use few functions of packages.
test-lowest: ## run the tests on the oldest dependencies that pyproject.toml allows
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable '.[all]' --group dev
	.venv-lowest/bin/pytest -q --numprocesses auto tests/certs tests/webhook tests/rules/text tests/rules/cel tests/rules/schema tests/rules/decision

lock: $(VENV)/.dev ## pin the packages of the image and of its build, with hashes
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile $(LOCK) --all-extras pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile $(LOCK) --group build --output-file requirements-build.lock

$(RELEASE)/.tools: pyproject.toml
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --group release
	@$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		-r requirements-build.lock
	@touch $@

# If the advisory of a known package is not found, there are no advisories here.
audit: $(RELEASE)/.tools ## look up known vulnerabilities of pinned packages; UNAUDITED=1 fails without advisories
	@if echo '$(KNOWN)' | $(AUDIT) --no-deps --requirement /dev/stdin 2>&1 | grep -Eq 'PYSEC-|GHSA-|CVE-'; then \
		$(AUDIT) --require-hashes --strict --requirement requirements.lock --requirement requirements-build.lock; \
	else \
		echo 'NOT AUDITED: no advisories are available here; those of $(KNOWN) were not found.'; \
		exit $(UNAUDITED); \
	fi

sbom: $(RELEASE)/.tools ## write the packages of requirements.lock to dist/gpugate.cdx.json, as CycloneDX
	@rm -rf .venv-image && $(PYTHON) -m venv --without-pip .venv-image
	@$(RELEASE)/bin/pip --python .venv-image/bin/python install --quiet --require-hashes --only-binary :all: -r requirements.lock
	@mkdir -p dist
	@sed 's/^dynamic = .*/version = "$(or $(VERSION),0.0.0)"/' pyproject.toml > .venv-image/pyproject.toml
	$(RELEASE)/bin/cyclonedx-py environment --pyproject .venv-image/pyproject.toml --mc-type application --output-reproducible \
		--output-file dist/gpugate.cdx.json .venv-image

dist: $(RELEASE)/.tools ## build the wheel and the source archive into dist
	@rm -f dist/*.whl dist/gpugate-*.tar.gz
	$(RELEASE)/bin/python -m hatchling build -d dist

# Of the wheel and the packages of requirements.lock, by hash; PYTHONS: for each of these. Its shebang is python3.
archive: dist ## build one file that runs on this kind of machine, and the same for krew, into dist/archive
	@rm -rf dist/archive && mkdir -p dist/archive
	@printf 'gpugate[all] @ file://%s %s\n' "$$PWD/$$(ls dist/*.whl)" \
		"$$($(RELEASE)/bin/pip hash dist/*.whl | tail -n 1)" > dist/archive/wheel.txt
	$(RELEASE)/bin/pex --requirement requirements.lock --requirement dist/archive/wheel.txt \
		$(addprefix --python ,$(PYTHONS)) --python-shebang '/usr/bin/env python3' --script gpugate \
		--output-file dist/archive/kubectl-gpugate
	@rm dist/archive/wheel.txt && cp LICENSE dist/archive
	@tar -C dist/archive -czf dist/archive/gpugate-$(PLATFORM).tar.gz kubectl-gpugate LICENSE
	@mv dist/archive/kubectl-gpugate dist/archive/gpugate-$(PLATFORM).pex

# Away from the source, as a user runs it. An archive unpacks itself into PEX_ROOT at its first run.
try-dist: archive ## install the wheel into a new environment, and run it and the archive in another folder
	@rm -rf .venv-try && $(PYTHON) -m venv .venv-try
	@.venv-try/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd / && "$(CURDIR)/.venv-try/bin/gpugate" preview -f "$(CURDIR)/docs/examples/patched.yaml"
	cd / && PEX_ROOT="$(CURDIR)/.venv-try/pex" "$(CURDIR)/dist/archive/gpugate-$(PLATFORM).pex" \
		preview -f "$(CURDIR)/docs/examples/patched.yaml"

package-chart: ## package the chart with VERSION, REPOSITORY and DIGEST of the image, into dist; needs Helm
	@rm -rf dist/chart && mkdir -p dist && cp -r manifests/chart dist/chart
	@sed -i.bak -e 's|^  repository: gpugate$$|  repository: $(REPOSITORY)|' -e 's|^  digest: ""$$|  digest: $(DIGEST)|' \
		dist/chart/values.yaml && rm dist/chart/values.yaml.bak
	helm package dist/chart --version $(VERSION) --app-version $(VERSION) --destination dist
	@rm -rf dist/chart

image: ## build the container image; BASE=python:…@sha256:… names its base by digest
	docker build $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(VERSION) --tag gpugate .

clean: ## remove what the other targets made
	rm -rf .venv .venv-* dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache tests/browser/node_modules
