"""The SARIF report is valid against the standard's schema. By hand, with jsonschema: python tests/viewers/sarif_valid.py sarif-2.1.0-rtm.5.json MODEL [OPTION..]"""
import json
import subprocess
import sys

import jsonschema

schema = json.load(open(sys.argv[1]))
run = subprocess.run(["build/memcrest", "estimate", *sys.argv[2:], "--allow-incomplete", "-q", "-f", "sarif"], stdout=subprocess.PIPE)
report = json.loads(run.stdout)
errors = list(jsonschema.validators.validator_for(schema)(schema).iter_errors(report))
for e in errors[:5]:
    print(list(e.path), e.message[:200])
assert not errors
print(len(report["runs"][0]["results"]), "results")
