"""Run from the repository's root with MEMCREST_LIBRARY set, or with the wheel on PYTHONPATH: python3 tests/python_test.py [MEMCREST]"""

import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

import memcrest
from memcrest import guard

MLP = "fixtures/models/mlp.pt2"


class Estimate(unittest.TestCase):
    def test_path_and_bytes_agree(self):
        a = memcrest.estimate(MLP, dims={"batch": 4})
        with open(MLP, "rb") as f:
            b = memcrest.estimate(f.read(), dims={"batch": 4})
        self.assertGreater(a.peak, 0)
        self.assertEqual(a.peak, b.peak)
        self.assertEqual(sum(a.factors.values()), a.peak)
        self.assertFalse(a.lower_bound)
        self.assertIsNone(a.fits)

    def test_same_numbers_as_the_program(self):
        if len(sys.argv) < 2:
            self.skipTest("no program was given")
        text = subprocess.run([sys.argv[1], "estimate", MLP, "--dim", "batch=4", "-f", "json"], stdout=subprocess.PIPE, check=True).stdout
        self.assertEqual(json.loads(text), dict(memcrest.estimate(MLP, dims={"batch": 4})))

    def test_verdict(self):
        self.assertIs(memcrest.estimate(MLP, dims={"batch": 4}, budget="1GiB").fits, True)
        self.assertIs(memcrest.estimate(MLP, dims={"batch": 4}, budget="1KiB").fits, False)

    def test_mistakes(self):
        for model, recipe, code in ((MLP, {"nosuch": 1}, "E101"), ("none.pt2", {}, "E001"), (b"junk", {}, "E004"), (MLP, {"dims": {"nosuch": 3}}, "E104")):
            with self.assertRaises(memcrest.Error) as e:
                memcrest.estimate(model, **recipe)
            self.assertEqual(e.exception.diagnostics[-1]["code"], code)

    def test_framework_files(self):
        a = memcrest.estimate(MLP, training_args="fixtures/framework/training_args.json")
        self.assertEqual(a["recipe"]["grad_accum"], 2)
        self.assertEqual(memcrest.estimate(MLP, training_args={"per_device_train_batch_size": 4}).peak, memcrest.estimate(MLP, dims={"batch": 4}).peak)

    def test_unbound_is_a_lower_bound(self):
        report = memcrest.estimate(MLP)
        self.assertTrue(report.lower_bound)
        self.assertIn("W201", [d["code"] for d in report.diagnostics])

    def test_formats(self):
        self.assertIn("json", memcrest.formats())
        self.assertIn("peak", memcrest.estimate(MLP, dims={"batch": 4}).write("text"))
        with self.assertRaises(ValueError):
            memcrest.estimate(MLP).write("nosuch")

    def test_reports_outlive_what_they_came_from(self):
        """The library's report reads from the model and its bytes, which nobody else holds here."""
        with open(MLP, "rb") as f:
            report = memcrest.estimate(bytearray(f.read()), dims={"batch": 4})
        others = [memcrest.estimate(MLP, dims={"batch": 4 + n}) for n in range(8)]
        for name in memcrest.formats() + ["events"]:
            self.assertGreater(len(report.write_bytes(name)), 100, name)
        self.assertIn("fc1", report.write("html"))
        self.assertEqual(report.write_bytes("snapshot")[:1], b"\x80")
        self.assertEqual(copy.deepcopy(report).peak, report.peak)
        self.assertEqual(len(others), 8)

    def test_programs(self):
        """What a program takes is what the file takes that it is saved to."""
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not there")
        module, batch = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)), (torch.zeros(4, 64),)
        exported = torch.export.export(module, batch)
        with tempfile.TemporaryDirectory() as d:
            torch.export.save(exported, os.path.join(d, "m.pt2"))
            file = memcrest.estimate(os.path.join(d, "m.pt2"))
        self.assertFalse(file.lower_bound)
        self.assertEqual(memcrest.estimate(exported).peak, file.peak)
        self.assertEqual(memcrest.estimate(exported)["model"]["format"], "pt2")
        self.assertEqual(memcrest.estimate(torch.jit.trace(module, batch), dims={"batch": 4})["model"]["format"], "torchscript")
        with self.assertRaises(TypeError):
            memcrest.estimate(module)

    def test_onnx_program(self):
        try:
            import onnxscript  # noqa: F401
            import torch
        except ImportError:
            self.skipTest("torch or onnxscript is not there")
        module = torch.nn.Linear(64, 32)
        program = torch.onnx.export(module, (torch.zeros(4, 64),), dynamo=True, verbose=False)
        report = memcrest.estimate(program)
        self.assertEqual(report["model"]["format"], "onnx")
        self.assertEqual(report.factors["param"], 64 * 32 * 4 + 512)        # 32 biases take a block of 512 bytes
        self.assertEqual(memcrest.estimate(program.model_proto).peak, report.peak)

    def test_inspect(self):
        self.assertEqual(memcrest.inspect(MLP)["model"]["format"], "pt2")


class Guard(unittest.TestCase):
    def test_arguments(self):
        flags, script = guard.read_arguments(["--budget", "1GiB", "--dim=batch=2,seq=3", "--lora.r", "4", "--freeze", "a", "--freeze", "b", "--calibrate", "context=1MiB", __file__, "--own"])
        self.assertEqual(flags, [("budget", "1GiB"), ("dims", '{"batch": 2, "seq": 3}'), ("lora.r", "4"), ("freeze", "a"), ("freeze", "b"), ("calibrate.context", "1MiB")])
        self.assertEqual(script, [__file__, "--own"])

    def test_flags_mean_what_the_program_means(self):
        """A list of names, not a regular expression over both."""
        g = guard.Guard([("dims", '{"batch": 4}'), ("lora.r", "4"), ("lora.targets", "fc1,fc2"), ("budget", "1GiB"), ("training-args", "fixtures/framework/training_args.json")])
        self.assertEqual(g.estimate(MLP)["recipe"]["lora"]["targets"], ["fc1", "fc2"])
        self.assertEqual(g.estimate(MLP)["recipe"]["grad_accum"], 2)

    def test_wrong_command_lines(self):
        """Exit code 2, which is no verdict, and the script does not run."""
        script = "raise SystemExit(7)"
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "s.py")
            with open(path, "w") as f:
                f.write(script)
            for arguments in ([], ["--budget"], ["--budget", "1GiB"], ["--dim", "batch=x", path], ["--dim", "batch", path], ["--presicion", "bf16", path], ["--budget", "lots", path], ["-r", "a.json", path],
                              ["--deepspeed", os.path.join(d, "none"), path], [os.path.join(d, "none.py")]):
                run = subprocess.run([sys.executable, "-m", "memcrest.guard", *arguments], stderr=subprocess.PIPE)
                self.assertEqual(run.returncode, 2, arguments)
                self.assertEqual(run.stderr.count(b"\n"), 1, run.stderr)
            self.assertEqual(subprocess.run([sys.executable, "-m", "memcrest.guard", "--help"], stdout=subprocess.PIPE).returncode, 0)

    def test_codes(self):
        dims = ("dims", '{"batch": 4}')
        low = memcrest.estimate(MLP, dims={"batch": 4}, device="h100-80gb")["peak"]["process"]["low"]
        for flags, code in (([("budget", "1GiB"), dims], 0), ([("budget", "1KiB"), dims], 1), ([("budget", "1GiB")], 3), ([("budget", str(low + 1024)), ("device", "h100-80gb"), dims], 3), ([dims], 0)):
            g = guard.Guard(flags)
            g.check("test", MLP)
            self.assertEqual(g.code, code, flags)

    def test_worst_code(self):
        """What does not fit is worse than what cannot be read, in any order."""
        for models in ((MLP, b"junk"), (b"junk", MLP)):
            g = guard.Guard([("budget", "1KiB"), ("dims", '{"batch": 4}')])
            for model in models:
                g.check("test", model)
            self.assertEqual(g.code, 1)
        g = guard.Guard([("budget", "1GiB")])
        for model in (MLP, b"junk", object(), MLP):
            g.check("test", model)
        self.assertEqual(g.code, 2)

    def test_onnx_arguments(self):
        """The exporter's arguments may be named, and the old one writes to file objects, which are read."""
        with open("fixtures/models/toy_control.scripted.legacy.onnx", "rb") as f:
            out = io.BytesIO(f.read())
        self.assertEqual(guard._onnx(None, "model", "args", "x.onnx"), "x.onnx")
        self.assertEqual(guard._onnx(None, model="model", args=(), f="x.onnx"), "x.onnx")
        self.assertEqual(guard._onnx("program", "model", dynamo=True), "program")
        self.assertEqual(memcrest.estimate(guard._onnx(None, model="model", args=(), f=out)).peak, memcrest.estimate("fixtures/models/toy_control.scripted.legacy.onnx").peak)
        with tempfile.NamedTemporaryFile() as f:
            f.write(out.getvalue())
            self.assertEqual(memcrest.estimate(guard._onnx(None, "model", (), f))["model"]["format"], "onnx")

    def test_script(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not there")
        script = """import io, torch
m, x = torch.nn.Linear(8, 8), torch.zeros(4, 8)
torch.export.save(torch.export.export(m, (x,)), f='/dev/null')
torch.jit.trace(m, x).save('/dev/null')
torch.export.save(torch.export.export(m, (x,)), io.BytesIO())
torch.export.export(m, (x,))
"""
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "s.py"), "w") as f:
                f.write(script.replace("/dev/null", os.path.join(d, "m")))
            for budget, code in (("1GiB", 0), ("1KiB", 1)):
                run = subprocess.run([sys.executable, "-m", "memcrest.guard", "--budget", budget, os.path.join(d, "s.py")], stderr=subprocess.PIPE)
                self.assertEqual(run.returncode, code, run.stderr)
                said = [line.split(b": ")[1] for line in run.stderr.splitlines() if line.startswith(b"memcrest: ")]
                self.assertEqual(said, [b"torch.export.save", b"ScriptModule.save", b"torch.export.save", b"torch.export.export"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
