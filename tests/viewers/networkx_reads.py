"""networkx reads graphml and gexf, and their bytes add up to the peak. By hand: python tests/viewers/networkx_reads.py MODEL [OPTION..]"""
import io
import json
import subprocess
import sys

import networkx as nx


def memcrest(fmt):
    return subprocess.check_output(["build/memcrest", "estimate", *sys.argv[1:], "--allow-incomplete", "-q", "-f", fmt])


peak = json.loads(memcrest("json"))["peak"]["tensors"]
for fmt, read in (("graphml", nx.read_graphml), ("gexf", lambda f: nx.read_gexf(f, version="1.3"))):
    g = read(io.BytesIO(memcrest(fmt)))
    total = sum(d["total_bytes"] for _, d in g.nodes(data=True) if d["kind"] != "module")
    assert total == peak, (fmt, total, peak)
    print(fmt, len(g), "nodes", g.number_of_edges(), "edges", total, "bytes")
