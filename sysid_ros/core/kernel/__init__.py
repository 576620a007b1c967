"""The chain of an arm, written once and compiled: what all dynamics of the core are computed with.

The headers are templates over a number type (``numbers.hpp``), from the tree of joints (``tree.hpp``) to the regressors
(``dynamics.hpp``) of many samples (``samples.hpp``) and along paths (``pieces.hpp``); ``binding.hpp`` makes them a
module. It is built for several kinds of machines, and the fastest that this one runs is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

VARIANTS = ("_avx512", "_avx2")
"""Modules for some machines, the fastest first. They are in a folder that is no package, so that nothing that imports
all modules of this one finds them: elsewhere their first instruction ends the process."""


def load_variants() -> list[Any]:
    """Load the modules that were built and that this machine runs, the fastest first.

    Raises:
        ImportError: None was built.
    """
    try:
        portable = import_module(f"{__name__}._portable")
    except ImportError as error:
        raise ImportError(
            f"the compiled part of sysid_ros is missing ({error}): install a C++17 compiler (g++ or clang), then the "
            "package again: pip install --no-deps --editable . (in a checkout), or colcon build"
        ) from error
    loaded = []
    for name in VARIANTS:
        if portable.supports(name):
            try:
                loaded.append(import_module(f"{__name__}.variants.{name}"))
            except ModuleNotFoundError:  # the compiler that built this package had no such machine
                continue
    return [*loaded, portable]


_FASTEST = load_variants()[0]
Tree: Any = _FASTEST.Tree
Columns: Any = _FASTEST.Columns
largest_eigenvalues: Any = _FASTEST.largest_eigenvalues
largest_vectors: Any = _FASTEST.largest_vectors
node_norms_width: Any = _FASTEST.node_norms_width
LINE_STEP: float = _FASTEST.line_step
MOST_JOINTS: int = _FASTEST.most_joints
"""Most joints of an arm whose norms are computed: rows of the matrices."""
