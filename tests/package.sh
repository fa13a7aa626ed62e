#!/bin/sh
# package.sh MEMCREST: what is packaged agrees with the program. Prints TAP.
memcrest=$1
say() { if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; fi; }

version=$("$memcrest" --version | cut -d' ' -f2)
grep -q "^## $version$" CHANGELOG.md; say $? "CHANGELOG.md has $version"
head -1 packaging/debian/changelog | grep -q "($version)"; say $? "the Debian changelog has $version"
for flag in $("$memcrest" --help | grep -o -- '--limit-[a-z]*'); do
	grep -q -- "$flag" SECURITY.md; say $? "SECURITY.md has $flag"
done
grep -qx build .dockerignore; say $? "a container is not built from this machine's objects"
for f in packaging/debian/*.install; do
	[ -s "$f" ]; say $? "$f lists files"
done
sh -n packaging/docs.sh; say $? "packaging/docs.sh is read"
hook() { PATH=$(cd "${memcrest%/*}" && pwd):$PATH packaging/pre-commit.sh "$@" >/dev/null 2>&1; echo $?; }
[ "$(hook --budget 1GiB --dim batch=2 fixtures/models/mlp.pt2 fixtures/models/mlp.pt2)" = 0 ]; say $? "the hook takes several models"
[ "$(hook --budget 1KiB --dim batch=2 fixtures/models/mlp.pt2 fixtures/models/mlp.pt2)" = 1 ]; say $? "the hook refuses what does not fit"
[ "$(hook --budget 1GiB --dim batch=2 fixtures/bad/empty.pt2 fixtures/models/mlp.pt2)" = 2 ]; say $? "the hook says what cannot be read"
if command -v python3 >/dev/null; then
	for args in "mlp.pt2 --dim batch=2" "mlp.pt2" "llava_tiny.train.pt2 --dim batch=2,seq=700 --budget 1GiB" "toy_control.scripted.pt" "toy_cond.onnx"; do
		"$memcrest" estimate fixtures/models/$args -f json -q
	done | python3 tests/schema.py schema/report-1.schema.json
	say $? "reports are as the schema says"
	"$memcrest" estimate fixtures/models/mlp.pt2 -q --dim batch=2 -f json | sed 's/"step": *2/"step": 3/' | python3 tests/schema.py schema/report-1.schema.json >/dev/null
	[ $? = 1 ]; say $? "the schema refuses what is wrong"
else
	echo "# skipped: comparing reports with the schema needs python3"
fi
