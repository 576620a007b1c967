"""Definitions of ROS messages as recordings carry them: the message's own text, then those of everything it uses."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Sequence
from pathlib import Path

from sysid_ros.core.errors import SysidError

SEPARATOR = "=" * 80
_PRIMITIVES = {
    *("bool", "byte", "char", "string", "wstring", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_FIELD = re.compile(r"^\s*([A-Za-z][\w/]*)(?:<=\d+)?(?:\[[<=\d]*\])?\s+\w+")


class MessageNotFound(SysidError):
    """The definition of a message is not installed.

    Args:
        type_name: The message, ``package/msg/Name``.
        searched: Folders that were looked into.
    """

    def __init__(self, type_name: str, searched: Sequence[Path]):
        self.type_name = type_name
        self.searched = tuple(searched)
        folders = ", ".join(map(str, searched)) or "nowhere: set AMENT_PREFIX_PATH"
        super().__init__(f"no definition of message {type_name} found; looked into {folders}")


def share_directories() -> tuple[Path, ...]:
    """Folders with the shares of installed packages: the ament prefixes, this Python's prefix and its site-packages."""
    prefixes = [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
    prefixes += [Path(sys.prefix), *map(Path, site.getsitepackages())]
    candidates = (prefix / "share" for prefix in prefixes)
    return tuple(dict.fromkeys(folder for folder in candidates if folder.is_dir()))


def message_definition(type_name: str, shares: Sequence[Path] | None = None) -> str:
    """The full definition of a message, as tools expect it in a recording.

    Args:
        type_name: ``package/msg/Name``.
        shares: Folders that hold ``<package>/msg/<Name>.msg``; None takes :func:`share_directories`.

    Returns:
        The text of the ``.msg`` file; then, for every message it uses directly or indirectly, a line of 80 ``=``, a
        line ``MSG: package/Name`` and that message's text.

    Raises:
        MessageNotFound: A definition is not installed.
    """
    folders = share_directories() if shares is None else tuple(map(Path, shares))
    package, _, name = type_name.split("/")
    texts = {f"{package}/{name}": _read(package, name, folders)}
    queue = [f"{package}/{name}"]
    while queue:
        current = queue.pop(0)
        for used in _used_messages(texts[current], current.split("/")[0]):
            if used not in texts:
                texts[used] = _read(*used.split("/"), folders)
                queue.append(used)
    first, *others = texts.items()
    return (
        "\n".join([first[1].rstrip(), *(f"{SEPARATOR}\nMSG: {used}\n{text.rstrip()}" for used, text in others)]) + "\n"
    )


def _read(package: str, name: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        path = folder / package / "msg" / f"{name}.msg"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise MessageNotFound(f"{package}/msg/{name}", folders)


def _used_messages(text: str, package: str) -> list[str]:
    """Messages the fields of a definition are made of, as ``package/Name``."""
    used = []
    for line in text.splitlines():
        match = _FIELD.match(line.split("#", 1)[0])
        if match is None or match.group(1) in _PRIMITIVES:
            continue
        parts = match.group(1).split("/")
        used.append(f"{package}/{parts[0]}" if len(parts) == 1 else f"{parts[0]}/{parts[-1]}")
    return used
