"""The load of this machine."""

from __future__ import annotations

import os


def describe_load() -> str:
    """Describe the load of this machine: ``this machine is busy: load 40 on 2 cores``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0]
    words = "busy" if load > cores else "not busy by its load, but late"
    return f"this machine is {words}: load {load:.0f} on {cores} core{'s' if cores > 1 else ''}"
