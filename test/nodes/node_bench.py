"""What the tests of the nodes share: nodes that spin in threads, listeners, service calls, certified motions."""

import subprocess
import tempfile
import threading
import time
from dataclasses import replace

import numpy as np
import rclpy
from doubles import make_certificate
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Empty
from textbook import textbook_file

from sysid_msgs.msg import DriverStatus, SampleBatch
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ExecuteTrajectory
from sysid_ros.adapters.arm_driver.outputs import split_samples
from sysid_ros.core.certification.assumptions import box_hash, robot_hash
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop_types import LoopModel
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_from_message
from sysid_ros.ros.conversions.plans import certified_to_message, scene_to_message
from sysid_ros.ros.conversions.samples import samples_to_message
from sysid_ros.ros.other_nodes import call_service, wait_until

PATIENCE = 60.0
"""How long anything may take on a busy machine [s]."""
TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
    "shutdown": Transition.TRANSITION_ACTIVE_SHUTDOWN,
}


class Bench:
    """Nodes of this process, one thread each, in the default context.

    Args:
        arguments: What would follow ``--ros-args``.
    """

    def __init__(self, *arguments):
        # What these nodes are sent is written by hand; keys, proofs and the least scene have tests of their own.
        anybody = ("-p", "arm_driver:allow_unauthenticated:=true")
        nothing = ("-p", "arm_driver:has_ground:=false", "-p", "arm_driver:clearance:=0.0")
        anywhere = ("-p", f"identification:results_root:={tempfile.gettempdir()}")  # where pytest has its folders
        model = ("-p", f"model:={textbook_file()}")
        rclpy.init(
            args=["bench", "--ros-args", *model, *anybody, *nothing, *anywhere, *arguments],
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self._running, self._clients, self._deaths = [], {}, []
        self.node = self.run(Node("tester"))

    def run(self, node):
        """Spins a node until the end."""
        executor, stop = SingleThreadedExecutor(), threading.Event()
        executor.add_node(node)

        def spin():
            try:
                while not stop.is_set():
                    executor.spin_once(timeout_sec=0.05)
            except Exception as error:
                self._deaths.append(f"{node.get_name()}: {error!r}")
                raise

        thread = threading.Thread(target=spin, daemon=True)
        thread.start()
        self._running.append((node, executor, stop, thread))
        return node

    def run_active(self, node):
        """Spins a lifecycle node, and configures and activates it as everybody else must: with its own services."""
        self.run(node)
        assert self.change_state(node.get_name(), "configure") and self.change_state(node.get_name(), "activate")
        return node

    def close(self):
        """Ends all nodes, the last one first."""
        for node in [entry[0] for entry in reversed(self._running)]:
            self.end(node)
        rclpy.try_shutdown()
        assert not self._deaths, f"nodes that died in their threads: {self._deaths}"

    def end(self, node):
        """Ends a node as its executable does."""
        entry = next(entry for entry in self._running if entry[0] is node)
        self._running.remove(entry)
        _, executor, stop, thread = entry
        stop.set()
        thread.join(PATIENCE)
        if hasattr(node, "close"):
            node.close()
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()

    def listen(self, message_type, topic, profile):
        return Listener(self.node, message_type, topic, profile)

    def between_turns(self, node, action):
        """Does something to a node while its executor does not turn; returns the result."""
        executor = next(executor for one, executor, *_ in self._running if one is node)
        task = executor.create_task(action)
        assert wait_until(task.done, PATIENCE)
        return task.result()

    def action_client(self, action_type, name):
        """A client of an action. It enters itself in its node before it is complete, and executors die of that."""
        return self.between_turns(self.node, lambda: ActionClient(self.node, action_type, name))

    def kill_controller(self, emulator):
        """Kills the emulated controller of an ``ArmEmulatorNode``; returns what starts it again."""
        # The timer would end the thread of its node, as it ends the process outside of tests.
        self.between_turns(emulator, emulator._timer.cancel)
        emulator._process.kill()
        emulator._process.wait()

        def start_again():
            command = emulator._process.args
            emulator._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

        return start_again

    def call(self, service_type, name, request=None, seconds=PATIENCE):
        key = (service_type, name)
        if key not in self._clients:
            self._clients[key] = self.node.create_client(service_type, name)
        request = service_type.Request() if request is None else request
        return call_service(self.node, self._clients[key], request, seconds)

    def set_parameter(self, node_name, **values):
        """Sets parameters as ``ros2 param set`` does; returns the reason of the first refusal, empty for none."""
        parameters = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        results = self.call(
            SetParameters, f"{node_name}/set_parameters", SetParameters.Request(parameters=parameters)
        ).results
        return next((result.reason or "refused" for result in results if not result.successful), "")

    def change_state(self, node_name, transition):
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[transition]))
        return self.call(ChangeState, f"{node_name}/change_state", request).success


def batches_of(samples, epochs, robot, size=20):
    """The messages of samples of the loop, smaller ones than a driver sends."""
    names = ("stamps", "sequence", "q", "v", "tau", "q_d", "v_d", "a_d", "tau_command", "valid", "mode")
    return [
        samples_to_message(
            replace(part, **{name: getattr(part, name)[first : first + size] for name in names}),
            robot.joint_names,
            robot.base_frame,
        )
        for part in split_samples(samples, epochs)
        for first in range(0, part.stamps.size, size)
    ]


class Trusting:
    """Proves nothing: certificates of tests say whatever a test wants.

    Args:
        model: The robot.
    """

    def __init__(self, model):
        pass

    def start(self):
        pass

    def stop(self):
        pass

    def prove(self, trajectory, certificate, own):
        return 0.0


class Listener:
    """Everything heard on a topic."""

    def __init__(self, node, message_type, topic, profile):
        self.messages = []
        node.create_subscription(message_type, topic, self.messages.append, profile)

    @property
    def latest(self):
        return self.messages[-1] if self.messages else None

    def wait(self, condition=lambda message: True, seconds=PATIENCE, after=0):
        """The first message from number ``after`` on that fulfils the condition."""

        def found():
            return next((message for message in self.messages[after:] if condition(message)), None)

        if not wait_until(lambda: found() is not None, seconds):
            raise TimeoutError(f"not heard within {seconds} s; messages: {len(self.messages)}")
        return found()


class DriverProbe:
    """Commands an arm driver as ``identification`` does, with signs of life as long as ``is_alive``."""

    def __init__(self, bench, robot, prefix="", scene=None):
        """``scene`` is published as the safe planner would; None where there is a safe planner."""
        self._bench, self._robot, self._prefix = bench, robot, prefix
        self.status = bench.listen(DriverStatus, f"{prefix}arm_driver/status", qos.STATUS)
        self.samples = bench.listen(SampleBatch, f"{prefix}arm_driver/samples", qos.SAMPLES)
        self.is_alive = True
        self._heartbeat = bench.node.create_publisher(Empty, f"{prefix}arm_driver/heartbeat", 1)
        bench.node.create_timer(0.1, self._beat)
        self._scenes = None
        self._shown = None
        bench.node.create_timer(1.0, self._repeat)
        if scene is not None:
            self._scenes = bench.node.create_publisher(SceneMessage, f"{prefix}safe_planner/scene", qos.LATCHED)
            self.show(scene)

    def _beat(self):
        if self.is_alive:
            self._heartbeat.publish(Empty())

    def _repeat(self):
        """Says again what was shown, as the safe planner does: a scene nobody speaks of is soon not known any more."""
        if self._shown is not None and self.is_alive:
            self._scenes.publish(self._shown)

    def show(self, scene, fault=""):
        """Publishes a scene and waits until the driver knows it."""
        message = scene_to_message(scene)
        message.is_known, message.fault = not fault, fault
        before = len(self.status.messages)
        self._shown = message
        self._scenes.publish(message)
        wanted = "" if fault else scene.hash()
        not_idle = DriverStatus.MODE_IDLE
        self.status.wait(lambda status: status.scene_hash == wanted and status.mode != not_idle, after=before)

    def repeat(self, scene):
        """Says again what is around the arm, as the safe planner does."""
        self._scenes.publish(scene_to_message(scene))

    def wait_for(self, mode, seconds=PATIENCE, after=None, **fields):
        """The status that has this mode and these fields and is not taking over, from now or number ``after`` on."""

        def is_wanted(status):
            has_fields = all(getattr(status, name) == value for name, value in fields.items())
            return status.mode == mode and not status.is_taking_over and has_fields

        return self.status.wait(is_wanted, seconds, after=len(self.status.messages) if after is None else after)

    def move(self, distance=0.2, duration=3.0):
        """A motion of all joints from where the arm is held."""
        start = np.array(self.wait_for(DriverStatus.MODE_HOLD).reference_position)
        zero = np.zeros(start.size)
        signs = np.where(start > self._robot.home, -1.0, 1.0)  # to and fro about home
        return BezierTrajectory(start, zero, zero, start + distance * signs, duration)

    def certificate(self, trajectory, **changes):
        """A certificate that says what the driver wants to read; nothing was checked."""
        # Valid in the time of the arm, which passes more slowly on a busy machine.
        now = 1e-9 * stamp_from_message(self.status.latest.header.stamp)
        fields = {
            "box_hash": box_hash(self._robot.theta_box, self._robot.payload_prior.box),
            "scene_hash": self.status.latest.scene_hash,
            "robot_hash": robot_hash(self._robot),
            "nominal_payload": LoopModel.nominal(self._robot).payload,
            "issued_at": now - 10.0,
            "expires_at": now + 60.0,
        }
        return make_certificate(trajectory, **{**fields, **changes})

    def stay(self):
        """A motion that goes nowhere."""
        q, zero = np.array(self.status.latest.reference_position), np.zeros(self._robot.n)
        return BezierTrajectory(q, zero, zero, q, 1.0)

    def execute(self, trajectory, certificate=None, joint_names=None, **changes):
        plan = certified_to_message(
            trajectory,
            self.certificate(trajectory, **changes) if certificate is None else certificate,
            joint_names or self._robot.joint_names,
            time.time_ns(),
        )
        return self.send(plan)

    def send(self, plan):
        return self._bench.call(
            ExecuteTrajectory, f"{self._prefix}arm_driver/execute", ExecuteTrajectory.Request(plan=plan)
        )

    def start(self, velocity_bound=1.2, **motion):
        """Starts a motion and waits until it shows."""
        trajectory = self.move(**motion)
        before = len(self.status.messages)
        response = self.execute(trajectory, velocity_bound=np.broadcast_to(velocity_bound, trajectory.n))
        assert response.accepted, response.message
        return self.wait_for(DriverStatus.MODE_TRACK, after=before)

    def wait_for_rest(self, speed=0.01):
        """The status that holds after a motion, once a sample after it says that no joint is faster [rad/s]."""
        status = self.wait_for(DriverStatus.MODE_HOLD)

        def is_at_rest(batch):
            moved = np.abs(batch.velocities[: self._robot.n]).max()
            return batch.modes[0] == DriverStatus.MODE_HOLD and moved < speed

        self.samples.wait(is_at_rest, after=len(self.samples.messages))
        return status
