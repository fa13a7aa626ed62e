#!/bin/sh
# coverage.sh BUILD: which lines the tests ran, by gcov, a percentage for each directory and each file; BUILD/lines/FILE.gcov shows every line ("#####": not
# run). Fails if a directory of the analysis has less than 90 %.
build=$1
rm -rf "$build/lines" && mkdir -p "$build/lines" || exit 1

for dir in ir frontend passes backends; do
	ln -s "$PWD/$dir" "$build/lines/$dir"          # gcov writes where it is run, and finds sources from there
	find "$build/$dir" -name '*.gcno' | sed "s|$build/||" | while read -r notes; do
		case $notes in *pb-c*) continue ;; esac
		(cd "$build/lines" && gcov -p -s "$OLDPWD" -r "../$notes") 2>/dev/null
	done
done >"$build/lines/summary"

awk -v q="'" '
$1 == "File" { file = $2; gsub(q, "", file); next }
/^Lines executed:/ && file ~ /^(ir|frontend|passes|backends)\/.*\.c$/ {
	split($0, part, /[:% ]+/)
	n = part[length(part)]
	ran = int(part[3] * n / 100 + 0.5)
	dir = file
	sub(/\/.*/, "", dir)
	lines[dir] += n
	done[dir] += ran
	printf "%-40s %6.2f %% of %5d, %4d not\n", file, ran * 100 / n, n, n - ran | "sort"
	file = ""
}
END {
	close("sort")
	for (dir in lines) {
		printf "%-40s %6.2f %% of %5d\n", dir "/", done[dir] * 100 / lines[dir], lines[dir]
		bad = bad || done[dir] < 0.9 * lines[dir]
	}
	exit bad
}' "$build/lines/summary"
