#!/bin/sh
# docs.sh MEMCREST: the manual page and the completions have every command, flag and key, and their readers accept them. Prints TAP.
memcrest=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

say() { if [ "$1" = 0 ]; then echo "ok - $2"; else echo "not ok - $2"; fi; }

for kind in man bash zsh fish; do
	sh packaging/docs.sh "$memcrest" $kind >"$tmp/$kind"
	missing=
	for word in $("$memcrest" --list-keys | cut -f1) $("$memcrest" --help | awk '/^  memcrest / {print $2}'); do
		[ $kind = man ] && word=$(echo "$word" | sed 's/-/\\-/g')
		grep -qF -- "$word" "$tmp/$kind" || missing="$missing $word"
	done
	if [ -z "$missing" ]; then echo "ok - $kind has every key and command"; else echo "not ok - $kind lacks$missing"; fi
done
if bash -c '. "$1"; COMP_WORDS=(memcrest estimate --precision bf16-); COMP_CWORD=3; _memcrest; [ "${COMPREPLY[*]}" = bf16-mixed ]' - "$tmp/bash"; then echo "ok - bash completes a value"; else echo "not ok - bash completes a value"; fi
if bash -c '. "$1"; COMP_WORDS=(memcrest est); COMP_CWORD=1; _memcrest; [ "${COMPREPLY[*]}" = estimate ]' - "$tmp/bash"; then echo "ok - bash completes a command"; else echo "not ok - bash completes a command"; fi
lacking=
sed 's/\\-/-/g' "$tmp/man" | grep '^\.B' >"$tmp/plain"
for option in $(sed -n 's/^	{"\([a-z-]*\)", .*VALUE.*/\1/p' cli_options.c); do
	for kind in plain bash zsh fish; do
		[ "$option" = dims ] || grep -q -- "$option" "$tmp/$kind" || lacking="$lacking $kind:$option"     # --dim by another name
	done
done
[ -z "$lacking" ]; say $? "every option of the program is in the manual page and completed, but:$lacking"
grep -qx '.I A B' "$tmp/man"; say $? "man has both arguments of diff"
repeated=$(bash -c '. "$1"; COMP_WORDS=(memcrest estimate -f ""); COMP_CWORD=3; _memcrest; printf "%s\n" "${COMPREPLY[@]}"' - "$tmp/bash" | sort | uniq -d)
[ -z "$repeated" ]; say $? "bash offers each format once"
for shell in zsh fish; do
	if ! command -v $shell >/dev/null; then echo "# skipped: $shell is not there"; continue; fi
	if $shell -n "$tmp/$shell"; then echo "ok - $shell reads it"; else echo "not ok - $shell reads it"; fi
done
if ! command -v man >/dev/null; then echo "# skipped: man is not there"; exit; fi
mv "$tmp/man" "$tmp/memcrest.1"                # a name from which mandoc knows the section
complaints=$(man --warnings -l "$tmp/memcrest.1" 2>&1 >/dev/null)
if [ -z "$complaints" ]; then echo "ok - man reads it"; else echo "not ok - man: $complaints"; fi
if ! command -v mandoc >/dev/null; then echo "# skipped: mandoc is not there"; exit; fi
complaints=$(mandoc -Tlint -Wwarning "$tmp/memcrest.1")
if [ -z "$complaints" ]; then echo "ok - mandoc reads it"; else echo "not ok - mandoc: $complaints"; fi
