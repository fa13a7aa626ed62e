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
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	json() { command=$1; shift; "$memcrest" "$command" -f json -q "$@"; }
	follows() { python3 tests/schema.py "schema/$1-1.schema.json" <"$tmp/$1"; }
	models=fixtures/models
	for args in "mlp.pt2 --dim batch=2" "mlp.pt2" "llava_tiny.train.pt2 --dim batch=2,seq=700 --budget 1GiB" "toy_control.scripted.pt" "toy_cond.onnx"; do
		json estimate $models/$args
	done >"$tmp/report"
	for m in mlp.pt2 llava_tiny.train.pt2 toy_control.scripted.pt toy_cond.onnx; do json inspect $models/$m; done >"$tmp/inspect"
	{
		json sweep $models/mlp.pt2 --vary batch=0,2 --vary optimizer=sgd,adamw
		json sweep $models/mlp.pt2 --vary optimizer=sgd,adamw --fit=batch --budget 8MiB
		json sweep $models/mlp.pt2 --fit=batch --budget 8KiB
		json sweep $models/llava_tiny.train.pt2 --vary batch=1 --vary seq=3,700 --device h100-80gb
	} >"$tmp/sweep"
	{
		json advise $models/mlp.pt2 --dim batch=2 --budget 1MiB
		json advise $models/llava_tiny.train.pt2 --dim batch=2,seq=700 --device h100-80gb
	} >"$tmp/advice"
	json estimate $models/mlp.pt2 --dim batch=2 >"$tmp/a"
	json estimate $models/mlp.pt2 --dim batch=3 --freeze 0 --optimizer sgd >"$tmp/b"
	"$memcrest" estimate $models/mlp.pt2 --dim batch=2 -f snapshot -o "$tmp/measured"
	{
		json diff "$tmp/a" "$tmp/b"
		json diff "$tmp/a" "$tmp/a"
		json compare $models/mlp.pt2 --dim batch=2 --measured "$tmp/measured"
	} >"$tmp/diff"
	for schema in schema/*-1.schema.json; do
		name=$(basename "$schema" -1.schema.json)
		follows "$name"; say $? "what is printed is as the schema of $name says"
		cp "$tmp/$name" "$tmp/right"
		for wrong in 's/"schema_version": 1/"schema_version": 2/' 's|"memcrest/|"other/|' 's/"\(allocated\|modelled_nodes\|same\)"/"another"/' 's/: \(false\|true\)/: {}/'; do
			sed "$wrong" "$tmp/right" >"$tmp/$name"
			! follows "$name" >/dev/null; say $? "the schema of $name refuses what is changed by $wrong"
		done
	done
	"$memcrest" estimate fixtures/models/mlp.pt2 -q --dim batch=2 -f json | sed 's/"step": *2/"step": 3/' | python3 tests/schema.py schema/report-1.schema.json >/dev/null
	[ $? = 1 ]; say $? "the schema refuses what is wrong"
else
	echo "# skipped: comparing reports with the schemas needs python3"
fi
