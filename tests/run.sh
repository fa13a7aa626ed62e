#!/bin/sh
# run.sh MEMCREST TEST..: every unit test program, every golden case, and that a committed input provokes each diagnostic. Two are not a matter of
# input: that the system has no memory (E008, which tests/io.sh makes so, and tests/test_door.c), and our own mistakes (E901, tests/test_door.c): an input
# that provoked one would be a defect to be mended.
# The last line is "N passed, N failed".
memcrest=$1
shift
export ASAN_OPTIONS=allocator_may_return_null=1   # an absurd request fails as the C library lets it fail
log=$(mktemp)
trap 'rm -f "$log"' EXIT

for t in "$@"; do
	CMOCKA_MESSAGE_OUTPUT=TAP "$t" >>"$log" 2>&1 || grep -q "^not ok" "$log" || echo "not ok - $t ended with $?" >>"$log"
done
sh tests/golden.sh "$memcrest" >>"$log"

for code in $("$memcrest" --list-diagnostics | cut -f1); do
	case $code in
	E008) where="tests/io.sh tests/test_door.c" ;;
	E901) where=tests/test_door.c ;;
	*) where="fixtures/*/*.err" ;;
	esac
	if grep -qs "$code" $where; then echo "ok - $code is provoked"; else echo "not ok - $code is never provoked"; fi
done >>"$log"

grep -v "^ok\|^1\.\." "$log"
echo "$(grep -c '^ok' "$log") passed, $(grep -c '^not ok' "$log") failed"
! grep -q '^not ok' "$log"
