"""The whole suite as processes, as the runner starts it, and goals sent to it."""

import os
import signal
import tempfile
import time
from pathlib import Path

from node_bench import PATIENCE
from textbook import textbook_file

from sysid_msgs.action import Identify
from sysid_ros.cli.suite import ProcessGroup, Suite, node_command, stop_groups, suite_environment, wait_for_end
from sysid_ros.processes import resolve
from sysid_ros.ros.other_nodes import ServerProbe, wait_until


class SuiteOfProcesses:
    """Starts the nodes as the runner does, but each can be killed and started again.

    Args:
        folder: For logs and parameters.
        parameters: Parameters by executable.
        namespace: Namespace of all nodes.
    """

    def __init__(self, folder: Path, parameters: dict, namespace=""):
        started = resolve({"model": textbook_file(), "robot_name": namespace, "results_root": tempfile.gettempdir()})
        self._environment = suite_environment(folder, int(os.environ["ROS_DOMAIN_ID"]))
        self._folder, self._names = folder, [one.process.executable for one in started]
        folder.mkdir(parents=True, exist_ok=True)
        suite = Suite(started, None, folder, self._environment, parameters)
        self._environments = {one.process.executable: suite.environment_of(one) for one in started}
        self._commands = {one.process.executable: node_command(one, suite._write_parameters(one)) for one in started}
        self.groups: dict[str, ProcessGroup] = {}
        for name in self._names:
            self.start(name)

    def start(self, name):
        log = self._folder / f"{name}.log"
        self.groups[name] = ProcessGroup(name, self._commands[name], self._environments[name], log)

    def restart(self, name, ready):
        """Starts a killed node again and waits until it has said that it is ready and the others have found it."""
        before = self.log(name).count(ready)  # the log goes on
        self.start(name)
        assert wait_until(lambda: self.log(name).count(ready) > before, PATIENCE)
        time.sleep(1.0)

    def kill(self, name):
        """Ends a node without letting it clean up; what it has started is on its own."""
        os.kill(self.groups[name].pid, signal.SIGKILL)

    def log(self, name):
        return (self._folder / f"{name}.log").read_text()

    def stop(self):
        groups = list(self.groups.values())
        stop_groups(groups, interrupt_seconds=20.0)
        assert wait_for_end(groups, 1.0)


class GoalProbe:
    """Sends goals to ``identification``."""

    def __init__(self, bench, prefix=""):
        self._bench, self._sent = bench, []
        self._clients = {
            name: bench.action_client(Identify, f"{prefix}identification/{name}")
            for name in ("identify", "tare", "weigh")
        }
        for client in self._clients.values():
            assert client.wait_for_server(2 * PATIENCE)
            assert wait_until(ServerProbe(client).is_answered, PATIENCE)

    def send(self, action="identify", **fields):
        goal = Goal(self._bench, self._clients[action], Identify.Goal(**fields))
        self._sent.append(goal)
        return goal

    def end(self, is_answered=True):
        """Cancels what still runs, and waits for its end where there is anybody to answer."""
        running, self._sent = [goal for goal in self._sent if not goal.is_done], []
        for goal in running if is_answered else ():
            goal.cancel()
            goal.wait()


def send_goal(bench, client, goal, on_feedback=None):
    """Sends a goal; returns its handle. The client exchanges the future that waits for the answer while it sends."""
    sent = bench.between_turns(bench.node, lambda: client.send_goal_async(goal, feedback_callback=on_feedback))
    assert wait_until(sent.done, PATIENCE)
    return sent.result()


class Goal:
    """One goal that was sent."""

    def __init__(self, bench, client, goal):
        self.feedback = []
        self._handle = send_goal(bench, client, goal, lambda message: self.feedback.append(message.feedback))
        self._result = self._handle.get_result_async()

    @property
    def phases(self):
        return [feedback.phase for feedback in self.feedback]

    @property
    def is_done(self):
        return self._result.done()

    def wait_for_phase(self, phase):
        assert wait_until(lambda: phase in self.phases or self.is_done, 4 * PATIENCE), f"last: {self.feedback[-1:]}"
        assert phase in self.phases, self.wait().error_text

    def cancel(self):
        self._handle.cancel_goal_async()

    def wait(self, seconds=8 * PATIENCE):
        assert wait_until(self._result.done, seconds), f"no result; last: {self.feedback[-1:]}"
        return self._result.result().result
