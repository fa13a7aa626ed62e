"""torch.cuda._memory_viz reads the snapshot, and its peak is the report's. By hand: python tests/viewers/memory_viz.py MODEL [OPTION..]"""
import json
import pickle
import subprocess
import sys

from torch.cuda import _memory_viz


def memcrest(fmt):
    return subprocess.check_output(["build/memcrest", "estimate", *sys.argv[1:], "--allow-incomplete", "-q", "-f", fmt])


report = json.loads(memcrest("json"))
snapshot = pickle.loads(memcrest("snapshot"))
live = peak = 0
for e in snapshot["device_traces"][0]:
    if e.get("category", "unknown") != "unknown":
        live += e["size"] * {"alloc": 1, "free_completed": -1}.get(e["action"], 0)
        peak = max(peak, live)
assert peak == report["peak"]["tensors"], (peak, report["peak"]["tensors"])
for f in (_memory_viz.trace, _memory_viz.segsum):
    print(f.__name__, len(f(snapshot)), "characters")
for kind in ("trace_plot", "segment_plot"):
    print(kind, len(getattr(_memory_viz, kind)(snapshot)), "characters")
