# Everyday commands. Each is one line of an ordinary tool; `work` is every module of go.work (see CONTRIBUTING.md).

GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: test race vet fmt lint pack generate check-generated bench full soak ci

test:
	go test work

race:
	go test -race work

# Linux is the tested platform; the others must at least type-check.
vet:
	GOOS=linux go vet work
	GOOS=darwin go vet work
	GOOS=windows go vet work

fmt:
	gofmt -l -w .

# One pattern per module: a directory pattern stops at the next go.mod.
lint:
	$(GOLANGCI_LINT) run $$(go list -f '{{.Dir}}/...' -m)

# Proves offline that every module can be fetched and built as its users do.
pack:
	scripts/pack

generate:
	go generate work

check-generated:
	scripts/check-generated

bench:
	go test -run '^$$' -bench . -benchmem work

# More rounds, seeds and contenders than a push needs.
full:
	LOCKER_TEST_SIZE=full go test -count=1 -timeout 2h work

# As long as it takes to find what is rare.
soak:
	LOCKER_TEST_SIZE=soak go test -count=1 -timeout 24h work

ci:
	bash .ci/run
