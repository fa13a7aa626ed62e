# memcrest. "make demo" and "make check" do everything, from missing packages on; README.md lists the other targets.
#
# Objects go to build/VARIANT/: release (default), debug (verifier, assertions), asan (debug with ASan and UBSan), tsan, cov, tiny (asan with tiny limits).

CC = gcc
PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
VERSION = $(shell sed -n 's/.define MC_VERSION "\(.*\)"/\1/p' memcrest.h)
DESTDIR =
VARIANT = release
B = build/$(VARIANT)

WARN = -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wvla
OPT_release = -O2 -DNDEBUG
OPT_debug = -O0 -g
# clang takes NULL + 0 for an error, which later C standards allow; gcc's check, in asan, sees the overflows that matter
OPT_fuzz = -O1 -g -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize=pointer-overflow -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DMC_ARENA_MALLOC
OPT_tsan = -O1 -g -fsanitize=thread
OPT_cov = -O0 -g --coverage
OPT_asan = -O1 -g -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DMC_ARENA_MALLOC
OPT_tiny = $(OPT_asan) -DMC_TINY
CFLAGS = $(OPT_$(VARIANT))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden $(WARN) $(CFLAGS) -I$(B) -isystem /usr/include/libxml2
LDFLAGS =
LDLIBS = -lzip -ljansson -lyaml -lxml2 -lprotobuf-c -lm -pthread

LIB = $(basename $(wildcard ir/*.c frontend/*.c passes/*.c passes/*/*.c backends/*.c))
OBJ = $(LIB:%=$(B)/%.o) $(B)/frontend/onnx.pb-c.o

all: build/memcrest build/libmemcrest.a build/libmemcrest.so

build/memcrest: $(B)/memcrest
	cp $< $@
build/libmemcrest.a: $(B)/libmemcrest.a
	cp $< $@
build/libmemcrest.so: $(B)/libmemcrest.so
	cp $< $@

$(B)/memcrest: $(B)/main.o $(B)/cli_options.o $(B)/cli_pair.o $(B)/cli_terminal.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/libmemcrest.a: $(OBJ)
	rm -f $@
	ar rcs $@ $^
$(B)/libmemcrest.so: $(OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libmemcrest.so.0 -o $@ $^ $(LDLIBS)
	ln -sf $(@F) $@.0

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(B)/frontend -MMD -MP -c -o $@ $<

# The decoder of ONNX files is made from its schema; what the generator writes is not ours to warn about.
$(B)/frontend/onnx.pb-c.c $(B)/frontend/onnx.pb-c.h &: frontend/onnx.proto
	@mkdir -p $(@D)
	protoc-c -I frontend --c_out=$(@D) $<
$(B)/frontend/onnx.pb-c.o: $(B)/frontend/onnx.pb-c.c
	$(CC) -std=c11 -fPIC -fvisibility=hidden $(CFLAGS) -c -o $@ $<
$(filter $(B)/frontend/onnx%,$(filter-out %.pb-c.o,$(OBJ))): $(B)/frontend/onnx.pb-c.h

# Texts that are part of the program (style sheet, script, schema) become C strings, line by line.
$(B)/%.inc: %
	@mkdir -p $(@D)
	sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $< >$@
$(B)/backends/write.o: $(B)/backends/report.xsd.inc
$(B)/backends/diff_write.o: $(B)/backends/html.css.inc
$(B)/backends/html.o: $(B)/backends/html.css.inc $(B)/backends/html.js.inc

# ---- README's two commands -------------------------------------------------------------------------------------------

PACKAGES = gcc libc6-dev libzip-dev libjansson-dev libyaml-dev libxml2-dev libxml2-utils libprotobuf-c-dev protobuf-c-compiler libcmocka-dev zlib1g-dev
SUDO = $(shell [ "$$(id -u)" = 0 ] || echo sudo)

deps:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || ! command -v apt-get >/dev/null || \
	{ $(SUDO) apt-get update && $(SUDO) apt-get install -y --no-install-recommends $(PACKAGES); }

demo: deps
	@$(MAKE) --no-print-directory all
	build/memcrest estimate fixtures/models/llava_7b.train.bf16.stack.pt2 --dim batch=8,seq=2048 --freeze model.vision_tower
	@echo; echo "The same model from ONNX:"
	build/memcrest estimate fixtures/models/llava_7b.train.bf16.stack.onnx --dim batch=8,seq=2048 --freeze model.vision_tower | head -5

check: deps
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory DAMAGE="5 20" damage
	@$(MAKE) --no-print-directory torture adversary embed examples python_tests
	@$(MAKE) --no-print-directory VARIANT=asan tests

# ---- tests -----------------------------------------------------------------------------------------------------------

TESTS = $(patsubst tests/test_%.c,%,$(wildcard tests/test_*.c))
TEST_BIN = $(TESTS:%=$(B)/tests/test_%)

$(B)/tests/test_%: $(B)/tests/test_%.o $(B)/tests/support.o $(B)/tests/reports.o $(B)/tests/archive.o $(B)/tests/events.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $(filter %.o,$^) $(B)/libmemcrest.a $(LDLIBS) -lcmocka -lz
$(B)/tests/test_fuzz: $(B)/tests/fuzz_targets.o
.SECONDARY: $(B)/tests/fuzz_targets.o $(TEST_BIN:=.o) $(B)/tests/support.o $(B)/tests/reports.o $(B)/tests/archive.o $(B)/tests/events.o

tests: $(B)/memcrest $(TEST_BIN)
	sh tests/run.sh $(B)/memcrest $(TEST_BIN)

golden: all
	sh tests/golden.sh --write build/memcrest

valgrind:
	@$(MAKE) --no-print-directory VARIANT=debug valgrind_run
valgrind_run: $(B)/memcrest $(TEST_BIN)
	for t in $(TEST_BIN); do valgrind -q --error-exitcode=9 --leak-check=full $$t || exit 1; done

# Which lines the tests run; build/cov/lines has every line.
coverage:
	@$(MAKE) --no-print-directory VARIANT=cov coverage_run
coverage_run: $(B)/memcrest $(TEST_BIN)
	find $(B) -name '*.gcda' -delete
	sh tests/run.sh $(B)/memcrest $(TEST_BIN)
	@sh tests/coverage.sh $(B)

# Each target of tests/fuzz_targets.c for FUZZ_SECONDS of libFuzzer, on one core; what it finds stays in build/fuzz/found.
FUZZ_SECONDS = 60
FUZZ_TARGETS = zip pickle modules script program onnx text recipe framework estimate annotate reports measured
fuzz:
	@$(MAKE) --no-print-directory VARIANT=fuzz CC=clang build/fuzz/tests/fuzz
	@mkdir -p build/fuzz/found
	for t in $(FUZZ_TARGETS); do \
		mkdir -p build/fuzz/corpus/$$t; \
		FUZZ=$$t build/fuzz/tests/fuzz -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix=build/fuzz/found/$$t- \
			-print_final_stats=1 build/fuzz/corpus/$$t fixtures/fuzz/$$t || exit 1; \
	done
$(B)/tests/fuzz: $(B)/tests/fuzz_main.o $(B)/tests/fuzz_targets.o $(B)/tests/support.o $(B)/tests/archive.o $(B)/tests/events.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS) -lcmocka -lz

# Every fixture cut off at 200 lengths and with 1,000 flipped bits, each run under 2 s and 512 MiB; MORE names further files.
DAMAGE = 200 1000
MORE =
MODELS = $(foreach end,pt pt2 onnx ir,$(wildcard fixtures/*/*.$(end)))
damage: $(B)/tests/damage
	$< $(DAMAGE) $(MODELS) $(MORE)
$(B)/tests/damage: $(B)/tests/damage.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# The same, in small, with limits that every fixture meets, and the sanitizers.
tiny:
	@$(MAKE) --no-print-directory VARIANT=tiny DAMAGE="4 8" damage

# Every allocation fails in turn.
torture: $(B)/tests/torture
	$< fixtures/ir/mixed.ir fixtures/models/mlp.pt2 fixtures/models/toy_cond.pt2 fixtures/models/toy_control.scripted.pt fixtures/models/toy_control.scripted.legacy.onnx
$(B)/tests/torture.o: CFLAGS += -fno-builtin -fvisibility=default
$(B)/tests/torture: $(B)/tests/torture.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)

# Graphs that are made to be slow or large.
adversary: $(B)/memcrest $(B)/tests/generate
	@sh tests/adversary.sh $^ >$(B)/adversary.log; grep -v '^ok' $(B)/adversary.log || true; ! grep -q '^not ok' $(B)/adversary.log
$(B)/tests/generate: $(B)/tests/generate.o
	$(CC) $(CFLAGS) -o $@ $^

# Growth, then other tools on one model; those need $(PYTHON) with torch.
bench: $(B)/memcrest $(B)/tests/generate
	sh tests/growth.sh $^
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then $(PYTHON) tests/bench.py $(B)/memcrest; else echo "skipped: the other tools need $(PYTHON) with torch (make bench PYTHON=..)"; fi

# The library in small threads; failing input and output; what is exported.
embed: $(B)/memcrest $(B)/tests/embed $(B)/libmemcrest.so
	@{ LD_LIBRARY_PATH=$(B) $(B)/tests/embed fixtures/models/*.pt fixtures/models/*.pt2 fixtures/models/*.onnx fixtures/ir/*.ir fixtures/bad/*.pt fixtures/bad/*.pt2 fixtures/bad/*.onnx fixtures/fuzz/estimate/* || \
		echo "not ok - embed ended with $$?"; sh tests/io.sh $(B)/memcrest $(B)/libmemcrest.so; sh tests/docs.sh $(B)/memcrest; sh tests/package.sh $(B)/memcrest; } >$(B)/embed.log; grep -v '^ok' $(B)/embed.log || true; ! grep -q '^not ok' $(B)/embed.log
$(B)/tests/embed: $(B)/tests/embed.o $(B)/libmemcrest.so
	$(CC) $(CFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/..' -pthread

# Sweeps under the thread sanitizer.
tsan:
	@$(MAKE) --no-print-directory VARIANT=tsan tsan_run
tsan_run: $(B)/tests/test_sweep
	$<

# Both compilers, every warning an error, and the static analyser of gcc.
lint:
	for cc in gcc clang; do $(MAKE) --no-print-directory CC=$$cc B=build/lint_$$cc CFLAGS="-O2 -Werror" build/lint_$$cc/memcrest $(TESTS:%=build/lint_$$cc/tests/test_%) || exit 1; done

# The manual page and completions, from what the program prints.
docs: build/memcrest
	@mkdir -p build/docs
	sh packaging/docs.sh $< man >build/docs/memcrest.1
	for s in bash zsh fish; do sh packaging/docs.sh $< $$s >build/docs/memcrest.$$s; done

# What is installed is enough to build the examples with nothing but pkg-config's answer.
examples: all
	rm -rf $(B)/inst
	@$(MAKE) --no-print-directory install DESTDIR= PREFIX="$(CURDIR)/$(B)/inst" >$(B)/install.log
	sh tests/examples.sh "$(CURDIR)/$(B)/inst"
	@$(MAKE) --no-print-directory install DESTDIR="$(CURDIR)/$(B)/inst/a blank" PREFIX="/opt/mem crest" >$(B)/install.log
	sh tests/blanks.sh "$(CURDIR)/$(B)/inst/a blank" "/opt/mem crest"
	@$(MAKE) --no-print-directory uninstall DESTDIR="$(CURDIR)/$(B)/inst/a blank" PREFIX="/opt/mem crest" >$(B)/install.log
	@! find "$(B)/inst/a blank" ! -type d | grep . || { echo "uninstall leaves files"; exit 1; }

# The Python package, with the shared library in it.
PYTHON = python3
wheel: all
	$(PYTHON) python/wheel.py build/libmemcrest.so build
python_tests: all
	@if command -v $(PYTHON) >/dev/null; then rm -rf $(B)/wheel && $(PYTHON) python/wheel.py build/libmemcrest.so $(B)/wheel >/dev/null && \
		PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$$(echo $(B)/wheel/*.whl | sed 's/.whl$$/.d/')" sh -c 'mkdir -p "$$PYTHONPATH" && (cd "$$PYTHONPATH" && $(PYTHON) -m zipfile -e ../*.whl .) && $(PYTHON) tests/python_test.py build/memcrest'; \
	else echo "skipped: the Python package's tests need $(PYTHON)"; fi

# ---- installing --------------------------------------------------------------------------------------------------------

# Paths may have blanks.
D = $(DESTDIR)$(PREFIX)
DL = $(DESTDIR)$(LIBDIR)
SCHEMAS = $(sort $(wildcard schema/*.schema.json))
install: all docs
	install -D -m 755 build/memcrest "$(D)/bin/memcrest"
	install -D -m 644 memcrest.h "$(D)/include/memcrest.h"
	install -D -m 644 build/libmemcrest.a "$(DL)/libmemcrest.a"
	install -D -m 755 build/libmemcrest.so "$(DL)/libmemcrest.so.0"
	install -D -m 644 backends/report.xsd "$(D)/share/memcrest/report.xsd"
	ln -sf libmemcrest.so.0 "$(DL)/libmemcrest.so"
	install -d "$(DL)/pkgconfig"
	install -D -m 644 build/docs/memcrest.1 "$(D)/share/man/man1/memcrest.1"
	install -D -m 644 build/docs/memcrest.bash "$(D)/share/bash-completion/completions/memcrest"
	install -D -m 644 build/docs/memcrest.zsh "$(D)/share/zsh/site-functions/_memcrest"
	install -D -m 644 build/docs/memcrest.fish "$(D)/share/fish/vendor_completions.d/memcrest.fish"
	install -m 644 $(SCHEMAS) "$(D)/share/memcrest"
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' packaging/memcrest.pc.in >"$(DL)/pkgconfig/memcrest.pc"

uninstall:
	rm -f "$(D)/bin/memcrest" "$(D)/include/memcrest.h" "$(DL)/libmemcrest.a" "$(DL)/libmemcrest.so" "$(DL)/libmemcrest.so.0" "$(DL)/pkgconfig/memcrest.pc" \
		"$(D)/share/man/man1/memcrest.1" "$(D)/share/bash-completion/completions/memcrest" "$(D)/share/zsh/site-functions/_memcrest" \
		"$(D)/share/fish/vendor_completions.d/memcrest.fish" "$(D)/share/memcrest/report.xsd" \
		$(patsubst schema/%,"$(D)/share/memcrest/%",$(SCHEMAS))
	-rmdir "$(D)/share/memcrest" 2>/dev/null || true

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(B)/main.d $(B)/cli_options.d $(B)/cli_pair.d $(B)/cli_terminal.d $(wildcard $(B)/tests/*.d)

.PHONY: adversary all bench check clean coverage coverage_run damage demo deps docs embed examples fuzz golden install lint python_tests tests tiny torture tsan tsan_run uninstall valgrind valgrind_run wheel
