"""Stand-ins for nodes and clients: ``python -m standin <behaviour>``, or by the name of the executable.

Each notes its process id as soon as it handles signals, and later what happened to it, in a file of the folder
STANDIN_FOLDER. STANDIN_AWAITED names the nodes of the suite.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(os.environ["STANDIN_FOLDER"])


def note(name, text):
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{name} {text}\n")


def wait_for_pids(*names, seconds=30.0):
    """Waits until others are ready for signals."""
    end = time.monotonic() + seconds
    path = FOLDER / "notes"
    while time.monotonic() < end:
        noted = path.read_text() if path.exists() else ""
        if all(f"{name} pid " in noted for name in names):
            return
        time.sleep(0.05)


def wait_for_signal(name, ending="stopped", seconds=0.0):
    def handle(_number, _frame):
        time.sleep(seconds)
        note(name, ending)
        sys.exit(0)

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    note(name, f"pid {os.getpid()}")
    while True:
        time.sleep(0.05)


def driver():
    """Ends in order."""
    wait_for_signal("driver")


def braking():
    """Ends in order, which takes a while."""
    wait_for_signal("braking", seconds=1.0)


def stubborn():
    """Ends only when it is killed, and so does its child."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note("child", f"pid {child.pid}")
    note("stubborn", f"pid {os.getpid()}")
    while True:
        time.sleep(0.05)


def frozen():
    """Stands still as soon as it handles signals."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    wait_for_signal("frozen")


def orphaning():
    """Ends in order, but leaves a child behind."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note("child", f"pid {child.pid}")
    wait_for_signal("orphaning")


def crashing():
    """Breaks a moment after its client is there."""
    print("about to break", flush=True)
    wait_for_pids("client")
    time.sleep(0.4)
    raise RuntimeError("the cable is loose")


def crashing_once():
    """Breaks at its first start, and runs when it is started again."""
    if not (FOLDER / "crashed").exists():
        (FOLDER / "crashed").touch()
        raise RuntimeError("no display")
    wait_for_signal("crashing_once")


def talking():
    """A real node."""
    from rclpy.node import Node
    from std_msgs.msg import String

    from sysid_ros.ros.node import spin_main

    class Talking(Node):
        def __init__(self):
            super().__init__("talking")
            self.declare_parameter("model", "")
            self._publisher = self.create_publisher(String, "words", 10)
            self._publisher.publish(String(data="hello"))
            note("talking", f"model {self.get_parameter('model').value}")
            note("talking", f"pid {os.getpid()}")

    spin_main(Talking, [sys.argv[0], *sys.argv[2:]])  # without the behaviour


def killed():
    """Ends without cleaning up, as where memory is short."""
    note("killed", f"pid {os.getpid()}")
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def client_done_later():
    """Ends well as soon as the other stands still, and a moment more."""
    wait_for_pids(*os.environ["STANDIN_AWAITED"].split())
    (frozen,) = (line.split()[-1] for line in (FOLDER / "notes").read_text().splitlines() if " pid " in line)
    while Path(f"/proc/{frozen}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.05)
    time.sleep(0.5)


def client_done():
    """A client that is done soon after all nodes are there, with a status of its own."""
    print("mass 1.8 kg", flush=True)
    wait_for_pids(*os.environ["STANDIN_AWAITED"].split())
    time.sleep(0.5)
    sys.exit(int(os.environ.get("STANDIN_STATUS", "0")))


def client_waiting():
    """A client that stops the arm when it is asked to stop."""
    wait_for_signal("client", "arm at rest", seconds=0.5)


def client_stuck():
    """A client that never ends by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note("client", f"pid {os.getpid()}")
    while True:
        time.sleep(0.05)


if __name__ == "__main__":
    globals()[os.environ.get("STANDIN_BEHAVIOUR") or sys.argv[1]]()
