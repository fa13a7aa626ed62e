# memcrest: make, make demo, make check; further targets are listed in README.md.
#
# Objects go to build/VARIANT/: release (default), debug (verifier, assertions), asan (debug with ASan and UBSan).

CC = gcc
PREFIX = /usr/local
DESTDIR =
VARIANT = release
B = build/$(VARIANT)

WARN = -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wvla
OPT_release = -O2 -DNDEBUG
OPT_debug = -O0 -g
OPT_asan = -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DMC_ARENA_MALLOC
CFLAGS = $(OPT_$(VARIANT))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -fPIC -fvisibility=hidden $(WARN) $(CFLAGS)
LDLIBS = -lzip -ljansson

IR = api arena diag dtype expr geom graph op print recipe schedule size str verify
FRONTEND = export frontend json load recipe textir zip
PASSES = analyze blocks calls pass raise/bind raise/noops \
	adapt/attention adapt/casts adapt/checkpoint adapt/lifetime adapt/lora adapt/loss adapt/masks adapt/modality adapt/modes adapt/precision adapt/trainable \
	lower/build lower/build_dense lower/build_index lower/build_reduce lower/build_view lower/call lower/checkpoint lower/code \
	lower/compose_attention lower/compose_basic lower/compose_loss lower/compose_matmul lower/compose_norm \
	lower/engine lower/forward lower/optimizer lower/pool lower/step lower/tape lower/tensor \
	measure/attribute measure/peak
BACKENDS = events json shape text write

LIB = $(IR:%=ir/%) $(FRONTEND:%=frontend/%) $(PASSES:%=passes/%) $(BACKENDS:%=backends/%)
OBJ = $(LIB:%=$(B)/%.o)

all: build/memcrest build/libmemcrest.a build/libmemcrest.so

build/memcrest: $(B)/memcrest
	cp $< $@
build/libmemcrest.a: $(B)/libmemcrest.a
	cp $< $@
build/libmemcrest.so: $(B)/libmemcrest.so
	cp $< $@

$(B)/memcrest: $(B)/main.o $(B)/libmemcrest.a
	$(CC) $(CFLAGS) -o $@ $^ $(LDLIBS)
$(B)/libmemcrest.a: $(OBJ)
	rm -f $@
	ar rcs $@ $^
$(B)/libmemcrest.so: $(OBJ)
	$(CC) $(CFLAGS) -shared -Wl,-soname,libmemcrest.so.0 -o $@ $^ $(LDLIBS)

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

clean:
	rm -rf build

-include $(OBJ:.o=.d) $(B)/main.d

.PHONY: all clean
