"""A child process with everything it starts, which can be ended without leaving any of it behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sysid_ros.processes import STOP_TIMEOUT

_POLL_SECONDS = 0.1
_ORPHAN_SECONDS = 0.5
"""How long the children of a process may outlive it [s]."""
_STOPPED = ("T", "t")
"""States of processes that a signal, or a debugger, has stopped."""
_PR_SET_PDEATHSIG = 1


class ProcessGroup:
    """A command that runs in a session of its own, so that Ctrl-C in the terminal does not reach it.

    Args:
        name: Name for messages.
        command: Program and arguments.
        environment: All its environment variables.
        log: File for its output; None shares the terminal.
        reads_terminal: Whether it may read what a person types; else there is nothing to read.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path | None = None,
        reads_terminal: bool = False,
    ):
        self.name = name
        self.log = log
        parent = os.getpid()
        output = None if log is None else log.open("ab")
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=None if reads_terminal else subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )
        finally:
            if output is not None:
                output.close()

    @property
    def pid(self) -> int:
        """Number of the child and of its process group."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, minus the signal's number if one ended it; None while it runs."""
        return self._child.poll()

    @property
    def stands_still(self) -> bool:
        """Whether a signal has stopped the child, as Ctrl-Z does, and it would go on with SIGCONT."""
        return self.returncode is None and _state_and_group(Path("/proc", str(self.pid)))[0] in _STOPPED

    def pids(self) -> list[int]:
        """Return running processes of the group, the child itself and what it started."""
        self._child.poll()
        return _running_by_group().get(self._child.pid, [])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the child alone; it decides what becomes of its own children."""
        if self.returncode is None:
            self._child.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group that is left."""
        if self.pids():
            try:
                os.killpg(self._child.pid, number)
            except ProcessLookupError:
                pass

    def last_lines(self) -> str:
        """Return the end of its log."""
        if self.log is None or not self.log.is_file():
            return ""
        return "\n".join(self.log.read_text(errors="replace").rstrip().splitlines()[-15:])


def stop_groups(
    groups: Sequence[ProcessGroup], interrupt_seconds: float = STOP_TIMEOUT, terminate_seconds: float = 3.0
) -> None:
    """End processes: SIGINT, then SIGTERM, then SIGKILL, to the remaining ones.

    One that was stopped by a signal goes on, for otherwise it would hear of none but the last.

    Args:
        groups: The processes.
        interrupt_seconds: Time they get after SIGINT [s].
        terminate_seconds: Time they get after SIGTERM [s].
    """
    for group in groups:
        group.send(signal.SIGINT)
        group.send(signal.SIGCONT)
    end = time.monotonic() + interrupt_seconds
    while time.monotonic() < end and any(group.returncode is None for group in groups):
        time.sleep(_POLL_SECONDS)
    # What outlives the process that started it has been forgotten: nobody will tell it to end.
    if wait_for_end(groups, _ORPHAN_SECONDS):
        return
    for group in groups:
        group.send_all(signal.SIGTERM)
    if not wait_for_end(groups, terminate_seconds):
        kill_groups(groups)


def kill_groups(groups: Iterable[ProcessGroup]) -> None:
    """End processes at once, without letting them clean up."""
    listed = list(groups)
    for group in listed:
        group.send_all(signal.SIGKILL)
    wait_for_end(listed, 2.0)


def wait_for_end(groups: Sequence[ProcessGroup], seconds: float) -> bool:
    """Wait until nothing of the groups runs any more; false if something still does after the time [s]."""
    end = time.monotonic() + seconds
    while True:
        leaders = {group.pid for group in groups}
        if leaders.isdisjoint(_running_by_group()):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)


def _running_by_group() -> dict[int, list[int]]:
    """Return running processes of this machine (zombies excluded) by process group."""
    members: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        state, group = _state_and_group(entry)
        if state not in "ZX":
            members.setdefault(group, []).append(int(entry.name))
    return members


def _state_and_group(entry: Path) -> tuple[str, int]:
    """Return the letter of the state and the group of a process, by its folder in /proc; ``X`` where it has ended."""
    try:
        stat = (entry / "stat").read_text(errors="replace")
    except OSError:
        return "X", 0
    state, _, group = stat[stat.rindex(")") + 2 :].split()[:3]
    return state, int(group)


def _die_with(parent: int) -> None:
    """Has the kernel interrupt this process when its parent ends, even if that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        os._exit(1)
