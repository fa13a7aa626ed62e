"""Checks every export that a script makes.

    python -m memcrest.guard --budget 80GiB [--KEY VALUE].. script.py [ARGUMENTS]..

The script runs as it would alone; torch.export.save, torch.jit.save and torch.onnx.export are watched, and what they write is estimated with the
recipe of the command line, spelled as for `memcrest check`. A program of torch.export.export that is not saved is estimated when the script ends.
Exit code: the script's own if that is not 0 (1 if it raised), else 1 if an export does not fit, 2 if one could not be read or the command line is
wrong (then the script does not run), 3 if one is only a lower bound or may fit.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
from typing import Any, Callable, Dict, List, Tuple

import memcrest


class Usage(Exception):
    """The command line is wrong."""


def read_dims(text: str) -> str:
    """batch=8,seq=2048 as JSON."""
    dims = {}
    for pair in text.split(","):
        name, equals, size = pair.partition("=")
        if not name or not equals or not size.isdecimal():
            raise Usage("--dim takes batch=8,seq=2048, not " + text)
        dims[name] = int(size)
    return json.dumps(dims)


def read_flag(name: str, value: str) -> Tuple[str, str]:
    if name in ("dim", "dims"):
        return "dims", read_dims(value)
    if name == "calibrate":
        what, _, value = value.partition("=")
        return "calibrate." + what, value
    return name, value


def read_arguments(arguments: List[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """The flags of the recipe, then the script and its own arguments."""
    flags: List[Tuple[str, str]] = []
    left = list(arguments)
    while left and left[0].startswith("-"):
        if not left[0].startswith("--"):
            raise Usage("unknown option " + left[0])
        name, equals, value = left.pop(0)[2:].partition("=")
        if not equals:
            if not left:
                raise Usage("a value is missing after --" + name)
            value = left.pop(0)
        flags.append(read_flag(name, value))
    if not left:
        raise Usage("a script is missing")
    if not os.path.exists(left[0]):
        raise Usage("there is no " + left[0])
    return flags, left


class Guard:
    def __init__(self, flags: List[Tuple[str, str]]):
        self.recipe = memcrest._recipe_of_flags(flags)
        self.code = 0
        self.seen = False
        self.depth = 0                           # exporters call each other; only what the script itself calls counts
        self.unsaved: Dict[int, Any] = {}        # programs by id, kept alive

    def worst(self, code: int) -> None:
        """1 is worse than 2, 2 than 3, and 0 is best."""
        self.code = min(self.code or code, code or self.code)

    def estimate(self, model: Any) -> memcrest.Report:
        self.depth += 1                          # a program is saved to be read
        try:
            return memcrest._run(memcrest._lib.mc_analyze, model, self.recipe)
        finally:
            self.depth -= 1

    def check(self, what: str, model: Any) -> None:
        """Says how much it takes, and remembers the worst. Whatever goes wrong here, the script goes on."""
        self.seen = True
        try:
            report = self.estimate(model)
        except Exception as e:
            print("memcrest: %s: %s" % (what, e if isinstance(e, memcrest.Error) else "%s: %s" % (type(e).__name__, e)), file=sys.stderr)
            self.worst(2)
            return
        asked = report["verdict"] is not None
        verdict = {True: "fits", False: "does not fit", None: "may fit" if asked else "no budget"}[report.fits]
        print("memcrest: %s: %.2f GiB of tensors, %.2f GiB reserved%s: %s" % (what, report.peak / 2**30, report.reserved / 2**30, ", at least" if report.lower_bound else "", verdict), file=sys.stderr)
        self.worst(1 if report.fits is False else 3 if report.lower_bound or (asked and report.fits is None) else 0)

    def watch(self, module: Any, name: str, written: Callable[..., Any]) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                result = original(*args, **kwargs)
            finally:
                self.depth -= 1
            model = written(result, *args, **kwargs) if self.depth == 0 else None
            if model is not None:
                self.check("%s.%s" % (module.__name__, name), model)
            return result

        setattr(module, name, watched)

    def exported(self, result: Any, *_args: Any, **_kwargs: Any) -> None:
        self.unsaved[id(result)] = result

    def saved(self, _result: Any, *args: Any, **kwargs: Any) -> Any:
        """The file if it has a name, else what was saved; arguments may be named."""
        given = list(args) + [kwargs[name] for name in ("ep", "m", "f") if name in kwargs]
        self.unsaved.pop(id(given[0]), None)
        return given[1] if len(given) > 1 and isinstance(given[1], (str, os.PathLike)) else given[0]

    def check_unsaved(self) -> None:
        for program in self.unsaved.values():
            self.check("torch.export.export", program)
        self.unsaved.clear()


def _onnx(result: Any, *args: Any, **kwargs: Any) -> Any:
    """The file if it has a name, else the program that was made, else the bytes that were written to a file object."""
    f = args[2] if len(args) > 2 else kwargs.get("f")
    if isinstance(f, (str, os.PathLike)):
        return f
    if result is not None:
        return result
    if hasattr(f, "getvalue"):
        return f.getvalue()
    if hasattr(f, "flush"):
        f.flush()
    return getattr(f, "name", f)


def main(arguments: List[str]) -> int:
    if arguments[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    try:
        flags, script = read_arguments(arguments)
        guard = Guard(flags)
        import torch
    except (Usage, memcrest.Error, OSError, ValueError, ImportError) as e:
        print("memcrest.guard: %s; python -m memcrest.guard --help shows how it is used" % e, file=sys.stderr)
        return 2
    guard.watch(torch.export, "export", guard.exported)
    guard.watch(torch.export, "save", guard.saved)
    guard.watch(torch.jit, "save", guard.saved)
    for kind in (torch.jit.ScriptModule, torch.jit.RecursiveScriptModule, torch.jit.ScriptFunction):     # what is traced, what is scripted
        guard.watch(kind, "save", guard.saved)
    guard.watch(torch.onnx, "export", _onnx)
    sys.argv = script
    sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    try:
        runpy.run_path(script[0], run_name="__main__")
    except SystemExit as e:
        if e.code:
            raise
    guard.check_unsaved()
    if not guard.seen:
        print("memcrest: the script made no export that is watched", file=sys.stderr)
    return guard.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
