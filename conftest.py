"""Keeps every test on this machine: a free ROS domain, and transports that never leave loopback."""

import atexit
import os
import time

from sysid_ros.ros.environment import loopback_environment
from sysid_ros.ros.shared_memory import existing_files, files_in_use, files_of_domain, remove_unused

for _name, _value in {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}.items():
    os.environ.setdefault(_name, _value)
os.environ.update(loopback_environment())


def _remove_shared_memory(before, pid):
    """Removes what nodes of the tests leave in /dev/shm when they are killed on purpose."""
    if os.getpid() != pid:
        return
    ours = files_in_use([pid]) | files_of_domain(int(os.environ["ROS_DOMAIN_ID"]))
    # Segments do not tell whose they were; one that nobody uses and that is not just being made is an orphan.
    orphans = {path for path in existing_files() if time.time() - _modified(path) > 2.0}
    remove_unused((ours | orphans) - before, ignored_pids=[pid])


def _modified(path):
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


# Registered before anything of ROS, so that it comes after everything of ROS.
atexit.register(_remove_shared_memory, existing_files(), os.getpid())
