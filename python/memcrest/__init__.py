"""Peak GPU memory of training an exported model graph, before anything runs.

    import memcrest
    report = memcrest.estimate("model.pt2", dims={"batch": 8, "seq": 2048}, precision="bf16")
    print(report.peak, report.factors, report.lower_bound)

The package is a thin layer over libmemcrest by ctypes; it needs neither torch nor onnx, and imports them only to save what is given as a program.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union, cast

__all__ = ["Error", "Report", "estimate", "formats", "inspect", "version"]

_OK, _BAD_INPUT, _INCOMPLETE, _NO_MEMORY, _LIMIT = 0, 2, 3, 4, 5
_NOT_ASKED, _FITS, _MAY_FIT, _DOES_NOT_FIT = range(4)


class _Diagnostic(ctypes.Structure):
    _fields_ = [("code", ctypes.c_char_p), ("message", ctypes.c_char_p), ("where", ctypes.c_char_p), ("count", ctypes.c_uint)]


_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _load() -> ctypes.CDLL:
    """The library beside this file (as the wheel has it), else $MEMCREST_LIBRARY, else the system's."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libmemcrest.so")
    lib = ctypes.CDLL(os.environ.get("MEMCREST_LIBRARY") or (here if os.path.exists(here) else "libmemcrest.so.0"))
    p, pp, s, n = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t
    diagnostics = [p, ctypes.POINTER(_Diagnostic), n]
    for name, result, arguments in (
        ("mc_version", s, []), ("mc_abi", ctypes.c_uint, []),
        ("mc_load_path", ctypes.c_int, [s, p, pp]), ("mc_load_memory", ctypes.c_int, [s, n, s, p, pp]), ("mc_model_free", None, [p]),
        ("mc_model_diagnostics", n, diagnostics), ("mc_recipe_diagnostics", n, diagnostics), ("mc_report_diagnostics", n, diagnostics),
        ("mc_recipe_new", p, []), ("mc_recipe_free", None, [p]), ("mc_recipe_json", ctypes.c_int, [p, s, n, s]),
        ("mc_recipe_file", ctypes.c_int, [p, s, s, n, s]), ("mc_recipe_has_file", ctypes.c_int, [s]),
        ("mc_analyze", ctypes.c_int, [p, p, p, pp]), ("mc_inspect", ctypes.c_int, [p, p, p, pp]), ("mc_report_free", None, [p]),
        ("mc_report_fit", ctypes.c_int, [p]), ("mc_write", ctypes.c_int, [p, s, _WRITE, p]), ("mc_list", ctypes.c_int, [s, _WRITE, p]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.mc_abi() != 0:
        raise ImportError("libmemcrest has ABI %d, and this package is for 0" % lib.mc_abi())
    return lib


_lib = _load()


class Error(Exception):
    """The model or recipe cannot be used; `diagnostics` says why."""

    def __init__(self, diagnostics: List[Dict[str, Any]]):
        self.diagnostics = diagnostics
        super().__init__("; ".join("%s: %s" % (d["code"], d["message"]) for d in diagnostics if d["severity"] == "error") or "memcrest failed without a reason")


def _diagnostics(get: Callable[..., int], handle: ctypes.c_void_p) -> List[Dict[str, Any]]:
    if not handle:
        return []
    count = get(handle, None, 0)
    rows = (_Diagnostic * max(count, 1))()
    get(handle, rows, count)
    severity = {"E": "error", "W": "warning"}
    return [
        {"code": r.code.decode(), "severity": severity.get(r.code.decode()[0], "note"), "message": r.message.decode("utf-8", "replace"), "where": r.where.decode("utf-8", "replace"), "count": r.count}
        for r in rows[:count]
    ]


def _collect(write: Callable[[Any], int]) -> bytes:
    parts: List[bytes] = []

    def append(_user: Any, data: int, size: int) -> int:
        parts.append(ctypes.string_at(data, size))
        return 0

    if write(_WRITE(append)) != _OK:
        raise ValueError("unknown format, or it needs a simulated step")
    return b"".join(parts)


class Report(Mapping[str, Any]):
    """A report: a mapping with the keys of `memcrest estimate -f json`, and shortcuts to what is asked most.

    `diagnostics` are those of the model and of the analysis. Other formats: `report.write("text")`.
    """

    def __init__(self, handle: ctypes.c_void_p, fit: int, diagnostics: List[Dict[str, Any]]):
        self._handle: Optional[ctypes.c_void_p] = handle
        self._fit = fit
        self.diagnostics = diagnostics
        self._json: Dict[str, Any] = json.loads(self.write("json"))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _lib.mc_report_free(self._handle)
            self._handle = None

    def write(self, format: str) -> str:
        """The report in one of `formats()`."""
        return _collect(lambda fn: _lib.mc_write(self._handle, format.encode(), fn, None)).decode()

    def __getitem__(self, key: str) -> Any:
        return self._json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)

    @property
    def peak(self) -> int:
        """The largest bytes that tensors hold at once."""
        return int(self._json["peak"]["tensors"])

    @property
    def reserved(self) -> int:
        """What torch.cuda.max_memory_reserved() would say."""
        return int(self._json["peak"]["reserved"])

    @property
    def factors(self) -> Dict[str, int]:
        """param, grad, opt and act at the peak; they add up to `peak`."""
        return cast(Dict[str, int], self._json["peak"]["factors"])

    @property
    def lower_bound(self) -> bool:
        """Something could not be sized: the numbers are at least so much."""
        return bool(self._json["coverage"]["lower_bound"])

    @property
    def fits(self) -> Optional[bool]:
        """Whether the recipe's budget or device is enough; None: not asked, or it depends on what is only known as a range."""
        return {_FITS: True, _DOES_NOT_FIT: False}.get(self._fit)


Model = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Any]


def _bytes_of(model: Any) -> bytes:
    """An ExportedProgram, ONNXProgram, ScriptModule or ONNX ModelProto as the file that it would be saved to."""
    if hasattr(model, "SerializeToString"):
        return cast(bytes, model.SerializeToString())
    if hasattr(model, "model_proto"):
        return cast(bytes, model.model_proto.SerializeToString())
    import torch

    out = io.BytesIO()
    if isinstance(model, torch.export.ExportedProgram):
        torch.export.save(model, out)
    elif isinstance(model, torch.jit.ScriptModule):
        torch.jit.save(model, out)
    else:
        raise TypeError("a path, bytes, ExportedProgram, ScriptModule, ONNXProgram or ModelProto is needed, not %s" % type(model).__name__)
    return out.getvalue()


def _recipe(settings: Dict[str, Any]) -> ctypes.c_void_p:
    recipe = ctypes.c_void_p(_lib.mc_recipe_new())
    if not recipe:
        raise MemoryError
    status = _OK
    for key in list(settings):
        kind = key.replace("_", "-")
        if status == _OK and _lib.mc_recipe_has_file(kind.encode()):
            value = settings.pop(key)
            if isinstance(value, dict):
                text, name = json.dumps(value).encode(), kind
            else:
                with open(value, "rb") as f:
                    text, name = f.read(), os.fspath(value)
            status = _lib.mc_recipe_file(recipe, kind.encode(), text, len(text), name.encode())
    if status == _OK and settings:
        text = json.dumps(settings).encode()
        status = _lib.mc_recipe_json(recipe, text, len(text), b"recipe")
    if status != _OK:
        diagnostics = _diagnostics(_lib.mc_recipe_diagnostics, recipe)
        _lib.mc_recipe_free(recipe)
        raise Error(diagnostics)
    return recipe


def _run(function: Callable[..., int], model: Model, settings: Dict[str, Any]) -> Report:
    recipe = _recipe(dict(settings))
    handle, report = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        if isinstance(model, (str, os.PathLike)):
            status = _lib.mc_load_path(os.fsencode(model), None, ctypes.byref(handle))
        else:
            data = bytes(model) if isinstance(model, (bytes, bytearray, memoryview)) else _bytes_of(model)
            status = _lib.mc_load_memory(data, len(data), type(model).__name__.encode(), None, ctypes.byref(handle))
        if status == _OK:
            status = function(handle, recipe, None, ctypes.byref(report))
        found = _diagnostics(_lib.mc_model_diagnostics, handle) + _diagnostics(_lib.mc_report_diagnostics, report)
        if status not in (_OK, _INCOMPLETE):
            if report:
                _lib.mc_report_free(report)
            if status == _NO_MEMORY:
                raise MemoryError
            raise Error(found)
        return Report(report, _lib.mc_report_fit(report), found)
    finally:
        _lib.mc_model_free(handle)
        _lib.mc_recipe_free(recipe)


def estimate(model: Model, **recipe: Any) -> Report:
    """Predicts one training job.

    model: the path of a .pt2, .pt or .onnx file, its bytes, or a program in memory.
    recipe: keys of the recipe (`memcrest --help`), objects as dicts: dims={"batch": 8}, lora={"r": 16, "targets": "all-linear"}, freeze=["vision"];
    framework files as deepspeed=, peft=, training_args=, accelerate= with a path or a dict.
    Raises Error when the model or recipe cannot be used. A lower bound is no error: see Report.lower_bound.
    """
    return _run(_lib.mc_analyze, model, recipe)


def inspect(model: Model, **recipe: Any) -> Report:
    """What the file holds, without training it: only the mapping's keys `model`, `modules`, `modalities`, `coverage` are there."""
    return _run(_lib.mc_inspect, model, recipe)


def formats() -> List[str]:
    """What Report.write() takes."""
    rows = _collect(lambda fn: _lib.mc_list(b"formats", fn, None)).decode().splitlines()
    return list(dict.fromkeys(row.split()[1] for row in rows if row.startswith("out")))


def version() -> str:
    """Of the library that is loaded."""
    return cast(bytes, _lib.mc_version()).decode()
