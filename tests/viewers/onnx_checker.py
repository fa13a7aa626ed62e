"""onnx.checker accepts an annotated copy, which differs from the model in metadata and IR version alone. By hand: python tests/viewers/onnx_checker.py MODEL.onnx COPY.onnx"""
import sys

import onnx

before, after = (onnx.load(f, load_external_data=False) for f in sys.argv[1:3])
try:
    onnx.checker.check_model(before)
    good = True
except onnx.checker.ValidationError as e:
    good = False
    print("the model itself is refused:", str(e).splitlines()[0])
if good:
    onnx.checker.check_model(after)
ours = {p.key: p.value for p in after.metadata_props if p.key.startswith("memcrest.")}
total = int(ours["memcrest.bytes_elsewhere"])
marked = 0
for n in after.graph.node:
    at = {p.key: p.value for p in n.metadata_props if p.key.startswith("memcrest.")}
    total += int(at.get("memcrest.bytes_at_peak", 0))
    marked += bool(at)
assert total == int(ours["memcrest.peak_bytes"]), (total, ours)
for m in (before, after):
    for holder in [m, *m.graph.node]:
        keep = [p for p in holder.metadata_props if not p.key.startswith("memcrest.")]
        del holder.metadata_props[:]
        holder.metadata_props.extend(keep)
print("IR version", before.ir_version, "to", after.ir_version, "-", marked, "nodes marked", ours)
after.ir_version = before.ir_version
assert before.SerializeToString(deterministic=True) == after.SerializeToString(deterministic=True)
