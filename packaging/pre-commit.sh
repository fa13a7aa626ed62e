#!/bin/sh
# pre-commit.sh OPTION.. MODEL..: memcrest check of each model, one after the other; what ends in .pt2 or .onnx is one. Exits with the first code that is not 0.
models= n=$# code=0
while [ "$n" -gt 0 ]; do
	word=$1 n=$((n - 1))
	shift
	case $word in
	*.pt2|*.onnx) models="$models$word
" ;;
	*) set -- "$@" "$word" ;;
	esac
done
IFS='
'
set -f
for model in $models; do
	memcrest check "$model" "$@" || { now=$?; [ $code != 0 ] || code=$now; }
done
exit $code
