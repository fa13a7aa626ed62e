"""Checks every export that a script makes.

    python -m memcrest.guard --budget 80GiB [--KEY VALUE].. script.py [ARGUMENTS]..

The script runs as it would alone; torch.export.save, torch.jit.save and torch.onnx.export are watched, and what they write is estimated with the
recipe of the command line. A program of torch.export.export that is not saved is estimated when the script ends. Exit code: the script's own if that is not 0, else 1 if an export does not fit, 2 if one could not be read, 3 if one is
only a lower bound.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any, Callable, Dict, List, Tuple

import memcrest


def read_arguments(arguments: List[str]) -> Tuple[Dict[str, Any], List[str]]:
    """The recipe, then the script and its own arguments."""
    recipe: Dict[str, Any] = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0)[2:].partition("=")
        if not value:
            if not arguments:
                raise SystemExit("memcrest.guard: a value is missing after --" + name)
            value = arguments.pop(0)
        if name in ("dim", "dims"):
            recipe.setdefault("dims", {}).update((k, int(v)) for k, _, v in (pair.partition("=") for pair in value.split(",")))
        elif name in ("freeze", "train-only", "train_only", "eval-modules", "eval_modules"):
            recipe.setdefault(name.replace("-", "_"), []).append(value)
        elif "." in name:
            outer, inner = name.split(".", 1)
            recipe.setdefault(outer, {})[inner] = value
        else:
            recipe[name.replace("-", "_")] = value
    if not arguments:
        raise SystemExit(__doc__)
    return recipe, arguments


class Guard:
    def __init__(self, recipe: Dict[str, Any]):
        self.recipe = recipe
        self.code = 0
        self.depth = 0                           # exporters call each other; only what the script itself calls counts
        self.unsaved: Dict[int, Any] = {}        # programs by id, kept alive

    def check(self, what: str, model: Any) -> None:
        """Says how much it takes, and remembers the worst."""
        self.depth += 1                          # a program is saved to be read
        try:
            report = memcrest.estimate(model, **self.recipe)
        except memcrest.Error as e:
            print("memcrest: %s: %s" % (what, e), file=sys.stderr)
            self.code = self.code or 2
            return
        finally:
            self.depth -= 1
        verdict = {True: "fits", False: "does not fit", None: "may fit" if "budget" in self.recipe or "device" in self.recipe else "no budget"}[report.fits]
        print("memcrest: %s: %.2f GiB of tensors, %.2f GiB reserved%s: %s" % (what, report.peak / 2**30, report.reserved / 2**30, ", at least" if report.lower_bound else "", verdict), file=sys.stderr)
        if report.fits is False:
            self.code = 1
        elif report.lower_bound:
            self.code = self.code or 3

    def watch(self, module: Any, name: str, written: Callable[..., Any]) -> None:
        original = getattr(module, name)

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


def _onnx(result: Any, _model: Any, _args: Any = (), f: Any = None, *_rest: Any, **_kwargs: Any) -> Any:
    return f if isinstance(f, (str, os.PathLike)) else result


def main(arguments: List[str]) -> int:
    recipe, script = read_arguments(arguments)
    guard = Guard(recipe)
    import torch

    guard.watch(torch.export, "export", guard.exported)
    guard.watch(torch.export, "save", guard.saved)
    guard.watch(torch.jit, "save", guard.saved)
    for kind in (torch.jit.ScriptModule, torch.jit.RecursiveScriptModule):           # what is traced, what is scripted
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
    return guard.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
