"""schema.py SCHEMA: reports on standard input, one after the other, against the schema. Only the words that the schema uses are known here."""

import json
import re
import sys

KNOWN = {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "required", "properties", "items", "enum", "const", "anyOf", "minimum", "minItems", "maxItems", "pattern"}
TYPES = {"integer": int, "string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}


def is_type(value, name):
    return isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool))


def faults(root, rule, value, where):
    assert set(rule) <= KNOWN, set(rule) - KNOWN
    if "$ref" in rule:
        yield from faults(root, root["$defs"][rule["$ref"].split("/")[-1]], value, where)
    types = rule.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(value, t) for t in types):
        yield "%s is %r, not %s" % (where, value, " or ".join(types))
        return
    if "enum" in rule and value not in rule["enum"] or "const" in rule and value != rule["const"]:
        yield "%s is %r" % (where, value)
    if "minimum" in rule and value < rule["minimum"] or "pattern" in rule and not re.search(rule["pattern"], value):
        yield "%s is %r" % (where, value)
    if "anyOf" in rule and all(list(faults(root, r, value, where)) for r in rule["anyOf"]):
        yield "%s is none of what is allowed" % where
    if isinstance(value, dict):
        for key in rule.get("required", []):
            if key not in value:
                yield "%s has no %s" % (where, key)
        for key, r in rule.get("properties", {}).items():
            if key in value:
                yield from faults(root, r, value[key], where + "." + key)
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value)):
            yield "%s has %d entries" % (where, len(value))
        for i, v in enumerate(value):
            yield from faults(root, rule.get("items", {}), v, "%s[%d]" % (where, i))


with open(sys.argv[1]) as f:
    schema = json.load(f)
text, at, decoder, bad, n = sys.stdin.read(), 0, json.JSONDecoder(), 0, 0
while text[at:].strip():
    report, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
    n += 1
    for fault in faults(schema, schema, report, "report"):
        print(fault)
        bad = 1
sys.exit(bad or not n)
