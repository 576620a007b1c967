"""The only YAML reader of this package: data alone, with limits on size, depth and aliases.

An alias is small in a file but stands for its whole content wherever it is walked, so a kilobyte can keep a process
busy for a minute. Events of the parser are counted before anything is built from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sysid_ros.core.common.errors import ModelError

MOST_BYTES = 4 << 20
"""Largest text [bytes]; a calibration, the largest file there is, has a fifth of it."""
DEEPEST = 50
"""Most collections within each other."""
MOST_NODES = 500_000
"""Most keys, values and collections, where each alias counts as all that it stands for."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path | str) -> Any:
    """Return the content of a YAML file, which JSON files are too.

    Raises:
        ModelError: There is no such file, it is no YAML, or it exceeds a limit of :func:`parse_yaml`.
    """
    name = str(path)
    try:
        if not Path(path).is_file():
            raise ModelError(
                f"cannot read {name}", "there is no such file" if not Path(path).exists() else "it is not a file"
            )
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ModelError(f"cannot read {name}", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        if len(data) <= MOST_BYTES:
            raise ModelError(f"cannot read {name}", f"it is no text in UTF-8 ({error})") from error
        text = data.decode("utf-8", errors="replace")
    return parse_yaml(text, name)


def parse_yaml(text: str, name: str) -> Any:
    """Return the content of a YAML text as plain data.

    Args:
        text: The text.
        name: Its name, for errors.

    Raises:
        ModelError: It is no YAML, or longer than :data:`MOST_BYTES`, deeper than :data:`DEEPEST`, has more than
            :data:`MOST_NODES`, or an alias within what it stands for.
    """
    if len(text) > MOST_BYTES or len(text.encode("utf-8", errors="replace")) > MOST_BYTES:
        raise ModelError(f"cannot read {name}", f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        _check_size(text, name)
        return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: dates and numbers that are none
        raise ModelError(f"cannot read {name}", str(error)) from error


def _check_size(text: str, name: str) -> None:
    total = 0
    sizes: dict[str | None, int] = {}  # nodes by anchor
    opened: list[tuple[str | None, int]] = []  # anchor of each collection around, and the nodes before it
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
            sizes.pop(event.anchor, None)  # an anchor may be used again; within itself it is undefined yet
            if len(opened) > DEEPEST:
                raise ModelError(f"cannot read {name}", f"more than {DEEPEST} collections are within each other")
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                raise ModelError(f"cannot read {name}", f"the alias *{event.anchor} is within its own anchor")
            total += sizes.get(event.anchor, 1)  # an unknown one is refused by the loader
        if total > MOST_NODES:
            raise ModelError(f"cannot read {name}", f"with its aliases it has more than {MOST_NODES} entries")
