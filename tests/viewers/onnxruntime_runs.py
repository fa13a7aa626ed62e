"""onnxruntime gives the same outputs for a model and its annotated copy. By hand: python tests/viewers/onnxruntime_runs.py MODEL.onnx COPY.onnx"""
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.log_severity_level = 3
a, b = (onnxruntime.InferenceSession(f, options, providers=["CPUExecutionProvider"]) for f in sys.argv[1:3])
rng = np.random.default_rng(0)
feed = {}
for i in a.get_inputs():
    shape = [d if isinstance(d, int) else 4 for d in i.shape]
    feed[i.name] = rng.integers(0, 2, shape, dtype=np.int64) if "int64" in i.type else rng.integers(0, 2, shape).astype(bool) if "bool" in i.type else rng.standard_normal(shape, dtype=np.float32)
for x, y in zip(a.run(None, feed), b.run(None, feed), strict=True):
    assert np.array_equal(x, y, equal_nan=True)
print(len(a.get_outputs()), "outputs are equal")
