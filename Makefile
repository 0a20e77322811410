# lbd: make help lists the targets.

GO       ?= go
BIN      := bin
CC       := gcc
CFLAGS   := -O2 -Wall -Wextra -Werror -static -pthread
DEBS     := gcc libc6-dev qemu-system-x86 ipvsadm iproute2 nftables busybox-static conntrack keepalived iptables
# What bench-userspace compares lbd with, besides.
BENCH_DEBS := haproxy nginx libnginx-mod-stream
BUILDENV := CGO_ENABLED=0
LOAD     := $(BIN)/bench-client $(BIN)/bench-server
BUILD    := $(BUILDENV) $(GO) build -trimpath
# Packages with tests of a tier: the tier is in the test's name.
pkgs_with = $(sort $(dir $(shell grep -rl --include='*_test.go' '^func $(1)' . 2>/dev/null)))
KERNEL   ?= cloud
# The oldest kernel whose wlc counts inactive connections alone, and today's.
KERNELS  := cloud linux-image-6.1.0-50-cloud-amd64
STATICCHECK := $(GO) tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help deps build demo test test-unit test-netns test-kernel test-kernel-matrix \
	bench-apply bench-userspace bench-headline bench-sched bench-health soak lint generate clean FORCE

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what the tests and the demo need, from Debian's packages
	@missing=; for p in $(DEBS); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
		echo "installing:$$missing"; \
		[ "$$(id -u)" = 0 ] || { echo "make deps: run it as root, or install the packages above" >&2; exit 1; }; \
		apt-get update -q && \
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; fi

build: $(BIN)/lbd $(BIN)/ipvsctl ## build lbd and ipvsctl into bin/

$(BIN)/lbd: FORCE
	$(BUILD) -o $@ ./cmd/lbd

$(BIN)/ipvsctl: FORCE
	$(BUILD) -o $@ ./cmd/ipvsctl

$(BIN)/vmrun: FORCE
	$(BUILD) -o $@ ./internal/vm/vmrun

$(BIN)/demo: FORCE
	$(BUILD) -o $@ ./internal/demo

$(BIN)/bench-apply: FORCE
	$(BUILD) -o $@ ./internal/bench/apply

$(BIN)/bench-userspace: FORCE
	$(BUILD) -o $@ ./internal/bench/userspace

$(BIN)/bench-headline: FORCE
	$(BUILD) -o $@ ./internal/bench/headline

$(BIN)/bench-sched: FORCE
	$(BUILD) -o $@ ./internal/bench/sched

$(BIN)/bench-health: FORCE
	$(BUILD) -o $@ ./internal/bench/health

$(BIN)/soak: FORCE
	$(BUILD) -o $@ ./internal/bench/soak

$(BIN)/bench-%: internal/bench/load/%.c
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) -o $@ $<

# The engine of the demo: auto is what this kernel has; kernel boots a virtual
# machine where it has no IPVS, and so does everything for who is not root.
ENGINE ?= auto

demo: deps build $(BIN)/demo $(BIN)/vmrun ## show lbd at work: traffic, a dead server, a killed lbd (ENGINE=auto|kernel|userspace)
	@if [ "$(ENGINE)" = kernel ]; then \
		LBD_VM=$${LBD_VM:-auto} $(BIN)/vmrun run -file $(BIN)/lbd -file $(BIN)/ipvsctl -timeout 5m \
			$(BIN)/demo -engine kernel $$(test -t 1 && echo -live=yes); \
	elif [ "$$(id -u)" = 0 ]; then \
		$(BIN)/demo -engine $(ENGINE); \
	else \
		$(BIN)/vmrun run -file $(BIN)/lbd -file $(BIN)/ipvsctl -timeout 5m \
			$(BIN)/demo -engine $(ENGINE) $$(test -t 1 && echo -live=yes); \
	fi

bench-apply: deps build $(BIN)/bench-apply $(BIN)/vmrun ## time a large table against ipvsadm and keepalived
	@LBD_VM=$${LBD_VM:-auto} $(BIN)/vmrun run -file $(BIN)/lbd -tool ipvsadm -tool keepalived \
		$(BIN)/bench-apply

bench-userspace: DEBS += $(BENCH_DEBS)
bench-userspace: deps build $(BIN)/bench-userspace $(LOAD) $(BIN)/vmrun ## compare the userspace engine with NAT, HAProxy, nginx, IPVS
	@status=0; $(BIN)/bench-userspace || status=1; \
	LBD_VM=$${LBD_VM:-auto} $(BIN)/vmrun run -memory 2048 -file $(BIN)/lbd $(LOAD:%=-file %) -tool nft -tool conntrack \
		$(BIN)/bench-userspace -contenders lbd,ipvs -metrics requests -rounds 5 -time 5s || status=1; exit $$status

bench-headline: deps build $(BIN)/bench-headline $(LOAD) $(BIN)/vmrun ## show what least connection is worth, on both engines
	@status=0; $(BIN)/bench-headline || status=1; \
	LBD_VM=$${LBD_VM:-auto} $(BIN)/vmrun run -file $(BIN)/lbd $(LOAD:%=-file %) \
		$(BIN)/bench-headline -engine kernel -slow 10 -requests 3000 || status=1; exit $$status

bench-sched: $(BIN)/bench-sched ## time the schedulers beside plain scans
	$(BIN)/bench-sched

bench-health: deps build $(BIN)/bench-health $(BIN)/vmrun ## make 10,000 checks a second, see how late the dead are found, compare with keepalived
	@status=0; $(BIN)/bench-health || status=1; \
	LBD_VM=$${LBD_VM:-auto} $(BIN)/vmrun run -file $(BIN)/lbd -tool ip -tool nft -tool keepalived \
		$(BIN)/bench-health -keepalived -targets 200 -rounds 5 || status=1; exit $$status

soak: deps build $(BIN)/soak $(LOAD) ## a million connections through lbd, while what it balances keeps changing
	$(BIN)/soak

test: deps ## every tier: unit, namespaces, kernel
	@$(MAKE) --no-print-directory -k test-unit test-netns test-kernel

test-unit: ## tests that need nothing, with the race detector
	$(GO) run ./internal/tier unit -race -skip '^(TestNetns|TestKernel)' ./...

test-netns: ## tests in network namespaces of this host
	LBD_TEST_REQUIRE=netns,nfqueue $(GO) run ./internal/tier netns -parallel 4 -run '^TestNetns' $(call pkgs_with,TestNetns)

test-kernel: $(BIN)/vmrun build ## tests on a real kernel with IPVS, in a virtual machine
	$(BIN)/vmrun test -timeout 30m -kernel $(KERNEL) -file $(BIN)/lbd:/app/lbd -file $(BIN)/ipvsctl:/app/ipvsctl \
		-beside ./internal/e2e $(call pkgs_with,TestKernel)

test-kernel-matrix: $(BIN)/vmrun ## the kernel tests on every kernel of KERNELS
	@for k in $(KERNELS); do $(MAKE) --no-print-directory test-kernel KERNEL=$$k || exit 1; done

lint: ## gofmt, vet on every platform, staticcheck, generated files, go.mod
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) -checks all ./...
	GOOS=linux GOARCH=arm64 $(GO) vet ./...
	GOOS=linux GOARCH=s390x $(GO) vet ./ipvs/... ./healthcheck/... ./cmd/...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./ipvs/... ./healthcheck/... ./cmd/ipvsctl/...
	$(GO) mod tidy -diff
	$(GO) generate ./... && git diff --exit-code

generate: ## rewrite the generated files
	$(GO) generate ./...

clean: ## remove what the build made
	rm -rf $(BIN) .cache
