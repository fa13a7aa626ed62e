"""bench.py MEMCREST: time and memory beside the tools that do part of the job without a GPU, in one run: a model is made and exported, and each tool
gets it in a process of its own. Needs torch; the truth tool ($ORACLE), onnx and onnx_tool are compared if they are there."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

WIDTH, LAYERS, BATCH, LENGTH = 256, 12, 4, 128

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(%d, 8, dropout=0.1, batch_first=True, norm_first=True)
        self.body, self.head = torch.nn.TransformerEncoder(layer, %d, enable_nested_tensor=False), torch.nn.Linear(%d, 1000)
    def forward(self, x):
        return self.head(self.body(x)).float().sum()
def batch():
    return torch.randn(%d, %d, %d)
""" % (WIDTH, LAYERS, WIDTH, BATCH, LENGTH, WIDTH)

EXPORT = MODEL + """
import sys
m = Net().train()
torch.export.save(torch.export.export(m, (batch(),)), sys.argv[1] + "/m.pt2")
torch.jit.save(torch.jit.trace(m, batch(), check_trace=False), sys.argv[1] + "/m.pt")
try:
    torch.onnx.export(m, (batch(),), sys.argv[1] + "/m.onnx", dynamo=True, optimize=False, verbose=False)
except Exception as e:
    print("no ONNX file:", e)
"""

CASE = MODEL.replace("torch.randn(", "torch.zeros(") + """
def net(recipe):
    return Net(), lambda device: {"x": batch().to(device)}, lambda model, kw: model(**kw)
"""
RECIPE = {"model": "net", "recipe": {"precision": "fp32", "optimizer": "adamw", "batch": BATCH, "seq": LENGTH}}
ORACLE = os.environ.get("ORACLE", "/work/shared/oracle/oracle.py")     # real training steps on fake CUDA tensors

INFERENCE = "import sys, onnx\nm = onnx.load(sys.argv[1] + '/m.onnx')\nprint(len(onnx.shape_inference.infer_shapes(m, data_prop=True).graph.value_info))\n"
ONNX_TOOL = "import sys, onnx_tool\nm = onnx_tool.Model(sys.argv[1] + '/tensors.onnx')\nm.graph.shape_infer({})\nm.graph.profile()\n"

# onnx-tool 1.0.1 knows neither CastLike nor constants that are numbers or lists, which exporters write: it gets an optimized copy, and that is not timed.
TENSORS = """
import sys, numpy, onnx, onnxscript.optimizer
m = onnxscript.optimizer.optimize(onnx.load(sys.argv[1] + "/m.onnx"))
for n in m.graph.node:
    for a in n.attribute if n.op_type == "Constant" else ():
        if a.name in ("value_int", "value_ints", "value_float", "value_floats"):
            value = numpy.array(onnx.helper.get_attribute_value(a), "int64" if "int" in a.name else "float32")
            a.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))
onnx.save(m, sys.argv[1] + "/tensors.onnx")
"""


def run(command):
    """Best of three: seconds of processor time, MiB, and why it failed if it did."""
    best = None
    for _ in range(3):
        with tempfile.TemporaryFile() as said:
            p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = status
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-1:] or ["no reason"]
        failed = "" if os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, 3) else last[0][:120]
        took = (usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, failed)
        best = took if best is None or took[0] < best[0] else best
    return best


def main(memcrest):
    with tempfile.TemporaryDirectory() as d:
        made = subprocess.run([sys.executable, "-c", EXPORT, d], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if made.returncode:
            sys.exit("the model cannot be exported: " + made.stdout.decode())
        has = lambda name: importlib.util.find_spec(name) is not None and os.path.exists(d + "/m.onnx")
        ours = [("memcrest, .%s" % f, [memcrest, "estimate", "%s/m.%s" % (d, f), "-f", "json", "-o", "/dev/null"]) for f in ("pt2", "pt", "onnx") if os.path.exists("%s/m.%s" % (d, f))]
        peers = []
        if os.path.exists(ORACLE):
            for name, text in (("case.py", CASE), ("case.json", json.dumps(RECIPE))):
                with open(os.path.join(d, name), "w") as f:
                    f.write(text)
            peers.append(("the truth tool: torch on fake tensors", [sys.executable, ORACLE, d + "/case.json", "--cases", d + "/case.py", "-o", d + "/truth.json"]))
        else:
            print("absent: the truth tool, %s (ORACLE=..)" % ORACLE)
        peers += [("onnx shape inference (no memory)", [sys.executable, "-c", INFERENCE, d])] if has("onnx") else []
        peers += [("onnx-tool (forward only)", [sys.executable, "-c", ONNX_TOOL, d])] if has("onnx_tool") else []
        if has("onnx_tool"):
            subprocess.run([sys.executable, "-c", TENSORS, d], stderr=subprocess.DEVNULL)
        rows = [(name, run(command)) for name, command in ours + peers]
        base = rows[0][1]
        print("%-38s %9s %9s %8s %8s" % ("tool", "seconds", "MiB", "time x", "memory x"))
        for name, (seconds, mib, failed) in rows:
            if failed:          # what it took until then says nothing
                print("%-38s failed: %s" % (name, failed))
            else:
                print("%-38s %9.3f %9.1f %8.1f %8.1f" % (name, seconds, mib, seconds / base[0], mib / base[1]))


main(sys.argv[1])
