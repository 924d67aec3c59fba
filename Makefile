# Starling. Needs Go 1.26 and make; `make help` lists what there is.

export CGO_ENABLED = 0
GO ?= go
BIN = bin/starling
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
SMOLLM2 = ../shared/models/smollm2-135m-instruct-q4_1.gguf
FUZZTIME ?= 5s

.PHONY: help build demo test check vet staticcheck cross generated digests arm64 arm64-all fuzz demo-smollm2 soak clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | column -ts "$$(printf '\t')" 2>/dev/null || grep '##' Makefile

build: ## the binary, in bin/
	$(GO) build -ldflags '-s -w' -o $(BIN) ./cmd/starling

demo: build ## a private swarm of processes on this machine runs a prompt, in two shapes
	$(BIN) demo

# Many tests wait more than they compute, so more of them run at once than there are processors. Those of node take longest, and begin.
test: ## every test that needs no model download
	$(GO) vet ./...
	$(GO) test -vet=off -timeout 20m -p 3 -parallel 6 ./node ./...

check: test staticcheck cross ## test, staticcheck and the cross builds; .ci/run does more

vet:
	$(GO) vet ./...

staticcheck:
	$(GO) run $(STATICCHECK) ./...

# Windows and macOS: built only to see that it builds, so without optimisation (a quarter less time from a cold cache).
cross: ## builds that are not run here
	GOOS=windows GOARCH=amd64 $(GO) build -gcflags='all=-N -l' -o bin/cross/ ./cmd/starling
	GOOS=darwin GOARCH=arm64 $(GO) build -gcflags='all=-N -l' -o bin/cross/ ./cmd/starling
	GOOS=linux GOARCH=arm64 $(GO) build -o bin/cross/ ./cmd/starling

generated: ## the assembly is what its generator writes
	cd kernels/_asm && $(GO) vet . && $(GO) test .
	$(GO) generate ./kernels
	git diff --exit-code -- kernels

digests: ## whole models and all kernels by the other builds and variants that this processor runs: the committed digests
	$(GO) test -v -count=1 -run 'TestProcessorVariants' ./kernels
	GOAMD64=v3 $(GO) test -run 'MatMul|SelfTest|Digests' ./kernels ./runtime
	$(GO) test -tags purego -run 'MatMul|SelfTest|Digests' ./kernels ./runtime

# An emulated processor, and the variant that must be selected there without being asked for.
ARM64 = cortex-a53.neon neoverse-n1.dotprod max.i8mm
arm64: ## the kernels' tests and the self test under qemu, for each variant: all hashes must be equal
	cd kernels/_asm && $(GO) test -v -run Encodings .
	GOARCH=arm64 $(GO) test -c -o bin/kernels-arm64.test ./kernels
	GOARCH=arm64 $(GO) build -o bin/starling-arm64 ./cmd/starling
	@$(MAKE) --no-print-directory -j2 -Otarget arm64-all $(ARM64:%=arm64-%)

# What make arm64 has built, on one emulated processor each: two of them at once.
arm64-all:
	cd kernels && qemu-aarch64-static -cpu max ../bin/kernels-arm64.test -test.skip Floats
arm64-%:
	@set -e; c=$*; cpu=$${c%.*} variant=$${c##*.}; \
	echo "arm64: $$cpu runs $$variant"; \
	(cd kernels && qemu-aarch64-static -cpu $$cpu ../bin/kernels-arm64.test -variant $$variant -test.run 'Variants|SelfTest|Saturated'); \
	qemu-aarch64-static -cpu $$cpu bin/starling-arm64 selftest; \
	(cd kernels && STARLING_KERNELS=$$variant qemu-aarch64-static -cpu max ../bin/kernels-arm64.test -variant $$variant -test.run Variants)

# Minimizing an input of kilobytes may take a minute by default, in which a target whose seeds are files tried ten inputs.
# A package's targets share one binary. Two targets run at once, with a worker each. Now and then one calls the end of its time itself a failure:
# that deadline, and no input that fails.
FUZZ_ENDED = grep -q "^    context deadline exceeded$$" $$log && ! grep -q "Failing input\|panic\|hung" $$log
fuzz: ## every fuzz target for FUZZTIME
	@rm -rf bin/fuzz; mkdir -p bin/fuzz; set -e; cache=$$($(GO) env GOCACHE)/fuzz; \
	for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  package=$$($(GO) list $$dir); bin=$(CURDIR)/bin/fuzz/$$(echo $$package | tr / -).test; \
	  $(GO) test -c -vet=off -fuzz . -o $$bin $$dir; \
	  sed -n "s,^func \(Fuzz[A-Za-z0-9_]*\)(.*,$$dir \1 $$bin $$cache/$$package,p" $$dir/*_test.go >> bin/fuzz/targets; \
	done; \
	xargs -n 4 -P 2 sh -c 'cd $$0; log=$$2-$$1.log; \
	  $$2 -test.run "^$$" -test.fuzz "^$$1$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 100x -test.parallel 1 -test.fuzzcachedir $$3 > $$log 2>&1 < /dev/null \
	    || { $(FUZZ_ENDED); } || { echo "$$0 $$1 fails:"; cat $$log; exit 1; }; \
	  echo "$$0 $$1"' < bin/fuzz/targets

PARIS = $(BIN) demo --model $(SMOLLM2) --prompt "What is the capital of France?" -n 8
demo-smollm2: build ## a sample of cuts and chunks of a real model (the whole matrix: make soak)
	$(PARIS) > bin/demo.log || { cat bin/demo.log; exit 1; }
	cat bin/demo.log && grep -q Paris bin/demo.log
	$(PARIS) --cuts 4,11,17,30 --chunk 7 > bin/demo.log || { cat bin/demo.log; exit 1; }
	cat bin/demo.log && grep -q Paris bin/demo.log

soak: ## every cut of every golden model and of SmolLM2, five peers, all batches and chunk sizes, 240 kill schedules, 120 of real processes with each of two models, half of 40 nodes killed, 10,000 plans against brute force, an idle node and an outage, 100 MB of KV through a relay, a minute for each fuzz target: hours
	$(GO) test -timeout 30m -run TestHalfIsKilled -v ./swarm -soak
	$(GO) test -timeout 1h -run 'TestIdleHour|TestOutage|TestPartition|TestRelayedKV' -v ./test -soak
	$(GO) test -timeout 30m -parallel 6 -run TestKillSchedule -v ./node -soak
	$(GO) test -timeout 30m -run 'TestOracle|TestPlansAreNear' -v ./route -soak
	$(GO) test -timeout 2h -run TestCuts -v ./runtime -soak
	$(GO) test -timeout 1h -run TestLosses -v ./cmd/starling -soak
	$(GO) test -timeout 8h -run TestSoak -v ./cmd/starling -soak
	$(MAKE) fuzz FUZZTIME=60s

clean:
	rm -rf bin
