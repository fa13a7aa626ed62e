# memcrest. "make demo" and "make check" do everything, from missing packages on; README.md lists the other targets.
#
# Objects go to build/VARIANT/: release (default), debug (verifier, assertions), asan (debug with ASan and UBSan), tsan.

CC = gcc
PREFIX = /usr/local
DESTDIR =
VARIANT = release
B = build/$(VARIANT)

WARN = -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wvla
OPT_release = -O2 -DNDEBUG
OPT_debug = -O0 -g
OPT_tsan = -O1 -g -fsanitize=thread
OPT_asan = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DMC_ARENA_MALLOC
CFLAGS = $(OPT_$(VARIANT))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden $(WARN) $(CFLAGS) -I$(B) -isystem /usr/include/libxml2
LDLIBS = -lzip -ljansson -lxml2 -lprotobuf-c -lm -pthread

IR = api arena device diag dtype expr geom graph number op poly print recipe schedule size str verify
FRONTEND = export export_arg export_node export_region foreign frontend json load \
	onnx onnx_call onnx_lossy onnx_node onnx_order onnx_param onnx_scope onnx_value onnx_wire place pickle recipe \
	script script_aten script_branch script_builtin script_call script_eval script_input script_lex script_list script_object script_parse script_run script_thing textir zip
PASSES = analyze blocks calls pass sweep sweep_fit sweep_values \
	raise/bind raise/eager raise/eager_attention raise/eager_build raise/eager_index raise/eager_layer raise/eager_rotary raise/eager_shape raise/fold raise/fold_move raise/infer raise/infer_prim raise/infer_region raise/inputs raise/motif raise/noops raise/record raise/select \
	raise/shape raise/shape_basic raise/shape_dense raise/shape_image raise/shape_index raise/shape_move raise/shape_signal raise/shape_util raise/unfold raise/upcast \
	adapt/attention adapt/cast_returns adapt/casts adapt/checkpoint adapt/device adapt/functions adapt/lifetime adapt/lora adapt/loss adapt/masks adapt/modality adapt/modes adapt/packed adapt/precision adapt/trainable \
	lower/build lower/build_dense lower/build_index lower/build_reduce lower/build_view lower/call lower/checkpoint lower/code \
	lower/compose_attention lower/compose_basic lower/compose_einsum lower/compose_loss lower/compose_matmul lower/compose_norm lower/compose_rnn \
	lower/engine lower/forward lower/optimizer lower/pool lower/scratch lower/step lower/tape lower/tensor lower/views \
	measure/allocator measure/allocator_config measure/allocator_expand measure/allocator_tree measure/attribute measure/blockmap measure/group measure/peak measure/replay measure/verdict
BACKENDS = $(sort $(patsubst backends/%.c,%,$(wildcard backends/*.c)))

LIB = $(IR:%=ir/%) $(FRONTEND:%=frontend/%) $(PASSES:%=passes/%) $(BACKENDS:%=backends/%)
OBJ = $(LIB:%=$(B)/%.o) $(B)/frontend/onnx.pb-c.o

all: build/memcrest build/libmemcrest.a build/libmemcrest.so

build/memcrest: $(B)/memcrest
	cp $< $@
build/libmemcrest.a: $(B)/libmemcrest.a
	cp $< $@
build/libmemcrest.so: $(B)/libmemcrest.so
	cp $< $@

$(B)/memcrest: $(B)/main.o $(B)/cli_pair.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
$(B)/libmemcrest.a: $(OBJ)
	rm -f $@
	ar rcs $@ $^
$(B)/libmemcrest.so: $(OBJ)
	$(CC) $(CFLAGS) -shared -Wl,-soname,libmemcrest.so.0 -o $@ $^ $(LDLIBS)

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

PACKAGES = gcc libc6-dev libzip-dev libjansson-dev libxml2-dev libxml2-utils libprotobuf-c-dev protobuf-c-compiler libcmocka-dev zlib1g-dev
SUDO = $(shell [ "$$(id -u)" = 0 ] || echo sudo)

deps:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || ! command -v apt-get >/dev/null || \
	{ $(SUDO) apt-get update && $(SUDO) apt-get install -y --no-install-recommends $(PACKAGES); }

demo: deps
	@$(MAKE) --no-print-directory all
	build/memcrest estimate fixtures/models/llava_7b.train.bf16.stack.pt2 --dim batch=8,seq=2048 --freeze model.vision_tower

check: deps
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory VARIANT=asan tests

# ---- tests -----------------------------------------------------------------------------------------------------------

TESTS = allocator annotate damage door expr field formats formats_html formats_trace formats_xml geom hand identities infer inline memory number onnx ops pickle recipe script shape sweep text truth
TEST_BIN = $(TESTS:%=$(B)/tests/test_%)

$(B)/tests/test_%: $(B)/tests/test_%.o $(B)/tests/support.o $(B)/tests/reports.o $(B)/tests/archive.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS) -lcmocka -lz
.SECONDARY: $(TEST_BIN:=.o) $(B)/tests/support.o $(B)/tests/reports.o $(B)/tests/archive.o

tests: $(B)/memcrest $(TEST_BIN)
	sh tests/run.sh $(B)/memcrest $(TEST_BIN)

golden: all
	sh tests/golden.sh --write build/memcrest

valgrind:
	@$(MAKE) --no-print-directory VARIANT=debug valgrind_run
valgrind_run: $(B)/memcrest $(TEST_BIN)
	for t in $(TEST_BIN); do valgrind -q --error-exitcode=9 --leak-check=full $$t || exit 1; done

# Sweeps under the thread sanitizer.
tsan:
	@$(MAKE) --no-print-directory VARIANT=tsan tsan_run
tsan_run: $(B)/tests/test_sweep
	$<

# Both compilers, every warning an error, and the static analyser of gcc.
lint:
	for cc in gcc clang; do $(MAKE) --no-print-directory CC=$$cc B=build/lint_$$cc CFLAGS="-O2 -Werror" build/lint_$$cc/memcrest $(TESTS:%=build/lint_$$cc/tests/test_%) || exit 1; done

# ---- installing --------------------------------------------------------------------------------------------------------

install: all
	install -D -m 755 build/memcrest $(DESTDIR)$(PREFIX)/bin/memcrest
	install -D -m 644 memcrest.h $(DESTDIR)$(PREFIX)/include/memcrest.h
	install -D -m 644 build/libmemcrest.a $(DESTDIR)$(PREFIX)/lib/libmemcrest.a
	install -D -m 755 build/libmemcrest.so $(DESTDIR)$(PREFIX)/lib/libmemcrest.so.0
	install -D -m 644 backends/report.xsd $(DESTDIR)$(PREFIX)/share/memcrest/report.xsd
	ln -sf libmemcrest.so.0 $(DESTDIR)$(PREFIX)/lib/libmemcrest.so

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(B)/main.d $(B)/cli_pair.d $(wildcard $(B)/tests/*.d)

.PHONY: all check clean demo deps golden install lint tests tsan tsan_run valgrind valgrind_run
