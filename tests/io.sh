#!/bin/sh
# io.sh MEMCREST LIBRARY.so: what happens when reading or writing goes wrong, and what the library exports. Prints TAP.
memcrest=$1
library=$2
model=fixtures/models/mlp.pt2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# expect NAME CODE PATTERN COMMAND..: exit code and a line on standard error
expect() {
	name=$1 code=$2 pattern=$3
	shift 3
	"$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	got=$?
	if [ $got = "$code" ] && { [ -z "$pattern" ] || grep -q "$pattern" "$tmp/err"; }; then echo "ok - $name"; else echo "not ok - $name: exit code $got, $(head -c 200 "$tmp/err")"; fi
}
estimate() { "$memcrest" estimate $model --dim batch=2 "$@"; }
full() { estimate "$@" >/dev/full; }
full_early() { "$memcrest" estimate fixtures/models/llama_tiny.train.pt2 --dim batch=2,seq=64 "$@" >/dev/full; }     # more than is buffered
closed() { { "$memcrest" events fixtures/models/llama_tiny.train.pt2 --dim batch=2,seq=64; echo $? >"$tmp/code"; } | true; return "$(cat "$tmp/code")"; }
no_output() { estimate "$@" >&-; }
slowly() { (dd bs=100 count=3 status=none; sleep 0.1; dd bs=7 count=100 status=none; sleep 0.1; cat) <$model | "$memcrest" estimate - --dim batch=2; }
sized() { cat $model | "$memcrest" estimate - --dim batch=2 --limit-file "$1"; }
partly() { head -c 5000 $model | "$memcrest" estimate - --dim batch=2; }
huge() { head -c 3000000 /dev/zero | "$memcrest" estimate - --limit-memory 1MiB; }
needed=8000                # KiB that the program takes before it reads anything: libraries, most of it
until ( ulimit -v $needed; "$memcrest" --version ) >/dev/null 2>&1 || [ $needed -gt 1000000 ]; do needed=$((needed + 2000)); done
short() { ( ulimit -v "$1"; "$memcrest" estimate fixtures/models/llava_7b.train.bf16.stack.onnx --dim batch=8,seq=2048 ); }
limited() { ( ulimit -f 1; trap '' XFSZ; estimate -f events -o "$tmp/limited" ); }

expect "a full disk" 2 "No space left" full
expect "a full disk, as JSON" 2 "No space left" full -f json
for f in xml html graphml gexf perfetto snapshot; do
	expect "a full disk, as $f" 2 "No space left" full_early -f $f
	[ "$(wc -l <"$tmp/err")" = 1 ] && echo "ok - one line about it, as $f" || echo "not ok - more than one line about a full disk, as $f: $(head -c 300 "$tmp/err")"
done
expect "a full disk behind -o" 2 "No space left" estimate -o /dev/full
expect "standard output is closed" 2 "writing the report failed" no_output
expect "a directory that is not there" 2 "No such file" estimate -o "$tmp/no/where"
expect "a file that may not grow" 2 "File too large" limited
here=$PWD
dash() { ( cd "$tmp" && case $memcrest in /*) at=$memcrest ;; *) at=$here/$memcrest ;; esac && "$at" "$1" "$here/$2" --dim batch=2 -o - ); }
expect "-o - is standard output" 0 "" dash estimate $model
grep -q '^peak ' "$tmp/out" && [ ! -e "$tmp/-" ] && echo "ok - -o - writes no file of that name" || echo "not ok - -o - writes a file"
expect "-o - of annotate" 0 "" dash annotate fixtures/models/toy_cond.onnx
"$memcrest" annotate fixtures/models/toy_cond.onnx --dim batch=2 -q -o "$tmp/copy" && cmp -s "$tmp/copy" "$tmp/out" && echo "ok - the copy on standard output is whole" || echo "not ok - the copy on standard output differs"
echo kept >"$tmp/other" && ln -s other "$tmp/linked.part"
expect "a link in the way of what is written" 0 "" estimate -o "$tmp/linked"
[ "$(cat "$tmp/other")" = kept ] && [ -s "$tmp/linked" ] && [ ! -h "$tmp/linked" ] && echo "ok - links are not written through" || echo "not ok - links are written through"
[ ! -e "$tmp/limited" ] && [ ! -e "$tmp/limited.part" ] && echo "ok - no half a file stays" || echo "not ok - half a file stays"
expect "a pipe that nobody reads" 141 "" closed
expect "input in small pieces" 0 "" slowly
expect "half of the input" 2 "cut off" partly
expect "as much input as --limit-file" 0 "" sized "$(wc -c <$model)"
expect "a byte more input than --limit-file" 2 "(--limit-file)" sized $(($(wc -c <$model) - 1))
expect "more input than memory" 2 "at most" huge
for kib in 12000 16000 24000; do expect "a system that has $kib KiB more than the program" 2 "E008: out of memory" short $((needed + kib)); done
expect "no file" 2 "No such file" "$memcrest" estimate "$tmp/none"
expect "a directory" 2 "is a directory" "$memcrest" estimate "$tmp"
expect "a device without end" 2 "" "$memcrest" estimate /dev/zero --limit-memory 8MiB
expect "a recipe that is a directory" 2 "" estimate -r "$tmp"

bad=$(nm -D --defined-only "$library" | awk '$2 ~ /[A-Z]/ && $3 !~ /^mc_/ {print $3}')
if [ -z "$bad" ]; then echo "ok - only mc_ names are exported"; else echo "not ok - exported:" $bad; fi
missing=$(grep -o 'mc_[a-z_]*(' memcrest.h | tr -d '(' | sort -u | while read -r f; do
	case $f in mc_write_fn|mc_progress_fn) continue ;; esac
	grep -q "MC_API.*[ *]$f(" memcrest.h && ! nm -D --defined-only "$library" | grep -q " $f$" && echo "$f"
done)
if [ -z "$missing" ]; then echo "ok - every function of memcrest.h is exported"; else echo "not ok - not exported:" $missing; fi
