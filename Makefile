# `make` lists the targets. README.md and .ci/run use the same words.

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -X main.version=$(VERSION)
ARGS     ?=
TRIMPATH ?= -trimpath
TESTARGS ?=
FUZZTIME ?= 1m
SEED     ?= 1
MINUTES  ?= 10

# Every target takes other servers than this machine's MariaDB and etcd, by the names of scripts/install-server.sh:
# make test SERVER=mysql, make chaos SERVER=mariadb-11.8 ETCD=etcd-3.5.
SERVER ?=
ETCD   ?=
ifneq ($(SERVER),)
export TOCSIN_TEST_SERVER = $(SERVER)
endif
ifneq ($(ETCD),)
export TOCSIN_ETCD = $(shell scripts/install-server.sh $(ETCD))/etcd
endif

# The packages of all modules in go.work, where ./... stands for those of the root module alone.
ALL = work

.DEFAULT_GOAL := help
.PHONY: help run observe example build test test-sql test-java test-node test-mysql test-debian13 model firetimes check format vet staticcheck tidy modules lint fuzz chaos chaos-schedules faults matrix alerts cluster clock bench bench-peers test-peers deploy-check units openapi lint-openapi htmx axe console-pictures dashboards clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

run: ## install what is missing, build, run `tocsin dev $(ARGS)`: make run SERVER=mysql ARGS="--tasks 500 --exit"
	@scripts/install-deps.sh run
	@$(MAKE) --no-print-directory build
	@exec bin/tocsin dev --rules deploy/prometheus $(ARGS)

observe: ## run `tocsin dev` under a load that fails in part, watched by Prometheus, which it installs: make observe ARGS="--load 200"
	@scripts/install-deps.sh observe
	@$(MAKE) --no-print-directory build
	@exec bin/tocsin dev --load 50 --servers 2 --nodes 3 --rules deploy/prometheus $(ARGS)

example: ## run examples/shop, a small web shop, with servers of its own: make example ARGS="--listen 127.0.0.1:8080"
	@scripts/install-deps.sh run
	@$(MAKE) --no-print-directory build
	@go build $(TRIMPATH) -o bin/shop ./examples/shop
	@exec scripts/example.sh $(ARGS)

build: ## build bin/tocsin
	@mkdir -p bin
	@echo "building bin/tocsin: the first time takes a few minutes, later ones seconds" >&2
	@go build $(TRIMPATH) -ldflags '$(LDFLAGS)' -o bin/tocsin ./cmd/tocsin

# The packages of all modules, as ./x.
PACKAGES = $(shell go list -f '{{.Dir}}' $(ALL) | sed 's|^$(CURDIR)|.|')

# Packages whose tests start many processes, or judge how long a fault lasts: one at a time, and many tests of it at once, as most
# of them wait. Of the others there is room for two packages at once.
ALONE = ./assign ./cmd/tocsin ./test/chaos ./node

# The race detector makes tests take four times as long. It runs where the code of a package works side by side. PLAIN are programs
# and harnesses, whose engines have it in tests of their own, and packages that compute in one goroutine.
PLAIN = $(filter-out $(RACED), $(filter ./cmd/% ./docs ./examples/% ./internal/% ./schedule/firetimes ./test/% ./tocsintest, $(PACKAGES)))
RACED = ./internal/client ./internal/loop ./internal/mysql ./internal/store

# Searches, for a minute and more: make test runs them at low priority, while other tests wait.
MODEL = go test -vet=off -timeout 30m $(TESTARGS) ./test/model

# Servers of tests write gigabytes that nobody keeps, and etcd waits for the disk at each write: they work in memory if there is much.
TEMP := $(or $(TMPDIR),$(shell scripts/memory.sh),/tmp)
test test-sql: export TMPDIR = $(TEMP)

# go vet is left to make lint.
test: ## install what is missing, run all tests, with the race detector where something runs side by side, and list what failed
	@scripts/install-deps.sh test
	@scripts/all.sh \
		'nice -n 19 $(MODEL) ./schedule/firetimes' \
		'go test -vet=off -race -p 2 -parallel 4 -timeout 60m $(TESTARGS) $(filter-out $(ALONE) $(PLAIN), $(PACKAGES))' \
		'go test -vet=off -race -p 1 -parallel 6 -timeout 60m $(TESTARGS) $(filter-out $(PLAIN), $(ALONE))' \
		'go test -vet=off -p 2 -parallel 4 -timeout 60m $(TESTARGS) $(filter-out $(ALONE) ./test/model ./schedule/firetimes, $(PLAIN))' \
		'go test -vet=off -p 1 -parallel 6 -timeout 60m $(TESTARGS) $(filter $(PLAIN), $(ALONE))' \
		'go run ./internal/house/servertests left-out'

# Of test/model only what compares it with a server: its searches need none, and make test has run them.
test-sql: ## the part of make test that depends on the database server, without the race detector: make test-sql SERVER=mysql
	@scripts/install-deps.sh test
	packages=$$(go run ./internal/house/servertests packages | grep -vx ./test/model) && \
		go test -vet=off -p 2 -parallel 4 -timeout 30m $(TESTARGS) $$packages
	go test -vet=off -timeout 30m -run Conform $(TESTARGS) ./test/model
	@go run ./internal/house/servertests left-out-of-sql

# Apart from make test, as a JDK is 250 MB.
test-java: ## install a JDK if it is missing, run the programs of docs/sql.md and docs/http.md that are in Java
	@scripts/install-deps.sh test-java
	TOCSIN_TEST_JAVA=1 go test -v -count=1 -timeout 10m -run 'Java' $(TESTARGS) ./docs

# Apart from make test, and from CI, as it needs npm's registry.
test-node: ## get the npm package standardwebhooks into bin/npm, and verify callbacks with it
	@scripts/install-deps.sh test-node
	@mkdir -p bin/npm
	cp docs/testdata/standardwebhooks/package*.json bin/npm/
	npm ci --prefix bin/npm --ignore-scripts --no-audit --no-fund
	TOCSIN_TEST_NPM=$(CURDIR)/bin/npm go test -v -count=1 -timeout 5m -run 'Npm' $(TESTARGS) ./docs

test-mysql: ## make test on MySQL 9.7, which it installs into a folder of its own without root
	@$(MAKE) --no-print-directory test SERVER=mysql

test-debian13: ## make test on MariaDB 11.8 and etcd 3.5, installed like MySQL
	@$(MAKE) --no-print-directory test SERVER=mariadb-11.8 ETCD=etcd-3.5

model: ## search every cast of the row's model, without the race detector, which would take ten times as long
	$(MODEL)

firetimes: ## compare fire times of 10,000 random cron expressions with a walk along the clock
	TOCSIN_FIRETIMES=10000 go test -v -count=1 -timeout 30m -run '^TestFireTimes' $(TESTARGS) ./schedule/firetimes

check: lint test ## format, vet, staticcheck and race tests: what a change must pass

# test/peers is a Go module of its own, outside go.work. format sees it; to vet it takes all that its
# peers import, which a fresh clone would download for that alone: test-peers does it.
lint: format vet staticcheck ## the part of check that runs nothing

format: ## fail if a file is not formatted
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; fi

vet: ## go vet
	go vet $(ALL)

staticcheck: ## staticcheck, in the version of internal/tools/go.mod
	go tool staticcheck $(ALL)

tidy: ## go mod tidy in every module, after a change of imports or versions
	@for dir in $$(go list -m -f '{{.Dir}}') test/peers; do echo "$$dir" && GOWORK=off go -C "$$dir" mod tidy || exit 1; done

modules: ## print what a program that adds tasks, one with a node, and the command need: modules, sums, bytes
	@scripts/modules.sh

fuzz: ## run each fuzz target for FUZZTIME (1m)
	@scripts/fuzz.sh $(FUZZTIME)

chaos: ## play random faults and check every task: make chaos SEED=7 MINUTES=10 SERVER=mysql OWNERSHIP=rows OUTBOXES=3 SINK=kafka WORKERS=8
	@scripts/install-deps.sh $(if $(OUTBOXES)$(SINK),test,run)
	$(if $(WORKERS),@$(MAKE) --no-print-directory build)
	@mkdir -p bin
	@go build -o bin/chaosrun ./test/chaos/chaosrun
	@exec bin/chaosrun -seed $(SEED) -minutes $(MINUTES) -etcd=$(if $(filter rows,$(OWNERSHIP)),false,true) $(if $(OUTBOXES),-outboxes $(OUTBOXES)) $(if $(SINK),-sink $(SINK) -rate 500) $(if $(WORKERS),-workers $(WORKERS) -program bin/tocsin -rate 120)

chaos-schedules: ## 2,000 schedules under faults and changes, every fire time checked, and what they cost: make chaos-schedules SEED=7 MINUTES=10 AIMS=200
	@scripts/install-deps.sh run
	@mkdir -p bin
	@go build -o bin/chaosrun ./test/chaos/chaosrun
	@exec bin/chaosrun -schedules $(if $(AIMS),600 -aims $(AIMS) -nodes 4 -measure 0,2000) -seed $(SEED) -minutes $(MINUTES) -etcd=$(if $(filter rows,$(OWNERSHIP)),false,true)

faults: ## run the long fault scenarios, each with its figures
	@scripts/install-deps.sh test
	TOCSIN_FAULTS=1 go test -v -count=1 -timeout 60m -skip '^Test(Matrix|Alerts)$$' $(TESTARGS) ./test/chaos
	TOCSIN_FAULTS=1 go test -v -count=1 -timeout 60m -run 'Backlog|CantBePurged|StaysOpen' $(TESTARGS) ./outbox/relay

matrix: ## break one database or server in every way, and write what each part does and says to bin/matrix.md
	@scripts/install-deps.sh test
	@mkdir -p bin
	TOCSIN_FAULTS=1 TOCSIN_MATRIX=$(CURDIR)/bin/matrix.md go test -v -count=1 -timeout 30m -run '^TestMatrix$$' $(TESTARGS) ./test/chaos

alerts: ## break a cluster in many ways, and print which alerts fire, when, which Alertmanager tells people, and which command says why: make alerts ARGS="-only etcd"
	@scripts/install-deps.sh alerts
	@$(MAKE) --no-print-directory build
	@go test -c -o bin/alertfaults ./test/chaos
	@TOCSIN_FAULTS=1 exec bin/alertfaults -test.run '^TestAlerts$$' -test.timeout 0 $(ARGS)

cluster: ## run the long cluster scenarios, each with its figures as a line and as JSON: make cluster LEASE=10s
	@scripts/install-deps.sh test
	TOCSIN_FAULTS=1 TOCSIN_LEASE=$(LEASE) go test -v -count=1 -timeout 60m -run '^TestCluster' $(TESTARGS) ./test/chaos

clock: ## deliver 1000 tasks/s for MINUTES while the servers' clocks are stepped and slewed: none may start early
	@scripts/install-deps.sh test
	TOCSIN_CLOCK_MINUTES=$(MINUTES) go test -v -count=1 -timeout $$(($(MINUTES)+15))m -run TestNothingIsEarlyWhileClocks ./node

bench: ## install what is missing, measure every target of docs/performance.md: make bench SERVER=mysql ARGS="-rounds 1 -only idle,insert"
	@scripts/install-deps.sh run
	@$(MAKE) --no-print-directory build
	@go run ./test/targets $(ARGS)

bench-peers: ## install what is missing, measure Tocsin beside its peers: make bench-peers ARGS="--rounds 1 --only tocsin,river"
	@scripts/install-deps.sh peers
	@mkdir -p bin
	@GOWORK=off go -C test/peers build -o ../../bin/peers .
	@exec bin/peers $(ARGS)

test-peers: ## install what is missing, vet and test test/peers, which is a Go module of its own
	@scripts/install-deps.sh peers
	cd test/peers && export GOWORK=off && go vet ./... && go test -timeout 10m $(TESTARGS) ./...

deploy-check: ## have systemd-analyze, Helm and Kubernetes' types look at deploy/, as far as they can be had
	@scripts/check-deploy.sh

# Apart from make test, as it needs root and Linux namespaces.
units: ## boot systemd in namespaces of its own, install the units as docs/deployment.md says, and try them: as root
	@scripts/install-deps.sh test
	@$(MAKE) --no-print-directory build
	TOCSIN_TEST_SYSTEMD=1 go test -v -count=1 -timeout 5m -run '^TestTheUnitsWork' $(TESTARGS) ./cmd/tocsin

openapi: ## write api/openapi.yaml, after a change of the HTTP API
	go test -count=1 -run TestOpenAPIIsThatOfTheCode ./api -update

# Apart from make lint, as it needs npm's registry.
lint-openapi: ## have Redocly's linter look at api/openapi.yaml
	@scripts/install-deps.sh test-node
	npx --yes @redocly/cli@2.77.0 lint --extends=recommended api/openapi.yaml

# Apart from make test, as it needs npm's registry, which npm compares the package with.
htmx: ## compare the console's htmx with that of npm's registry
	@scripts/install-deps.sh test-node
	@mkdir -p bin/npm
	npm pack htmx.org@4.0.1 --silent --pack-destination bin/npm
	tar -xOzf bin/npm/htmx.org-4.0.1.tgz package/dist/htmx.min.js | cmp - api/console/static/htmx.min.js

# Apart from make test, as it needs npm's registry, and looks at 25 screens in 8 ways.
axe: ## have axe-core look at every screen of the console in Chromium, in both languages, light and dark, wide and 320 pixels
	@scripts/install-deps.sh test
	@scripts/install-deps.sh test-node
	@mkdir -p bin/npm
	npm pack axe-core@4.14.1 --silent --pack-destination bin/npm
	tar -xzOf bin/npm/axe-core-4.14.1.tgz package/axe.min.js >bin/npm/axe.min.js
	TOCSIN_TEST_AXE=$(CURDIR)/bin/npm/axe.min.js go test -v -count=1 -timeout 30m -run '^TestAxe' $(TESTARGS) ./api/console

console-pictures: ## take the pictures of docs/console.md, after a change of the console's pages
	@scripts/install-deps.sh test
	TOCSIN_TEST_PICTURES=$(CURDIR)/docs/console go test -count=1 -timeout 10m -run '^TestPictures' $(TESTARGS) ./api/console

dashboards: ## write deploy/grafana/dashboards, after a change in internal/dashboards
	go test -count=1 -run TestTheDashboardsInDeploy ./internal/dashboards -update

clean: ## remove what build and run made
	rm -rf bin
