"""The processes of one run: started together, watched, and ended so that nothing is left of them."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE
from sysid_ros.core.common.command_line import tell
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.processes import (
    RESPAWN_DELAY,
    STOP_TIMEOUT,
    ParameterValue,
    StartedProcess,
    key_variables,
    network_of,
    security_variables,
)
from sysid_ros.ros.environment import LOOPBACK_PROFILE, PROFILE_VARIABLE, is_domain_in_use, loopback_environment

_POLL_SECONDS = 0.1
_ORPHAN_SECONDS = 0.5
"""How long the children of a process may outlive it [s]."""
_STOPPED = ("T", "t")
"""States of processes that a signal, or a debugger, has stopped."""
_PR_SET_PDEATHSIG = 1
_STILL_SECONDS = 1.0
"""How long a node must stand still until it is named [s]."""
_CLIENT_STOP_SECONDS = 20.0
"""How long the client gets to bring the arm to rest after Ctrl-C [s]."""


class ProcessGroup:
    """A command that runs in a session of its own, so that Ctrl-C in the terminal does not reach it.

    Args:
        name: Name for messages.
        command: Program and arguments.
        environment: All its environment variables.
        log: File for its output; None shares the terminal.
        reads_terminal: Whether it may read the terminal; else its input is empty.
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
        """Return running processes of the group, the child itself and its own children."""
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

    One that was stopped by a signal is continued first: it would receive none but the last signal.

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
    # A process that outlives its parent has been forgotten, and would run for ever.
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


class Suite:
    """One run: nodes, one client, and the end of all of them.

    Args:
        processes: What to start.
        client: Command of the client; None runs the nodes until a signal comes.
        log_directory: Where the nodes' output goes; made if it is missing.
        environment: Environment variables of all processes.
        parameters: Parameters by executable; they override the ones of ``processes``.
    """

    def __init__(
        self,
        processes: Sequence[StartedProcess],
        client: Sequence[str] | None,
        log_directory: Path,
        environment: Mapping[str, str],
        parameters: Mapping[str, Mapping[str, ParameterValue]] | None = None,
    ):
        self._processes = processes
        self._client_command = client
        self._log = log_directory
        self._environment = {name: value for name, value in environment.items() if name != KEY_FILE_VARIABLE}
        self._parameters = parameters or {}
        self._nodes: list[ProcessGroup] = []  # in the order of the processes
        self._again: dict[int, float] = {}  # which of them are started again, and when: monotonic [s]
        self._standing: dict[int, float] = {}  # which of their numbers stand still, and since when: monotonic [s]
        self._named: set[int] = set()  # already named ones
        self._client: ProcessGroup | None = None

    def run(self) -> int:
        """Run it to its end.

        Returns:
            The client's exit status; 3 if a node died that the suite needs; 128 plus the number of the signal that
            ended it.

        Raises:
            SysidError: The user's key file cannot be used.
        """
        _ = self._key
        self._log.mkdir(parents=True, exist_ok=True)
        with Interrupts() as interrupts:
            try:
                for started in self._processes:
                    self._nodes.append(self._start_node(started))
                if self._client_command is not None:
                    environment = {**self._environment, **self._key}  # it believes signed results alone
                    self._client = ProcessGroup("client", self._client_command, environment, reads_terminal=True)
                status = self._watch(interrupts)
                self._end(interrupts)
            finally:
                kill_groups([*self._nodes, *([self._client] if self._client else [])])
        return status

    def environment_of(self, started: StartedProcess) -> Mapping[str, str]:
        """Return the environment of a process: the key is for those alone that need it."""
        enclave = security_variables(started.process.executable, started.namespace)
        return {**self._environment, **enclave, **(self._key if started.process.has_key else {})}

    @cached_property
    def _key(self) -> Mapping[str, str]:
        return key_variables(self._processes)

    def _start_node(self, started: StartedProcess) -> ProcessGroup:
        name = started.process.executable
        command = node_command(started, self._write_parameters(started))
        return ProcessGroup(name, command, self.environment_of(started), self._log / f"{name}.log")

    def _write_parameters(self, started: StartedProcess) -> Path:
        """Write the node's parameters of this run, as text of an exact type, which a command line cannot carry."""
        name = started.process.executable
        path = self._log / f"{name}.yaml"
        values = {**started.parameters, **self._parameters.get(name, {})}
        lines = [f"/**/{name}:", "  ros__parameters:", *(f"    {key}: {json.dumps(values[key])}" for key in values)]
        path.write_text("\n".join(lines) + "\n")
        return path

    def _watch(self, interrupts: Interrupts) -> int:
        while True:
            self._name_those_that_stand_still()
            if interrupts.count:
                say("stopping the arm, then the nodes" if self._client else "stopping the nodes")
                return 128 + interrupts.number
            if self._has_lost_a_node():
                return ExitStatus.NODE_DIED
            if self._client is not None and self._client.returncode is not None:
                code = self._client.returncode
                return code if code >= 0 else 128 - code
            time.sleep(_POLL_SECONDS)

    def _name_those_that_stand_still(self) -> None:
        """Say which nodes a signal has stopped: of one that stops before the others find it, they know nothing."""
        now = time.monotonic()
        for node, started in zip(self._nodes, self._processes, strict=True):
            if not node.stands_still:
                self._standing.pop(node.pid, None)
                if node.pid in self._named and node.returncode is None:
                    self._named.remove(node.pid)
                    say(f"{node.name} goes on")
            elif now - self._standing.setdefault(node.pid, now) > _STILL_SECONDS and node.pid not in self._named:
                self._named.add(node.pid)
                needed = "" if started.process.is_required else "; nothing that moves needs it"
                say(f"{node.name} stands still: a signal has stopped it; kill -CONT {node.pid} lets it go on{needed}")

    def _has_lost_a_node(self) -> bool:
        """Return whether a node has ended that the suite needs; start the others again."""
        now = time.monotonic()
        for index, (node, started) in enumerate(zip(self._nodes, self._processes, strict=True)):
            if node.returncode is None:
                continue
            if index not in self._again:
                code = node.returncode
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
                say(f"{node.name} {how} before the end; the last lines of {node.log}:")
                print(textwrap.indent(node.last_lines(), "    "), file=sys.stderr, flush=True)
                if started.process.is_required:
                    return True
                say(f"nothing that moves needs {node.name}; it is started again in {RESPAWN_DELAY:g} s")
                self._again[index] = now + RESPAWN_DELAY
            elif now >= self._again[index]:
                del self._again[index]
                self._nodes[index] = self._start_node(started)
        return False

    def _end(self, interrupts: Interrupts) -> None:
        """End the client, which cancels its goal and waits for the arm to rest, and then the nodes."""
        client = self._client
        if client is not None and client.pids():
            client.send(signal.SIGINT)
            end, seen = time.monotonic() + _CLIENT_STOP_SECONDS, interrupts.count
            while not wait_for_end([client], 0.5) and time.monotonic() < end:
                if interrupts.count >= seen + 2:
                    say("not waiting for the arm any longer")
                    break
            stop_groups([client], interrupt_seconds=1.0, terminate_seconds=1.0)
        # Together, except those needed by others until their end: a driver hands the arm back to its controller.
        for is_last in (False, True):
            started = zip(self._nodes, self._processes, strict=False)  # fewer run where a start failed
            stop_groups([node for node, one in started if one.process.ends_last is is_last])


def client_of(module: str, values: Mapping[str, object], robot_name: str) -> list[str]:
    """Return the command of a client: its module, its options and the namespace of the nodes, empty for none.

    Args:
        module: The module.
        values: Of its options; of a list each, and of True the option alone.
        robot_name: The namespace.
    """
    words = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        words += [
            option if one is True else f"{option}={one}" for one in (value if isinstance(value, list) else [value])
        ]
    namespace = robot_name.strip("/")
    names = ["--ros-args", "-r", f"__ns:=/{namespace}"] if namespace else []
    return [sys.executable, "-m", module, *words, *names]


def say_where(environment: Mapping[str, str], log_directory: Path) -> None:
    """Print the ROS domain and the network of the nodes, and where their output goes."""
    is_here = environment.get(PROFILE_VARIABLE) == str(LOOPBACK_PROFILE)
    where = "on this machine only" if is_here else "on the networks that the environment says"
    domain = environment["ROS_DOMAIN_ID"]
    say(f"ROS_DOMAIN_ID={domain}, {where}; logs in {log_directory}")
    if is_domain_in_use(int(domain)):
        say(
            f"others on this machine use ROS_DOMAIN_ID={domain}, too: with the names of this suite they take its goals "
            "and are refused by its nodes; --domain-id or --robot-name keeps the two apart"
        )


def node_command(started: StartedProcess, own_parameters: Path) -> list[str]:
    """Return the command of a node: its module, name space and parameter files, the last of which wins."""
    command = [sys.executable, "-m", started.process.module, "--ros-args"]
    if started.namespace:
        command += ["-r", f"__ns:=/{started.namespace}"]
    for path in (*started.parameter_files, own_parameters):
        command += ["--params-file", str(path)]
    return command


def suite_environment(
    log_directory: Path, domain_id: int | None = None, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of all processes of a run: this one's, and one thread for linear algebra each.

    Args:
        log_directory: Where logs go.
        domain_id: ROS domain; on this machine alone by default a free one, else the domain of this process.
        values: Launch arguments that say which network; by default this machine alone.

    Raises:
        ParameterOutOfRange: There is no such domain.
    """
    network = {} if values is None else network_of(values)
    if values is None or "ROS_AUTOMATIC_DISCOVERY_RANGE" in network:
        network = loopback_environment(domain_id)
    else:
        network["ROS_DOMAIN_ID"] = os.environ.get("ROS_DOMAIN_ID", "0") if domain_id is None else str(domain_id)
    package_parent = str(Path(__file__).resolve().parents[2])
    python_path = [package_parent, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
        **network,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(python_path)),
        "PYTHONUNBUFFERED": "1",
        "RCUTILS_COLORIZED_OUTPUT": "0",
        "ROS_LOG_DIR": str(log_directory / "ros"),
    }


def say(text: str) -> None:
    """Tells the person at the terminal."""
    tell("[runner] ", text)
