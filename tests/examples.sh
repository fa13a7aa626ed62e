#!/bin/sh
# examples.sh PREFIX: builds the examples against an installed memcrest, shared and static, as another project would, and runs them.
prefix=$1
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
LD_LIBRARY_PATH=$prefix/lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
say() { echo "not ok - $1"; bad=1; }

if command -v pkg-config >/dev/null; then
	flags=$(pkg-config --cflags --libs memcrest) static=$(pkg-config --cflags --static --libs memcrest)
	[ "$(pkg-config --modversion memcrest)" = "$("$prefix/bin/memcrest" --version | cut -d' ' -f2)" ] || say "memcrest.pc has another version"
else
	echo "# skipped: pkg-config is not there; its flags are written out instead"
	flags="-I$prefix/include -L$prefix/lib -lmemcrest" static="$flags -lzip -ljansson -lyaml -lxml2 -lprotobuf-c -lm -pthread"
fi
for e in peak batch; do
	cc -std=c11 -Wall -Wextra -Werror -o "$tmp/$e" examples/$e.c $flags || say "examples/$e.c with the shared library"
	cc -std=c11 -o "$tmp/$e.static" examples/$e.c $(echo "$static" | sed 's/-lmemcrest/-l:libmemcrest.a/') || say "examples/$e.c with the static library"
done
[ "$("$tmp/peak" fixtures/models/toy_cond.pt2)" = "$("$tmp/peak.static" fixtures/models/toy_cond.pt2)" ] || say "shared and static library disagree"
"$tmp/peak" fixtures/models/toy_cond.pt2 | grep -q '^[0-9]* bytes$' || say "examples/peak.c prints $("$tmp/peak" fixtures/models/toy_cond.pt2)"
"$tmp/peak" fixtures/bad/empty.pt2 2>&1 | grep -q E003 || say "the callback was not called"
"$tmp/batch" fixtures/models/mlp.pt2 1MiB | grep -q batch || say "examples/batch.c"
if command -v c++ >/dev/null; then
	c++ -std=c++17 -Wall -Wextra -Werror -o "$tmp/cc" examples/peak.cc $flags && "$tmp/cc" fixtures/models/toy_cond.pt2 | grep -q '^reserved [0-9]' || say "examples/peak.cc"
else
	echo "# skipped: examples/peak.cc needs a C++ compiler"
fi
exit $bad
