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
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union, cast

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
        ("mc_recipe_new", p, []), ("mc_recipe_free", None, [p]), ("mc_recipe_json", ctypes.c_int, [p, s, n, s]), ("mc_recipe_set", ctypes.c_int, [p, s, s]),
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

    def __init__(self, handle: ctypes.c_void_p, model: "_Loaded", fit: int, diagnostics: List[Dict[str, Any]]):
        self._handle: Optional[ctypes.c_void_p] = handle
        self._model = model                      # which the library's report reads from
        self._fit = fit
        self.diagnostics = diagnostics
        self._json: Dict[str, Any] = json.loads(self.write("json"))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _lib.mc_report_free(self._handle)
            self._handle = None

    def __copy__(self) -> "Report":
        return self                              # nothing in it changes

    def __deepcopy__(self, _memo: Any) -> "Report":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Report cannot be pickled; keep dict(report)")

    def write(self, format: str) -> str:
        """The report in one of `formats()`, but for "snapshot", which is bytes: see write_bytes()."""
        return self.write_bytes(format).decode()

    def write_bytes(self, format: str) -> bytes:
        """The report in one of `formats()`, as it lies in a file."""
        return _collect(lambda fn: _lib.mc_write(self._handle, format.encode(), fn, None))

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
    elif isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        torch.jit.save(model, out)
    else:
        raise TypeError("a path, bytes, ExportedProgram, ScriptModule, ONNXProgram or ModelProto is needed, not %s" % type(model).__name__)
    return out.getvalue()


class _Recipe:
    """The library's recipe; each call raises Error where the recipe cannot be so."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p(_lib.mc_recipe_new())
        if not self.handle:
            raise MemoryError

    def __del__(self) -> None:
        _lib.mc_recipe_free(self.handle)

    def _must(self, status: int) -> None:
        if status == _NO_MEMORY:
            raise MemoryError
        if status != _OK:
            raise Error(_diagnostics(_lib.mc_recipe_diagnostics, self.handle))

    def file(self, kind: str, value: Any) -> None:
        """A framework's file: its path, or what is in it."""
        if isinstance(value, dict):
            text, name = json.dumps(value).encode(), kind.encode()
        else:
            with open(value, "rb") as f:
                text, name = f.read(), os.fsencode(value)
        self._must(_lib.mc_recipe_file(self.handle, kind.encode(), text, len(text), name))

    def keys(self, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings).encode()
        self._must(_lib.mc_recipe_json(self.handle, text, len(text), b"recipe"))

    def flag(self, key: str, value: str) -> None:
        """As the command line has it: --key value."""
        self._must(_lib.mc_recipe_set(self.handle, os.fsencode(key), os.fsencode(value)))


def _has_file(key: str) -> bool:
    return bool(_lib.mc_recipe_has_file(os.fsencode(key.replace("_", "-"))))


def _recipe_of_keys(settings: Mapping[str, Any]) -> _Recipe:
    recipe = _Recipe()
    for key in settings:
        if _has_file(key):
            recipe.file(key.replace("_", "-"), settings[key])
    recipe.keys({key: value for key, value in settings.items() if not _has_file(key)})
    return recipe


def _recipe_of_flags(flags: Iterable[Tuple[str, str]]) -> _Recipe:
    recipe = _Recipe()
    for key, value in flags:
        if _has_file(key):
            recipe.file(key.replace("_", "-"), value)
        else:
            recipe.flag(key, value)
    return recipe


class _Loaded:
    """A model, with the bytes that it lies in: the library reads from both as long as there is a report of it."""

    def __init__(self, model: Model):
        self.handle = ctypes.c_void_p()
        self.data = b""
        if isinstance(model, (str, os.PathLike)):
            self.status = _lib.mc_load_path(os.fsencode(model), None, ctypes.byref(self.handle))
        else:
            self.data = bytes(model) if isinstance(model, (bytes, bytearray, memoryview)) else _bytes_of(model)
            self.status = _lib.mc_load_memory(self.data, len(self.data), type(model).__name__.encode(), None, ctypes.byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            _lib.mc_model_free(self.handle)


def _run(function: Callable[..., int], model: Model, recipe: _Recipe) -> Report:
    loaded, report = _Loaded(model), ctypes.c_void_p()
    status = loaded.status
    if status == _OK:
        status = function(loaded.handle, recipe.handle, None, ctypes.byref(report))
    found = _diagnostics(_lib.mc_model_diagnostics, loaded.handle) + _diagnostics(_lib.mc_report_diagnostics, report)
    if status not in (_OK, _INCOMPLETE):
        _lib.mc_report_free(report)
        if status == _NO_MEMORY:
            raise MemoryError
        raise Error(found)
    return Report(report, loaded, _lib.mc_report_fit(report), found)


def estimate(model: Model, **recipe: Any) -> Report:
    """Predicts one training job.

    model: the path of a .pt2, .pt or .onnx file, its bytes, or a program in memory.
    recipe: keys of the recipe (`memcrest --help`), objects as dicts: dims={"batch": 8}, lora={"r": 16, "targets": "all-linear"}, freeze=["vision"];
    framework files as deepspeed=, peft=, training_args=, accelerate= with a path or a dict.
    Raises Error when the model or recipe cannot be used. A lower bound is no error: see Report.lower_bound.
    """
    return _run(_lib.mc_analyze, model, _recipe_of_keys(recipe))


def inspect(model: Model, **recipe: Any) -> Report:
    """What the file holds, without training it: only the mapping's keys `model`, `modules`, `modalities`, `coverage` are there."""
    return _run(_lib.mc_inspect, model, _recipe_of_keys(recipe))


def formats() -> List[str]:
    """What Report.write() takes."""
    rows = _collect(lambda fn: _lib.mc_list(b"formats", fn, None)).decode().splitlines()
    return list(dict.fromkeys(row.split()[1] for row in rows if row.startswith("out")))


def version() -> str:
    """Of the library that is loaded."""
    return cast(bytes, _lib.mc_version()).decode()
