"""Checks every export that a script makes.

    python -m memcrest.guard --budget 80GiB [--KEY VALUE].. script.py [ARGUMENTS]..

The script runs as it would alone; torch.export.save, torch.jit.save and torch.onnx.export are watched, and what they write is estimated with the
recipe of the command line. Exit code: the script's own if that is not 0, else 1 if an export does not fit, 2 if one could not be read, 3 if one is
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

    def check(self, what: str, model: Any) -> None:
        """Says how much it takes, and remembers the worst."""
        try:
            report = memcrest.estimate(model, **self.recipe)
        except memcrest.Error as e:
            print("memcrest: %s: %s" % (what, e), file=sys.stderr)
            self.code = self.code or 2
            return
        verdict = {True: "fits", False: "does not fit", None: "may fit" if "budget" in self.recipe or "device" in self.recipe else "no budget"}[report.fits]
        print("memcrest: %s: %.2f GiB of tensors, %.2f GiB reserved%s: %s" % (what, report.peak / 2**30, report.reserved / 2**30, ", at least" if report.lower_bound else "", verdict), file=sys.stderr)
        if report.fits is False:
            self.code = 1
        elif report.lower_bound:
            self.code = self.code or 3

    def watch(self, module: Any, name: str, written: Callable[..., Any]) -> None:
        original = getattr(module, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            model = written(result, *args, **kwargs)
            if model is not None:
                self.check("%s.%s" % (module.__name__, name), model)
            return result

        setattr(module, name, watched)


def _saved(_result: Any, model: Any, f: Any = None, *_args: Any, **_kwargs: Any) -> Any:
    return f if isinstance(f, (str, os.PathLike)) else model


def _onnx(result: Any, _model: Any, _args: Any = (), f: Any = None, *_rest: Any, **_kwargs: Any) -> Any:
    return f if isinstance(f, (str, os.PathLike)) else result


def main(arguments: List[str]) -> int:
    recipe, script = read_arguments(arguments)
    guard = Guard(recipe)
    import torch

    guard.watch(torch.export, "save", _saved)
    guard.watch(torch.jit, "save", _saved)
    guard.watch(torch.onnx, "export", _onnx)
    sys.argv = script
    sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    try:
        runpy.run_path(script[0], run_name="__main__")
    except SystemExit as e:
        if e.code:
            raise
    return guard.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
