"""Keeps ROS on this machine: a private domain, and transports that never leave loopback and shared memory.

``ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST`` alone sends nothing out, but it listens on all interfaces and answers a peer
that reaches in; the Fast DDS profile beside this file binds every listening socket to 127.0.0.1.
"""

from __future__ import annotations

import random
from pathlib import Path

from sysid_ros.core.common.errors import ParameterOutOfRange

LOOPBACK_PROFILE = Path(__file__).with_name("fastdds_loopback.xml")
"""Fast DDS profile: shared memory and UDP on 127.0.0.1, nothing else."""

DOMAIN_IDS = range(102)
"""Domain ids whose UDP ports lie below those that Linux hands out on its own."""

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


def choose_domain_id(generator: random.Random | None = None) -> int:
    """Return a random domain id that no process on this machine uses now (any at all if all are in use).

    Args:
        generator: Source of randomness; the system's by default.
    """
    generator = generator or random.SystemRandom()
    used = _bound_udp_ports()
    free = [domain for domain in DOMAIN_IDS if used.isdisjoint(domain_ports(domain))]
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
    return {
        "ROS_DOMAIN_ID": str(domain_id),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_STATIC_PEERS": "",
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        "FASTDDS_DEFAULT_PROFILES_FILE": str(LOOPBACK_PROFILE),
    }


def _bound_udp_ports() -> set[int]:
    ports = set()
    for table in (Path("/proc/net/udp"), Path("/proc/net/udp6")):
        if table.exists():
            ports |= {int(line.split()[1].rsplit(":", 1)[1], 16) for line in table.read_text().splitlines()[1:]}
    return ports
