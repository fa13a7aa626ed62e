#!/bin/sh
# adversary.sh MEMCREST GENERATE: graphs that are made to be slow or large, and files that refer to themselves, each under a limit of
# processor time and memory. What ends otherwise than with 0, 2 or 3 failed. Prints TAP.
memcrest=$1
generate=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# run NAME SECONDS KiB ARGUMENTS..
run() {
	name=$1 seconds=$2 kib=$3
	shift 3
	( ulimit -t "$seconds"; ulimit -v "$kib"; exec "$memcrest" "$@" ) >/dev/null 2>"$tmp/err" </dev/null
	code=$?
	case $code in
	0|2|3) echo "ok - $name" ;;
	*) echo "not ok - $name ended with $code: $(head -c 300 "$tmp/err")" ;;
	esac
	[ $code != 2 ] || [ -s "$tmp/err" ] || echo "not ok - $name gave no reason"
}

for kind in chain wide inputs aliases params modules fork overflow symbols operands; do
	"$generate" $kind 10000 >"$tmp/g.ir"
	run "$kind of 10,000" 4 2000000 estimate "$tmp/g.ir" -f json
	run "$kind of 10,000, eight steps of checkpoints" 4 2000000 estimate "$tmp/g.ir" --checkpoint non-reentrant --precision bf16-mixed --grad_accum 8
done
for kind in chain inputs aliases params operands; do
	"$generate" $kind 1000000 >"$tmp/g.ir"
	run "$kind of 1,000,000 in little memory" 10 700000 estimate "$tmp/g.ir" --limit-memory 256MiB
done

for kind in line conversion; do
	"$generate" $kind 300000 >"$tmp/g.ir"
	run "$kind of 300,000" 10 2000000 estimate "$tmp/g.ir" --precision bf16
done

# sizes at the edge of 64 bits
for d in 281474976710656 4294967296 2147483648; do
	printf 'memcrest-ir 1\ninput %%x : fp32[%s, %s]\nparam %%w "w" : fp32[%s] trainable\n%%m : fp32[%s, %s] = mul(%%x, %%w)\n%%s : fp32[] = sum(%%m)\noutput %%s\n' $d $d $d $d $d >"$tmp/g.ir"
	run "dims of $d" 2 500000 estimate "$tmp/g.ir"
done
for size in 0 1 18446744073709551615 9223372036854775807; do
	run "batch of $size" 2 500000 estimate fixtures/models/mlp.pt2 --dim batch=$size
	run "accumulation over $size" 2 500000 estimate fixtures/models/mlp.pt2 --dim batch=2 --grad_accum $size
	run "a limit of $size" 2 500000 estimate fixtures/models/mlp.pt2 --dim batch=2 --limit-memory $size
done
run "very many accumulated batches" 10 1000000 estimate fixtures/models/mlp.pt2 --dim batch=2 --grad_accum 2147483647

# regions within each other, and turns without end
for f in fixtures/bad/nested*.pt2 fixtures/bad/turns.pt2; do
	run "$f" 2 1000000 estimate "$f" --dim batch=4
done
