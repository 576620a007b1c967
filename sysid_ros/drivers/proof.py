"""The driver's own proof of plans, in a separate process: neither the torque loop nor heartbeats wait for it."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.authentication import certificate_digest
from sysid_ros.core.certification.certificate import Certificate, CertificateMismatch
from sysid_ros.core.certification.reproof import Reprover
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import ControlLaw, RobustSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.channel import Channel, Outcome
from sysid_ros.drivers.child import ChildProcess, ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopRefusal, RefusalCode

_START_TIMEOUT = 120.0
"""How long the process may take to load the robot and to prove something for the first time [s]."""
_PROOF_TIMEOUT = 20.0
"""How long a proof may take [s]; one that takes longer is of no use to anybody."""
_WAIT = 3600.0
_REMEMBERED = 8
"""Plans that are not proven once more."""


@dataclass(frozen=True)
class OwnAssumptions:
    """The driver's own facts about a plan."""

    boxes: tuple[Box, Box]
    """Parameter boxes of the model in use when the plan begins: of arm (14 n,) and payload (10,)."""
    nominal: Array
    """Payload of the controller's torque then, (10,)."""
    scene: Scene
    law: ControlLaw


class ProofProcess(ChildProcess):
    """The process that proves, for the driver's own robot file; it restarts after it has ended."""

    name, module = "proof", "sysid_ros.drivers.proof"

    def __init__(self, model: str):
        super().__init__()
        self._model = model
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the process; it loads the robot in the background."""
        with self._starting:
            if not self.is_alive:
                self._end(kill_after=0.0)
                self._spawn()
                with self._lock:
                    self._send((next(self._numbers), "load", (self._model,)))

    def stop(self) -> None:
        """End the process."""
        self._end(kill_after=1.0)

    def prove(self, trajectory: Trajectory, certificate: Certificate, own: OwnAssumptions) -> float:
        """Prove a plan, and return the duration of the proof, now or earlier [s]; the first waits for the robot.

        Raises:
            LoopRefusal: It is about something else than assumed, or cannot be proven.
            ChildProcessFailed: The proof did not run.
        """
        self.start()
        self._call("wait", timeout=_START_TIMEOUT)
        seconds: float = self._call("prove", trajectory, certificate, own, timeout=_PROOF_TIMEOUT)
        return seconds


class ProofServer:
    """The other end: answers calls one by one."""

    def __init__(self, channel: Channel):
        self._channel = channel
        self._reprover: Reprover | None = None
        self._fault = "could not load the robot"
        self._proven: OrderedDict[bytes, float] = OrderedDict()  # by digest of the certificate: how long it took [s]

    def run(self) -> None:
        """Answer until the other end is gone."""
        while True:
            for number, name, arguments in self._channel.wait(_WAIT):
                try:
                    reply = Outcome.DONE, getattr(self, name)(*arguments)
                except LoopRefusal as refusal:
                    reply = Outcome.REFUSED, (refusal.what, refusal.reason, refusal.code)
                except Exception as error:  # noqa: BLE001 - a failed proof is a refusal
                    reply = Outcome.FAILED, str(error) if isinstance(error, SysidError) else repr(error)
                if name == "load":  # no answer expected
                    self._fault = f"could not load the robot: {reply[1]}"
                else:
                    self._channel.send((number, *reply))
                    while not self._channel.flush():
                        time.sleep(0.001)

    def load(self, model: str) -> None:
        """Load the robot, and compute the data needed once per robot."""
        self._reprover = Reprover(load_robot(model))
        self._reprover.warm_up()

    def wait(self) -> None:
        """Answer when everything before has been done."""
        if self._reprover is None:
            raise ChildProcessFailed(ProofProcess.name, self._fault)

    def prove(self, trajectory: Trajectory, certificate: Certificate, own: OwnAssumptions) -> float:
        """See :meth:`ProofProcess.prove`."""
        reprover, started = self._reprover, time.perf_counter()
        if reprover is None:
            raise ChildProcessFailed(ProofProcess.name, self._fault)
        try:
            law = RobustSettings.of_law(own.law)
            assumptions = Assumptions(reprover.robot, own.boxes, own.nominal, own.scene, law)
            reprover.require_same(trajectory, certificate, assumptions)
            # The certificate has the hashes of all data of the proof, which have just been compared.
            digest = certificate_digest(certificate)
            if digest not in self._proven:
                reprover.prove(trajectory, certificate, assumptions)
                self._proven[digest] = time.perf_counter() - started
                while len(self._proven) > _REMEMBERED:
                    self._proven.popitem(last=False)
        except CertificateMismatch as mismatch:
            raise LoopRefusal("trajectory", str(mismatch), RefusalCode.OTHER_ASSUMPTIONS) from mismatch
        except SysidError as error:
            raise LoopRefusal("trajectory", f"the driver's own proof fails: {error}", RefusalCode.NOT_PROVEN) from error
        return self._proven[digest]


def main() -> None:
    """Entry point of the process: the file descriptor of the socket is its argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process in its own order
    try:
        ProofServer(Channel(socket.socket(fileno=int(sys.argv[1])))).run()
    except EOFError:
        return


if __name__ == "__main__":
    main()
