"""Runs that workers import by name: some fail, some take their process along."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from sysid_ros import executor
from sysid_ros.core.common.errors import ParameterOutOfRange


def draw(seed, name="a"):
    """A run like any other: what it returns depends on its job alone."""
    rng = np.random.default_rng(seed)
    return {"numbers": rng.normal(size=3), "name": name, "count": rng.integers(0, 100)}


def fail_on_odd(seed):
    if seed % 2:
        raise ParameterOutOfRange("seed", seed, "an even number")
    return seed


def fail_once(folder, seed):
    """Fails the first time it is tried."""
    mark = Path(folder) / str(seed)
    if seed == 2 and not mark.exists():
        mark.touch()
        raise RuntimeError("not yet")
    return seed


def die_once(folder, seed):
    """Takes its process along the first time it is tried."""
    mark = Path(folder) / str(seed)
    if seed == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return seed


def interrupt(seed):
    if seed == 3:
        raise KeyboardInterrupt
    return seed


def not_plain(seed):
    return object() if seed else 0


def wait_and_die(folder, seed):
    """The first run takes its worker along, once; the others last long enough for both workers to be busy."""
    mark = Path(folder) / "died"
    if seed == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return draw(seed)


def tell_quarters(seed):
    for quarter in range(1, 4):
        executor.tell_share(0.25 * quarter)
    return seed
