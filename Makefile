PYTHON ?= python3
PREFIX ?= /usr/local
DESTDIR ?=
EXTRAS ?=
ARGS ?=

BIN := .venv/bin
READY := .venv/ready
MAN := $(wildcard man/*.1 man/*.5)
LIB = $(DESTDIR)$(PREFIX)/lib/cronledger
SHARE = $(DESTDIR)$(PREFIX)/share
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' cronledger/__init__.py)
NAME = cronledger-$(VERSION)

.PHONY: help demo test torture lint bench man install uninstall dist clean
.DELETE_ON_ERROR:

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## run the example schedule on an SQLite ledger in .demo, and show what happened
	@rm -rf .demo && mkdir .demo && sed '/^report = /d' schedule.example.toml >.demo/schedule.toml
	@echo "# schedule.example.toml, in .demo, with a line for each run; the second tick finds the minute's jobs claimed"
	@while [ "$$(date +%S)" -gt 50 ]; do sleep 1; done  # so that both ticks are of one minute
	@cd .demo && unset CRONLEDGER_DSN CRONLEDGER_SCHEDULE CRONLEDGER_NODE && \
	for command in check install tick tick list history 'show heartbeat'; do \
	    echo; echo "\$$ cronledger $$command"; ../$(BIN)/cronledger $$command || exit; \
	done

test: $(READY) ## run all tests, on PostgreSQL, MariaDB and SQLite, and under cron (ARGS="-k tick")
	$(BIN)/pytest --numprocesses 3 --dist loadgroup $(ARGS)

torture: $(READY) ## inflict faults on real servers for half an hour, and count (galera-4 and rsync too; ARGS="-k cut")
	$(BIN)/pytest --numprocesses 2 --dist loadfile -o python_files='fault_*.py' -o testpaths=tests/torture $(ARGS)

lint: $(READY) ## check style, types, the direction of imports and the manual pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --quiet tests/test_layout.py
	@command -v mandoc >/dev/null || { echo "mandoc is missing: apt-get install mandoc" >&2; exit 1; }
	mandoc -T lint $(MAN)

bench: $(READY) ## measure what a tick costs, against its limits (ARGS="idle burst")
	$(BIN)/python tests/bench.py $(ARGS)

man: ## show the manual pages
	@mandoc -a -T utf8 $(MAN)

install: $(READY) ## install below PREFIX (/usr/local); EXTRAS=[mysql] adds what MySQL without TLS needs
	rm -rf $(LIB)
	$(BIN)/pip install --quiet --no-compile --target $(LIB) '.$(EXTRAS)'
	rm -rf $(LIB)/bin $(LIB)/share
	$(BIN)/python -m compileall -q -s "$(DESTDIR)" $(LIB)
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/man/man5 $(SHARE)/doc/cronledger
	printf '%s\n' "#!$$($(PYTHON) -c 'import sys; print("%s/bin/python%d.%d" % (sys.base_exec_prefix, *sys.version_info[:2]))') -I" 'import sys' '' \
	    'sys.path.insert(0, "$(PREFIX)/lib/cronledger")' '' 'from cronledger.__main__ import main' '' 'sys.exit(main())' \
	    >$(DESTDIR)$(PREFIX)/bin/cronledger
	chmod 755 $(DESTDIR)$(PREFIX)/bin/cronledger
	install -m 644 $(filter %.1,$(MAN)) $(SHARE)/man/man1
	install -m 644 $(filter %.5,$(MAN)) $(SHARE)/man/man5
	install -m 644 schedule.example.toml $(SHARE)/doc/cronledger

uninstall: ## remove what install put there
	rm -rf $(LIB)
	rm -f $(DESTDIR)$(PREFIX)/bin/cronledger
	rm -f $(patsubst man/%,$(SHARE)/man/man1/%,$(filter %.1,$(MAN)))
	rm -f $(patsubst man/%,$(SHARE)/man/man5/%,$(filter %.5,$(MAN)))
	rm -rf $(SHARE)/doc/cronledger

dist: $(READY) ## build the source archive and the wheel of the last commit, in dist/
	rm -rf build dist && mkdir build dist
	git archive --prefix=$(NAME)/ --output=build/plain.tar.gz HEAD
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist build/plain.tar.gz
	$(BIN)/python -m zipfile -e dist/$(NAME)-*.whl build
	cp build/$(NAME).dist-info/METADATA build/PKG-INFO
	git archive --prefix=$(NAME)/ --add-file=build/PKG-INFO --output=dist/$(NAME).tar.gz HEAD

clean: ## remove all that was made here
	rm -rf .venv .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)
