#!/bin/sh
# Runs every fixtures/*/NAME.cmd (shell, from the repository's root, $MEMCREST is the program) and compares what it prints with
# NAME.out, NAME.err and NAME.exit beside it; a missing file means nothing printed, or exit 0. Prints TAP.
# With --write the files are made instead: read the diff and explain it in the commit.
write=
[ "$1" = --write ] && { write=1; shift; }
MEMCREST=${1:-build/memcrest}
export MEMCREST LC_ALL=C
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# keep FILE SUFFIX: what the case printed becomes its golden, unless it is nothing
keep() {
	if [ -s "$tmp/$2" ]; then cp "$tmp/$2" "$1.$2"; else rm -f "$1.$2"; fi
}

pty=
script -qec true /dev/null </dev/null >/dev/null 2>&1 && pty=1

for case in fixtures/*/*.cmd; do
	base=${case%.cmd}
	if [ ! "$pty" ] && grep -q 'script -q' "$case"; then echo "# skipped: $base needs a terminal (/dev/pts)"; continue; fi
	sh "$case" >"$tmp/out" 2>"$tmp/err" </dev/null
	code=$?
	: >"$tmp/exit"
	[ $code = 0 ] || echo $code >"$tmp/exit"
	if [ "$write" ]; then
		for s in out err exit; do keep "$base" $s; done
		continue
	fi
	bad=
	for s in out err exit; do
		want=$base.$s
		[ -e "$want" ] || want=/dev/null
		cmp -s "$want" "$tmp/$s" || { bad="$bad $s"; diff "$want" "$tmp/$s" | head -20 | sed 's/^/# /'; }
	done
	if [ "$bad" ]; then echo "not ok - $base:$bad"; else echo "ok - $base"; fi
done
