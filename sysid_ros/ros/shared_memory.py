"""Shared-memory files of Fast DDS: which belong to a process, and removing those that nobody uses any more.

A process that is killed leaves its files in ``/dev/shm``; one that ends in order removes them itself, but for the small
file by which the tracing library finds its daemon.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sysid_ros.ros.environment import domain_ports

SHARED_MEMORY = Path("/dev/shm")
_OURS = re.compile(r"(sem\.)?fastdds_|lttng-ust-wait-")


def files_in_use(pids: Iterable[int]) -> set[Path]:
    """Shared-memory files of Fast DDS and its tracing library that processes have mapped or open."""
    found = set()
    for pid in pids:
        for name in _mapped(pid) | _opened(pid):
            path = Path(name)
            if path.parent == SHARED_MEMORY and _OURS.match(path.name):
                found.add(path)
    return found


def existing_files() -> set[Path]:
    """All shared-memory files of Fast DDS and its tracing library on this machine."""
    if not SHARED_MEMORY.is_dir():
        return set()
    return {path for path in SHARED_MEMORY.iterdir() if _OURS.match(path.name)}


def files_of_domain(domain_id: int) -> set[Path]:
    """Files of the ports of a ROS domain, whoever made them."""
    ports = domain_ports(domain_id)
    found = set()
    for path in existing_files():
        match = re.fullmatch(r"(?:sem\.)?fastdds_port(\d+)(?:_el|_mutex)?", path.name)
        if match and int(match[1]) in ports:
            found.add(path)
    return found


def remove_unused(paths: Iterable[Path], ignored_pids: Iterable[int] = ()) -> list[Path]:
    """Remove those of the files that no running process uses.

    A port is a file, a lock beside it and a semaphore that is opened only now and then: they go together or not at all.

    Args:
        paths: The files.
        ignored_pids: Processes whose use does not count, because they are about to end.

    Returns:
        The files removed.
    """
    candidates = {path for path in paths if path.exists()}
    if not candidates:
        return []
    running = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    used = {_family(path) for path in files_in_use(running - set(ignored_pids))}
    removed = []
    for path in sorted(candidates):
        if _family(path) in used:
            continue
        try:
            path.unlink()
        except (FileNotFoundError, PermissionError):
            continue
        removed.append(path)
    return removed


def _family(path: Path) -> str:
    """Return the name of a group of files: ``fastdds_port7``, ``fastdds_port7_el``, ``sem.fastdds_port7_mutex``."""
    return path.name.removeprefix("sem.").removesuffix("_el").removesuffix("_mutex")


def _mapped(pid: int) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return set()
    return {line[line.index("/dev/shm/") :] for line in lines if "/dev/shm/" in line and not line.endswith("(deleted)")}


def _opened(pid: int) -> set[str]:
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return set()
    found = set()
    for link in links:
        try:
            found.add(str(link.readlink()))
        except OSError:
            continue
    return found
