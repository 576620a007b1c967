"""Keeps ROS on this machine: a private domain, and transports that never leave loopback and shared memory.

The Fast DDS profile beside this file binds every socket to 127.0.0.1. ``ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST`` would
add a transport of its own that opens sockets on all addresses, so discovery is left to the profile.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from sysid_ros.core.common.errors import ParameterOutOfRange

LOOPBACK_PROFILE = Path(__file__).with_name("fastdds_loopback.xml")
"""Fast DDS profile: shared memory and UDP on 127.0.0.1, nothing else."""

DOMAIN_IDS = range(102)
"""Domain ids whose UDP ports lie below those that Linux hands out on its own."""

PROFILE_VARIABLE = "FASTDDS_DEFAULT_PROFILES_FILE"
"""Names the file of the Fast DDS profile."""
_PORT_BASE = 7400
_PORTS_PER_DOMAIN = 250


def domain_ports(domain_id: int) -> range:
    """UDP ports (and numbers of shared-memory ports) of a domain.

    Raises:
        ParameterOutOfRange: The id is not within 0 to 101.
    """
    if domain_id not in DOMAIN_IDS:
        raise ParameterOutOfRange("ROS_DOMAIN_ID", domain_id, f"{DOMAIN_IDS[0]} to {DOMAIN_IDS[-1]}")
    first = _PORT_BASE + _PORTS_PER_DOMAIN * domain_id
    return range(first, first + _PORTS_PER_DOMAIN)


def is_domain_in_use(domain_id: int) -> bool:
    """Return whether some process on this machine takes part in a domain: its first port is where all are found.

    Raises:
        ParameterOutOfRange: The id is not within 0 to 101.
    """
    return domain_ports(domain_id)[0] in _bound_udp_ports()


_reservations: list[socket.socket] = []


def choose_domain_id(generator: random.Random | None = None) -> int:
    """Return a random domain id that no process on this machine uses now (any at all if all are in use).

    It is this process's until its end: until its nodes have opened their ports, which takes seconds on a busy machine,
    nobody else who asks here gets it.

    Args:
        generator: Source of randomness; the system's by default.
    """
    generator = generator or random.SystemRandom()
    used = _bound_udp_ports()
    free = [domain for domain in DOMAIN_IDS if used.isdisjoint(domain_ports(domain))]
    for domain in generator.sample(free, len(free)):
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0sysid_ros/domain/{domain}")  # a name without a file, which ends with the process
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        return domain
    return generator.choice(free or list(DOMAIN_IDS))


def loopback_environment(domain_id: int | None = None) -> dict[str, str]:
    """Environment variables that keep a ROS process on this machine; add them to those it already has.

    Args:
        domain_id: ROS domain, 0 to 101; by default a random one that is not in use.

    Raises:
        ParameterOutOfRange: The id is not within 0 to 101.
    """
    domain_id = choose_domain_id() if domain_id is None else domain_id
    domain_ports(domain_id)
    return {"ROS_DOMAIN_ID": str(domain_id), **_loopback_variables()}


class Network(str, Enum):
    """Who can hear the nodes of a run, and talk to them."""

    AUTO = "auto"
    LOOPBACK = "loopback"
    LAN = "lan"


def network_variables(
    network: Network, is_arm_on_topics: bool, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables for a choice of network, to be added to those of a process.

    Args:
        network: The choice. ``LOOPBACK``: this machine alone. ``LAN``: as the user's environment says, which without
            settings is everybody on the networks of this machine. ``AUTO``: ``LOOPBACK``, unless the arm itself is
            reached over topics.
        is_arm_on_topics: Whether the arm is commanded or heard over topics, maybe of another machine.
        environ: The user's environment.
    """
    if network is Network.LAN or (network is Network.AUTO and is_arm_on_topics):
        return {}
    middleware = environ.get("RMW_IMPLEMENTATION", "")
    if middleware and not middleware.startswith("rmw_fastrtps"):
        return {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_STATIC_PEERS": ""}
    return _loopback_variables()


def _loopback_variables() -> dict[str, str]:
    return {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",
        "ROS_STATIC_PEERS": "",
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        PROFILE_VARIABLE: str(LOOPBACK_PROFILE),
    }


def _bound_udp_ports() -> set[int]:
    ports = set()
    for table in (Path("/proc/net/udp"), Path("/proc/net/udp6")):
        if table.exists():
            ports |= {int(line.split()[1].rsplit(":", 1)[1], 16) for line in table.read_text().splitlines()[1:]}
    return ports


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
