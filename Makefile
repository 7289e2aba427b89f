# The two commands that matter: `make demo` shows the product, `make test`
# judges it. Both install what is missing and say what they are doing.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Go notes the commit by itself, but in no worktree: so it is told, and notes nothing.
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)$(if $(shell git status --porcelain 2>/dev/null),-dirty)
LDFLAGS := -s -w -X github.com/ccm-baremetal/ccm-baremetal/pkg/version.release=$(VERSION) -X github.com/ccm-baremetal/ccm-baremetal/pkg/version.commit=$(COMMIT) -X k8s.io/component-base/version.gitVersion=$(VERSION)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: ## Show the product on a real control plane, in network namespaces (root, about two minutes after the first build)
	@scripts/need demo
	@echo "==> building the demo (the first time, this compiles client-go: about two minutes)"
	@cd test/lab && CGO_ENABLED=0 go run ./cmd/demo

.PHONY: build
build: ## Build the binaries into bin/
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: images
images: ## Build the container images of VERSION for amd64 and arm64 into dist/images, without a container engine
	cd tools/images && CGO_ENABLED=0 go run . -version $(VERSION) -out ../../dist/images

PLUGINS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64

.PHONY: plugins
plugins: ## Build kubectl-baremetal of VERSION for workstations into dist/plugins, with their checksums
	@rm -rf dist/plugins && mkdir -p dist/plugins
	@set -e; for platform in $(PLUGINS); do \
		echo "==> kubectl-baremetal for $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%-*} GOARCH=$${platform#*-} go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' \
			-o dist/plugins/kubectl-baremetal-$$platform ./cmd/kubectl-baremetal; \
	done
	@cd dist/plugins && sha256sum kubectl-baremetal-* | tee SHA256SUMS

.PHONY: release-manifests
release-manifests: ## Write the manifests of VERSION into dist/: install.yaml and its variants
	cd tools/install && CGO_ENABLED=0 go run . -version $(VERSION) -out ../../dist

.PHONY: test
test: ## Run every test: lint, unit, wire and lab (root)
	@scripts/need
	@scripts/test

.PHONY: unit
unit: ## Run only the tests that need neither root nor the lab
	go test -race ./...

.PHONY: lint
lint: ## Run only the linters
	@scripts/test lint

.PHONY: update
update: ## Rewrite golden files and generated references
	go test ./pkg/... ./cmd/kubectl-baremetal ./test/names -update
	cd tools/templates && CGO_ENABLED=0 go test . -update
	cd tools/install && CGO_ENABLED=0 go test . -update
	cd tools/monitoring && CGO_ENABLED=0 go test . -update

.PHONY: bench
bench: ## Run the benchmarks, each beside what it is compared with
	go test -run '^$$' -bench . -benchmem ./pkg/...

.PHONY: soak
soak: ## Run the tests of membership, of FRR and of the lab longer and more often, and judge times (about two hours)
	@scripts/need
	@CCM_SOAK=1 CCM_REQUIRE_NETNS=1 go test -count=1 -p 1 -timeout 1h ./pkg/announcer/membership ./pkg/announcer/bgp/frrhost
	@CCM_SOAK=1 scripts/test lab

.PHONY: clean
clean: ## Remove what the build left here (not the control plane in the cache)
	rm -rf bin dist
