"""Keeps ROS on this machine: a private domain, and a transport that never leaves loopback.

The Fast DDS profile beside this file binds every socket to 127.0.0.1. ``ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST`` would
add a transport of its own that opens sockets on all addresses, so discovery is left to the profile.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from sysid_ros.core.common.errors import ParameterOutOfRange

LOOPBACK_PROFILE = Path(__file__).with_name("fastdds_loopback.xml")
"""Fast DDS profile: UDP on 127.0.0.1, nothing else."""

DOMAIN_IDS = range(102)
"""Domain ids whose UDP ports lie below the ephemeral ports of Linux."""

PROFILE_VARIABLE = "FASTDDS_DEFAULT_PROFILES_FILE"
"""Names the file of the Fast DDS profile."""
_TRANSPORT_CHOICES = ("FASTDDS_BUILTIN_TRANSPORTS", PROFILE_VARIABLE, "FASTRTPS_DEFAULT_PROFILES_FILE")
"""With these a user chooses the transports of Fast DDS, which by default has shared memory among them."""
_PORT_BASE = 7400
_PORTS_PER_DOMAIN = 250


def domain_ports(domain_id: int) -> range:
    """UDP ports of a domain.

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
    no other caller on this machine gets it.

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
    """Which machines can exchange messages with the nodes of a run."""

    AUTO = "auto"
    LOOPBACK = "loopback"
    LAN = "lan"


def network_variables(
    network: Network, is_arm_on_topics: bool, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment variables for a choice of network, to be added to the environment of a process.

    Args:
        network: The choice. ``LOOPBACK``: this machine alone. ``LAN``: as the user's environment says, which without
            settings is every machine on its networks, over UDP. ``AUTO``: ``LOOPBACK``, unless the arm
            itself is reached over topics.
        is_arm_on_topics: Whether the arm is commanded or measured over topics, possibly of another machine.
        environ: The user's environment.
    """
    is_fast_dds = (environ.get("RMW_IMPLEMENTATION") or "rmw_fastrtps").startswith("rmw_fastrtps")
    if network is Network.LAN or (network is Network.AUTO and is_arm_on_topics):
        has_default_transports = is_fast_dds and not any(name in environ for name in _TRANSPORT_CHOICES)
        return {_TRANSPORT_CHOICES[0]: "UDPv4"} if has_default_transports else {}
    if not is_fast_dds:
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
