"""Model Explorer's own classes take the node data. By hand, with the folder of the package ai-edge-model-explorer's modules on PYTHONPATH: python tests/viewers/model_explorer_reads.py MODEL [OPTION..]"""
import json
import subprocess
import sys

from node_data_builder import GradientItem, GraphNodeData, NodeDataResult

data = json.loads(subprocess.check_output(["build/memcrest", "estimate", *sys.argv[1:], "--allow-incomplete", "-q", "-f", "model-explorer"]))
again = GraphNodeData(**{**data, "results": {k: NodeDataResult(**v) for k, v in data["results"].items()}, "gradient": [GradientItem(**g) for g in data["gradient"]]})
for k, v in json.loads(again.to_json_string()).items():
    assert k not in data or data[k] == v, k
print(len(again.results), "nodes")
