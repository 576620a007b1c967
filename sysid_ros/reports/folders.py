"""Folders of results: made, and refused where nothing can be written, before the work."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sysid_ros.core.common.errors import SysidError

ESTIMATE = "estimate.yaml"
"""The file of a result that other commands read."""
TARE = "tare"
"""Folder, below a result, of the recording with the empty hand before it; and the name of the action."""


def make_results_directory(root: Path | str = "results", now: datetime | None = None) -> Path:
    """Make ``<root>/<YYYY-mm-dd_HH-MM-SS>`` and return it; a second one of the same second ends in ``_2``."""
    name = (now or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ["", *(f"_{i}" for i in range(2, 100))]:
        directory = (Path(root) / (name + suffix)).absolute()
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            continue
        except OSError as error:
            raise SysidError(f"cannot make the results folder {directory}: {error.strerror or error}") from error
    raise SysidError(f"there are 99 results folders of the same second in {root}")


def require_results_root(root: Path | str) -> None:
    """Refuse a place for folders of results where none can be made, before the work; nothing is made.

    Raises:
        SysidError: It, or the nearest folder above that exists, is none, or closed.
    """
    folder = Path(root).absolute()
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if not nearest.is_dir():
        raise SysidError(f"cannot make the folder {folder}: {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SysidError(f"nothing can be written into the folder {nearest}")
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SysidError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    finally:
        for one in made:
            with suppress(OSError):
                one.rmdir()


def unusable_result(path: Path, reason: str) -> SysidError:
    """Return the error of a result that no controller may be given, with the reason in a sentence."""
    return SysidError(f"{path}: {reason}; nothing was sent")


def require_result(folder: Path | str) -> Path:
    """Return the file of a result in a folder, or itself."""
    path = Path(folder)
    path = path / ESTIMATE if path.is_dir() else path
    if not path.is_file():
        raise unusable_result(path, "missing; give a folder of results, with estimate.yaml in it")
    return path
