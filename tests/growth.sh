#!/bin/sh
# growth.sh MEMCREST GENERATE: processor time and memory from 10^3 to 10^6 nodes, the best of three runs; fails if ten times the nodes take more than
# twelve times as long (below 10^4 the start of the process counts more than the graph), or a node at 10^6 a fifth longer than at 10^3.
memcrest=$1
generate=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

printf '%-10s %10s %10s %12s %10s\n' graph nodes seconds ns/node MiB
for kind in chain wide aliases params inputs; do
	before=
	for n in 1000 10000 100000 1000000; do
		"$generate" $kind $n >"$tmp/g.ir"
		for i in 1 2 3; do
			"$generate" --run "$memcrest" estimate "$tmp/g.ir" -q -o /dev/null --allow-incomplete --limit-memory 32GiB
		done 2>/dev/null | sort -n | head -1 >"$tmp/best"
		read -r ms kib <"$tmp/best"
		awk -v k=$kind -v n=$n -v ms="$ms" -v kib="$kib" 'BEGIN { printf "%-10s %10d %10.3f %12.0f %10.1f\n", k, n, ms / 1000, ms * 1e6 / n, kib / 1024 }'
		if [ "$n" -gt 10000 ] && awk -v a="$before" -v b="$ms" 'BEGIN { exit !(b > 12 * a) }'; then
			echo "$kind: $n nodes take more than twelve times as long as a tenth of them"
			bad=1
		fi
		before=$ms
		[ "$n" -ne 1000 ] || first=$ms
	done
	if awk -v a="$first" -v b="$before" 'BEGIN { exit !(b > 1200 * a) }'; then
		echo "$kind: a node of a million takes more than 1.2 times as long as one of a thousand"
		bad=1
	fi
done
exit $bad
