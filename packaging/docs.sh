#!/bin/sh
# docs.sh MEMCREST man|bash|zsh|fish: the manual page, or a shell's completion, from what the program itself prints with --help and --list-*.
memcrest=$1
{
	"$memcrest" --help
	echo '%formats'
	"$memcrest" --list-formats
} | awk -v kind="$2" -v version="$("$memcrest" --version | cut -d' ' -f2)" -v date="$(date -u -d "$(sed -n 's/^ -- .*>  //p;T;q' "${0%/*}/debian/changelog")" +%Y-%m-%d 2>/dev/null)" -v q="'" '
function roff(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); gsub(/^\./, "\\\\\\&.", s); return s }
function plain(s) { gsub(q, "", s); gsub(/[\[\]:"`$\\]/, " ", s); return s }
/^  memcrest / {
	command[++nc] = $2
	for (i = 3; $i ~ /^[A-Z]+$/; i++) takes[nc] = takes[nc] (i > 3 ? " " : "") $i
	sub(/^  memcrest +[^ ]+( +[A-Z]+)+ +/, "")
	about[nc] = $0
	next
}
/^Recipe keys/ { keys = 1; next }
/^%formats/ { keys = 0; formats = 1; next }
/^Exit codes/ { exits = $0; next }
formats && $1 == "out" { if (!($2 in seen)) format[++nf] = $2; seen[$2]; next }
keys { split($0, f, "\t"); key[++nk] = f[1]; values[nk] = f[2]; dflt[nk] = f[3]; meaning[nk] = f[4]; next }
/^  -/ && !formats {
	sub(/^  /, "")
	at = match($0, /   *[a-z0-9]/)
	option[++no] = at ? substr($0, 1, at - 1) : $0
	said[no] = at ? substr($0, at) : ""
	sub(/^ +/, "", said[no])
}
function lines(a, b, c,   out) {              # those that say something, each on a line of its own
	if (a != "") out = "\n" roff(a)
	if (b != "") out = out (out ? "\n.br\n" : "\n") roff(b)
	if (c != "") out = out (out ? "\n.br\n" : "\n") roff(c)
	return out
}
function commas(s) { gsub(/\|/, ", ", s); return s }
function words(s, out,   n, w, i, c) {        # the long names in an option line
	n = split(s, w, /[ ,=\[]+/)
	c = 0
	for (i = 1; i <= n; i++)
		if (w[i] ~ /^--[a-z]/) out[++c] = w[i]
	return c
}
END {
	for (i = 1; i <= nc; i++) commands = commands " " command[i]
	for (i = 1; i <= nf; i++) all_formats = all_formats " " format[i]
	flags = "-r -f -o -q"
	for (i = 1; i <= no; i++) {
		n = words(option[i], w)
		for (k = 1; k <= n; k++) if (!(w[k] in named)) { flags = flags " " w[k]; named[w[k]] = said[i]; name[++nn] = w[k] }
	}
	if (kind == "man") {
		print ".TH MEMCREST 1 \"" date "\" \"memcrest " version "\" \"User Commands\"\n.SH NAME\nmemcrest \\- peak GPU memory of training an exported model graph, before anything runs\n.SH SYNOPSIS"
		for (i = 1; i <= nc; i++) print (i > 1 ? ".br\n" : "") ".B memcrest " command[i] "\n.I " takes[i] "\n[options]"
		print ".SH DESCRIPTION\nmemcrest reads an exported model graph (torch.export .pt2, TorchScript .pt, ONNX) and predicts the peak GPU memory of training it: without Python, without weights, without a GPU.\n.SH COMMANDS"
		for (i = 1; i <= nc; i++) print ".TP\n.B " command[i] " " takes[i] "\n" roff(about[i])
		print ".SH OPTIONS"
		for (i = 1; i <= no; i++) print ".TP\n.B " roff(option[i]) "\n" roff(said[i])
		print ".SH RECIPE KEYS\nEach is a member of the recipe file, and a flag: \\-\\-KEY VALUE."
		for (i = 1; i <= nk; i++) print ".TP\n.B " roff(key[i]) lines(meaning[i], values[i] ? "One of " commas(values[i]) "." : "", dflt[i] != "" ? "Default: " dflt[i] "." : "")
		print ".SH FORMATS\n" roff(substr(all_formats, 2)) "\n.SH EXIT STATUS\n" roff(substr(exits, 13)) "\n.SH ENVIRONMENT\nNO_COLOR, CLICOLOR, TERM and COLUMNS for the report on a terminal; MEMCREST_PAGER, PAGER and CI for paging. LESS is set to FRX if it is not."
	} else if (kind == "bash") {
		print "# bash completion for memcrest, made by packaging/docs.sh\n_memcrest() {\n\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n\tCOMPREPLY=()"
		print "\tif [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W \"" substr(commands, 2) " --help --version --list-ops --list-passes --list-formats --list-devices --list-diagnostics\" -- \"$word\")); return; fi"
		print "\tcase $before in\n\t-f|--format) COMPREPLY=($(compgen -W \"" substr(all_formats, 2) "\" -- \"$word\")); return ;;"
		for (i = 1; i <= nk; i++) if (values[i]) { v = values[i]; gsub(/\|/, " ", v); print "\t--" key[i] ") COMPREPLY=($(compgen -W \"" v "\" -- \"$word\")); return ;;" }
		print "\tesac\n\tif [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"" flags
		for (i = 1; i <= nk; i++) print "--" key[i]
		print "\" -- \"$word\")); return; fi\n\tCOMPREPLY=($(compgen -f -- \"$word\"))\n}\ncomplete -o filenames -F _memcrest memcrest"
	} else if (kind == "zsh") {
		print "#compdef memcrest\n# made by packaging/docs.sh\nlocal -a commands\ncommands=("
		for (i = 1; i <= nc; i++) print "\t" q command[i] ":" plain(about[i]) q
		print ")\nif (( CURRENT == 2 )); then _describe command commands; return; fi\n_arguments \\"
		for (k = 1; k <= nn; k++) if ((w1 = name[k]) != "--format") print "\t" q "*" w1 "[" plain(named[w1]) "]" (w1 ~ /allow|quiet|json|pager|verbose|help|version|list/ ? "" : ":value:_files") q " \\"
		print "\t" q "*--format[output format]:format:(" substr(all_formats, 2) ")" q " \\"
		for (i = 1; i <= nk; i++) { v = values[i]; gsub(/\|/, " ", v); print "\t" q "*--" key[i] "[" plain(meaning[i]) "]:value:" (v ? "(" v ")" : "") q " \\" }
		print "\t" q "*:model:_files" q
	} else {
		print "# fish completion for memcrest, made by packaging/docs.sh"
		for (i = 1; i <= nc; i++) print "complete -c memcrest -n __fish_use_subcommand -a " command[i] " -d " q plain(about[i]) q
		for (k = 1; k <= nn; k++) print "complete -c memcrest -l " substr(w1 = name[k], 3) (w1 ~ /allow|quiet|json|pager|verbose|help|version|list/ ? "" : " -r") " -d " q plain(named[w1]) q
		print "complete -c memcrest -l format -s f -x -a " q substr(all_formats, 2) q
		for (i = 1; i <= nk; i++) { v = values[i]; gsub(/\|/, " ", v); print "complete -c memcrest -l " key[i] (v ? " -x -a " q v q : " -x") " -d " q plain(meaning[i]) q }
	}
}' | if [ "$2" = fish ]; then { read -r first; echo "$first"; sort; }; else cat; fi
