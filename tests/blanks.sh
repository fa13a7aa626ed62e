#!/bin/sh
# blanks.sh ROOT PREFIX: what is installed under ROOT, for PREFIX, both with blanks: the program runs, and pkg-config's answer is one word a flag.
root=$1 prefix=$2
say() { if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; bad=1; fi; }
bad=0

"$root$prefix/bin/memcrest" --version | grep -q memcrest; say $? "the program runs from a folder with blanks"
[ -r "$root$prefix/include/memcrest.h" ] && [ -r "$root$prefix/share/man/man1/memcrest.1" ]; say $? "the files are where they belong"
if command -v pkg-config >/dev/null; then
	eval "set -- $(PKG_CONFIG_PATH="$root$prefix/lib/pkgconfig" pkg-config --cflags --libs memcrest)"
	found=0
	for word in "$@"; do
		case $word in "-I$prefix/include"|"-L$prefix/lib") found=$((found + 1)) ;; esac
	done
	[ $found = 2 ]; say $? "pkg-config quotes blanks"
else
	echo "# skipped: pkg-config is not there"
fi
exit $bad
