"""Model Explorer's own classes take the node data. By hand: python tests/viewers/model_explorer_reads.py .../model_explorer MODEL [OPTION..]"""
import importlib
import json
import subprocess
import sys
import types

# the package's own start asks for the whole application
sys.modules["model_explorer"] = types.ModuleType("model_explorer")
sys.modules["model_explorer"].__path__ = [sys.argv[1]]
builder = importlib.import_module("model_explorer.node_data_builder")
data = json.loads(subprocess.check_output(["build/memcrest", "estimate", *sys.argv[2:], "--allow-incomplete", "-q", "-f", "model-explorer"]))
results = {k: builder.NodeDataResult(**v) for k, v in data["results"].items()}
again = builder.GraphNodeData(**{**data, "results": results, "gradient": [builder.GradientItem(**g) for g in data["gradient"]]})
for k, v in json.loads(again.to_json_string()).items():
    assert k not in data or data[k] == v, k
print(len(again.results), "nodes")
