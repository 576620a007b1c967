"""Any process of an idle suite is stopped (SIGSTOP) for 2, 5, 20 or 60 s and goes on: is it heard, and does it hear?

``python bench/_attacks_stalls.py [--trials N]``. While a process stands still, a program of somebody else comes and
goes, as ``ros2 topic list`` does: it connects to all processes, the stopped one included. Within 5 s after the process
goes on, every service and action server of the suite must answer, to whoever found it before and to a newcomer; each
node must be known as alive; status and samples must flow. In the end a goal identifies the payload: the nodes hear one
another, too.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import importlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rclpy

from sysid_ros.ros.environment import choose_domain_id, loopback_environment

DOMAIN = choose_domain_id()
os.environ.update(loopback_environment(DOMAIN))  # before anything of ROS is loaded

from _fault_rig import NAMES, SHORT, Rig, begin_ros  # noqa: E402
from rclpy.context import Context  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.node import Node  # noqa: E402

from sysid_ros.ros.node import spin_until  # noqa: E402
from sysid_ros.ros.other_nodes import ServerProbe  # noqa: E402

STALLS = (2.0, 5.0, 20.0, 60.0)
"""How long a process stands still [s]; Fast DDS misses one in shared memory after one to two."""
ANSWERED_WITHIN = 5.0
"""How soon all must be well after a process goes on [s]."""
ASKED_AGAIN = 2.0
"""How long an answer is waited for until it is asked for again [s]."""
START_SECONDS = 120.0
VISIT_SECONDS = 1.0
"""How long somebody else's program stays [s]."""
UNASKED = ("/change_state", "/identify_payload", "/set_payload")
"""Services that would change which nodes are active, move the arm, or change what it holds."""


class Asker:
    """Asks every service of the suite.

    Args:
        node: Its node.
        executor: What spins it.
    """

    def __init__(self, node: Node, executor: SingleThreadedExecutor):
        self._node, self._executor = node, executor
        self._clients: dict[str, Any] = {}

    def find(self) -> int:
        """Make clients of the services that are seen; return of how many."""
        for server in NAMES:
            try:
                found = self._node.get_service_names_and_types_by_node(server, "/")
            except rclpy.node.NodeNameNonExistentError:
                continue
            for name, types in found:
                if name not in self._clients and "/_action/" not in name and not name.endswith(UNASKED):
                    package, _, kind = types[0].split("/")
                    service = getattr(importlib.import_module(f"{package}.srv"), kind)
                    self._clients[name] = self._node.create_client(service, name)
        return len(self._clients)

    def find_silent(self, seconds: float) -> list[str]:
        """Ask all services for nothing in particular; return those that have not answered within the time [s]."""
        end, asked = time.monotonic() + seconds, {name: [] for name in self._clients}

        def silent() -> list[str]:
            return [name for name, answers in asked.items() if not any(one.done() for one in answers)]

        while silent() and time.monotonic() < end:
            for name in silent():  # a server may have found this client later than it was found, and not have answered
                asked[name].append(self._clients[name].call_async(self._clients[name].srv_type.Request()))
            spin_until(self._executor, lambda: not silent(), min(ASKED_AGAIN, max(end - time.monotonic(), 0.0)))
        return silent()


@contextmanager
def somebody_else() -> Iterator[tuple[Node, SingleThreadedExecutor]]:
    """Give a node with a participant of its own, as another program has."""
    context = Context()
    rclpy.init(args=[sys.argv[0]], context=context)
    node, executor = Node("visitor", context=context), SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        yield node, executor
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.shutdown(context=context)


class Trials:
    """The suite under test.

    Args:
        folder: For its logs.
    """

    def __init__(self, folder: Path):
        self._rig = Rig(folder, DOMAIN)
        self._asker = Asker(self._rig.node, self._rig._executor)
        self.services = 0

    def start(self) -> None:
        """Start the suite; wait until the arm is held and every service answers."""
        self._rig.start()
        if not self._rig.is_ready():
            raise SystemExit("the suite does not start; see its logs")
        self._rig.spin_until(lambda: False, 3.0)
        self.services = self._asker.find()
        if silent := self._asker.find_silent(START_SECONDS):
            raise SystemExit(f"services do not answer before anything was stopped: {silent}")

    def processes(self) -> dict[str, int]:
        """Return the processes of the suite by name: its nodes, and what the driver has started."""
        found = {name: group.pid for name, group in self._rig.groups.items()}
        return found | {
            f"child {index + 1} of arm_driver": pid for index, pid in enumerate(sorted(self._rig.loop_pids()))
        }

    def stall(self, name: str, seconds: float) -> str:
        """Stop a process for a time [s] and let it go on; return in words what is not well afterwards."""
        pid = self.processes()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            for share in (0.0, 0.9):  # before the others miss the process, and when they have forgotten it
                self._rig.spin_until(lambda: False, max(0.0, share * seconds - (time.monotonic() - began)))  # noqa: B023
                with somebody_else() as (_, executor):
                    spin_until(executor, lambda: False, min(VISIT_SECONDS, 0.1 * seconds))
            self._rig.spin_until(lambda: False, max(0.0, seconds - (time.monotonic() - began)))
        finally:
            os.kill(pid, signal.SIGCONT)
        return self.find_faults()

    def find_faults(self) -> str:
        """Return in words what is not well within the allowed time; empty where all is."""
        began, rig = time.monotonic(), self._rig

        def left() -> float:
            return began + ANSWERED_WITHIN - time.monotonic()

        faults = []
        if silent := self._asker.find_silent(left()):
            faults.append(f"silent: {', '.join(silent)}")
        probe = ServerProbe(rig._client)
        checks = {
            "no goal would be answered": probe.is_answered,
            "no status": lambda: time.monotonic() - rig.status_time < 1.0,
            "no samples": lambda: time.monotonic() - rig.sample_time < 1.0,
        } | {f"no heartbeat of {name}": lambda name=name: not rig.peers.is_gone(f"/{name}") for name in NAMES}
        faults += [text for text, is_well in checks.items() if not rig.spin_until(is_well, max(left(), 0.1))]
        self.seconds = time.monotonic() - began
        with somebody_else() as (node, executor):
            asker = Asker(node, executor)
            spin_until(executor, lambda: asker.find() >= self.services, ANSWERED_WITHIN)
            missing, silent = self.services - asker.find(), asker.find_silent(ANSWERED_WITHIN)
            if missing or silent:
                faults.append(f"a newcomer misses {missing} services and gets no answer from {silent}")
        if ended := [name for name, group in rig.groups.items() if group.returncode is not None]:
            faults.append(f"ended: {', '.join(ended)}")
        return "; ".join(faults)

    def find_mended(self, seconds: float) -> bool:
        """Return whether all is well at last, within a longer time [s]."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.find_faults():
                return True
        return False

    def again(self) -> None:
        """Start the suite anew."""
        self._rig.stop()
        self.start()

    def identify(self) -> str:
        """Return in words what became of a goal; empty where it succeeded."""
        if not self._rig.is_ready():
            return "the arm does not rest, or nobody answers goals"
        outcome = self._rig.identify(SHORT)
        return "" if outcome.code == 0 else f"a goal ends with {outcome.code}: {outcome.text}"

    def close(self) -> None:
        """End the suite."""
        self._rig.close()


def run(trials: int, stalls: tuple[float, ...] = STALLS, only: str = "") -> list[dict]:
    """Stop processes, each in turn, so many times for each length of time."""
    begin_ros()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        suite = Trials(Path(folder))
        try:
            suite.start()
            names = [name for name in suite.processes() if only in name]
            worst = dict.fromkeys(stalls, 0.0)
            faults: dict[float, list[str]] = {seconds: [] for seconds in stalls}
            for number in range(trials):
                for offset, seconds in enumerate(stalls):
                    name = names[(number + 3 * offset) % len(names)]
                    text = suite.stall(name, seconds)
                    print(f"{name}, {seconds:g} s: {text or f'well after {suite.seconds:.1f} s'}", file=sys.stderr)
                    if not text:
                        worst[seconds] = max(worst[seconds], suite.seconds)
                        continue
                    mended = suite.find_mended(30.0)
                    faults[seconds].append(f"{name}: {text}; {'well' if mended else 'not well'} 30 s later")
                    print(f"  {'well' if mended else 'not well'} 30 s later", file=sys.stderr, flush=True)
                    if not mended:
                        suite.again()
            for seconds in stalls:
                note = (
                    " | ".join(faults[seconds]) or f"all well within {worst[seconds]:.1f} s, {suite.services} services"
                )
                attack = f"a process stands still for {seconds:g} s"
                count = len(faults[seconds])
                rows.append({"point": "5", "attack": attack, "trials": trials, "failed": count, "note": note})
            text = suite.identify()
            attack = "a goal after all these stalls"
            rows.append({"point": "5", "attack": attack, "trials": 1, "failed": int(bool(text)), "note": text})
        finally:
            suite.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="trials of each length of time")
    parser.add_argument("--seconds", type=float, nargs="*", default=list(STALLS), help="lengths of time")
    parser.add_argument("--only", default="", help="part of the names of the processes that are stopped")
    arguments = parser.parse_args()
    for row in run(arguments.trials, tuple(arguments.seconds), arguments.only):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
