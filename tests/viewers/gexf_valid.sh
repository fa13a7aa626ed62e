#!/bin/sh
# The gexf is valid against Gephi's own schema of version 1.3 (its RELAX NG; the XSD there has no place for colours and sizes). By hand:
#     sh tests/viewers/gexf_valid.sh .../gephi/gexf/specs/1.3/gexf.rng MODEL [OPTION..]
schema=$1
shift
build/memcrest estimate "$@" --allow-incomplete -q -f gexf | xmllint --noout --relaxng "$schema" -
