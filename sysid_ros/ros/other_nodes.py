"""Other nodes: which are alive, and waiting for them with errors that name missing and present ones.

A node is alive by the liveliness of the middleware, whose own thread asserts it, however busy Python is: one that is
killed, or stopped by a signal, falls silent at once; one that only computes for long does not. To wait is for worker
threads (see :func:`sysid_ros.ros.node.run_in_thread`): the executor must be spinning elsewhere.
"""

from __future__ import annotations

import math
import select
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.client import Client
from rclpy.event_handler import QoSLivelinessChangedInfo, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.task import Future
from std_msgs.msg import Empty
from unique_identifier_msgs.msg import UUID

from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.common.machine import describe_load
from sysid_ros.ros import qos
from sysid_ros.ros.qos import describe

TOPIC = "alive"
_LOOK_SECONDS = 0.2
"""Period at which the clock of the machine is checked [s]."""
_SET_BACK = 0.05
"""Smaller steps back of the clock do no harm: waits only last that much longer [s]."""
GRACE = 0.5
"""How long a node may be missing before it counts as gone [s]: a successor of the same name may be starting."""


def announce(node: Node) -> Publisher[Empty]:
    """Let others know that a node is alive, for as long as it is, and return the publisher that does.

    One latched message is enough: every node that discovers this one receives it at once, before any assertion.
    """
    publisher: Publisher[Empty] = node.create_publisher(Empty, f"~/{TOPIC}", qos.ALIVE)
    publisher.publish(Empty())
    return publisher


class Waker:
    """Wake a node up where a signal has come, or the clock of its machine was set back.

    Python runs signal handlers only between two waits of the executor, so the executor would have to poll for them
    all the time.

    Fast DDS as wheels bring it (made for a C library older than 2.30) waits for steady times by the wall clock: a wait
    that had begun before goes on for as long as the clock was set back, and with it the executor and the assertion that
    the node is alive. Any message to send wakes its threads; from then on their waits are right again.

    Args:
        node: The node; made in the main thread.
        alive: Its publisher of :func:`announce`.
    """

    def __init__(self, node: Node, alive: Publisher[Empty]):
        self._node, self._alive = node, alive
        # Ends a wait of the executor, also while a callback of another group awaits something.
        self._turn = node.create_guard_condition(lambda: None, callback_group=ReentrantCallbackGroup())
        self._signals, self._ours = socket.socketpair()
        self._ours.setblocking(False)
        self._before = signal.set_wakeup_fd(self._ours.fileno(), warn_on_full_buffer=False)
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="waker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._is_over = True
        signal.set_wakeup_fd(self._before)
        self._ours.close()
        self._thread.join()
        self._signals.close()

    def _watch(self) -> None:
        ahead = time.time() - time.monotonic()
        while not self._is_over:
            if select.select([self._signals], [], [], _LOOK_SECONDS)[0] and self._signals.recv(64):
                self._turn.trigger()
            now = time.time() - time.monotonic()
            if ahead - now > _SET_BACK:
                self._alive.publish(Empty())
                self._turn.trigger()
                text = (
                    f"the clock of this machine was set back by {ahead - now:.1f} s; stamps of messages go back with it"
                )
                self._node.get_logger().warning(text)
            ahead = now


class Peers:
    """Watch over the life of other nodes.

    Args:
        node: The node that watches; its executor must spin.
        names: Names of the others, relative to its namespace.
    """

    def __init__(self, node: Node, names: Sequence[str]):
        self._gone_since: dict[str, float] = dict.fromkeys(names, math.inf)
        for name in names:
            events = SubscriptionEventCallbacks(liveliness=self._note_of(name))
            node.create_subscription(Empty, f"{name}/{TOPIC}", lambda _: None, qos.ALIVE, event_callbacks=events)

    def is_gone(self, name: str) -> bool:
        """Return whether a node was there and is not any more; false where it never said that it is alive."""
        return time.monotonic() - self._gone_since.get(name, math.inf) > GRACE

    def find_gone(self, *names: str, since: float = -math.inf) -> str | None:
        """Return a sentence about a node that has gone since a steady time [s]; None if none has.

        Nodes that went before may be about to come back.
        """
        name = next((name for name in names if self.is_gone(name) and self._gone_since[name] >= since), None)
        if name is None:
            return None
        seconds = time.monotonic() - self._gone_since[name] + qos.ALIVE_LEASE
        return (
            f"the node {name} has gone: no heartbeat for up to {seconds:.1f} s; it was killed, has ended or "
            "stands still. See its log"
        )

    def _note_of(self, name: str) -> Callable[[QoSLivelinessChangedInfo], None]:
        def note(event: QoSLivelinessChangedInfo) -> None:
            is_alive = event.alive_count > 0
            if is_alive:
                self._gone_since[name] = math.inf
            elif math.isinf(self._gone_since[name]):
                self._gone_since[name] = time.monotonic()

        return note


_POLL_SECONDS = 0.02
_LOST_SECONDS = 3.0
"""A service without a server for this long will not answer any more [s]."""
_PROBE_SECONDS = 1.0
"""Time between two probes of an action server [s]."""


class ServiceFailed(SysidError):
    """A service was asked, and did not do it or did not answer.

    Args:
        name: Name of the service.
        fault: What went wrong, as in 'did not answer within 2 s'.
    """

    def __init__(self, name: str, fault: str):
        super().__init__(f"the service {name} {fault}; see the log of its node")


def nobody_offers(name: str, seconds: float, nodes: Sequence[str]) -> SysidError:
    """Return the error of a service without a server after some seconds, with the nodes seen meanwhile."""
    server = name.rpartition("/")[0]
    advice = (
        "Start the node, or check namespace and ROS_DOMAIN_ID. A node that a signal has stopped (Ctrl-Z, SIGSTOP) "
        "before the others have found it is not seen either"
    )
    if server in nodes:
        advice = f"{server} is there and does not offer it: it still starts, is not active, or stands still"
    seen = ", ".join(nodes) or "none"
    return SysidError(f"no server offers the service {name} (waited {seconds:g} s); nodes seen: {seen}. {advice}")


def no_messages(node: Node, topic: str, what: str, seconds: float, profile: QoSProfile) -> SysidError:
    """Make the error for a topic without the expected messages (``what``) for some seconds, with its publishers."""
    full_name = node.resolve_topic_name(topic)
    infos = node.get_publishers_info_by_topic(full_name)
    # Discovery does not carry the depth.
    publishers = [
        f"{_full_name(info.node_namespace, info.node_name)} "
        f"({info.qos_profile.reliability.name.lower().replace('_', ' ')}, {info.qos_profile.durability.name.lower()})"
        for info in infos
    ]
    if not publishers:
        advice = "is its node running?"
    elif all(qos_check_compatible(info.qos_profile, profile)[0] == QoSCompatibility.ERROR for info in infos):
        advice = "the QoS is incompatible"
    else:
        advice = f"the QoS fits; is the node active (see its log), or too slow? {describe_load()}"
    return SysidError(
        f"no {what} on topic {full_name} within {seconds:g} s with QoS {describe(profile)}; publishers seen: "
        f"{'; '.join(publishers) or 'none'}: {advice}"
    )


def wait_until(condition: Callable[[], bool], seconds: float, is_cancelled: Callable[[], bool] = lambda: False) -> bool:
    """Wait until a condition holds; return false if it does not within the time [s].

    Raises:
        Cancelled: ``is_cancelled()`` became true.
    """
    end = time.monotonic() + seconds
    while not condition():
        if is_cancelled():
            raise Cancelled("cancelled while waiting")
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def wait_for_service(
    node: Node, client: Client, seconds: float, is_cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Wait for some seconds until a server offers a service.

    Raises:
        SysidError: There is none.
        Cancelled: ``is_cancelled()`` became true.
    """
    if not wait_until(client.service_is_ready, seconds, is_cancelled):
        nodes = [_full_name(namespace, name) for name, namespace in node.get_node_names_and_namespaces()]
        raise nobody_offers(client.service_name, seconds, sorted(nodes))


def call_service(
    node: Node,
    client: Client,
    request: Any,
    seconds: float,
    is_cancelled: Callable[[], bool] = lambda: False,
    repeat_after: float = math.inf,
) -> Any:
    """Asks a service and waits for its answer.

    Soon after a node has started, a server may not know yet where to send its answer; the middleware then drops it.

    ``seconds`` count for the service, and again for its answer; without one for ``repeat_after`` [s] the request is
    repeated, which only idempotent services allow.

    Raises:
        SysidError: No server offers the service.
        ServiceFailed: It did not answer in time, or has gone meanwhile.
        Cancelled: ``is_cancelled()`` became true.
    """
    wait_for_service(node, client, seconds, is_cancelled)
    seen = time.monotonic()

    def is_lost() -> bool:
        nonlocal seen
        now = time.monotonic()
        seen = now if client.service_is_ready() else seen
        return now - seen > _LOST_SECONDS

    answered, futures, end = threading.Event(), [], time.monotonic() + seconds
    try:
        while not answered.is_set():
            if time.monotonic() >= end:
                raise ServiceFailed(client.service_name, f"did not answer within {seconds:g} s")
            future: Future = client.call_async(request)
            future.add_done_callback(lambda _: answered.set())
            futures.append(future)
            left = min(repeat_after, end - time.monotonic())
            if wait_until(lambda: answered.is_set() or is_lost(), left, is_cancelled) and not answered.is_set():
                raise ServiceFailed(client.service_name, "has gone before it answered")
    finally:
        for future in futures:
            if not future.done():
                client.remove_pending_request(future)
    return next(future for future in futures if future.done()).result()


class ServerProbe:
    """Find out whether the goals of an action client arrive, and the answers to them.

    ``server_is_ready`` says only that this side has found the server. The server may find this client later, and until
    then the middleware drops its answers: the goal runs, and its answer is lost. So request the cancellation of a
    goal that does not exist, which does no harm, until an answer comes. A server that answers this can answer goals:
    endpoints are announced in order, and a client makes that for the answers to goals first.

    Args:
        client: The action client, whose node is spun elsewhere.
    """

    def __init__(self, client: ActionClient[Any, Any, Any]):
        self._client = client
        self._answers: list[Future[Any]] = []
        self._asked = -math.inf

    def is_answered(self) -> bool:
        """Return whether the server has answered; ask it, now and again, while it has not."""
        if any(answer.done() for answer in self._answers):
            return True
        now = time.monotonic()
        if self._client.server_is_ready() and now - self._asked >= _PROBE_SECONDS:
            self._asked = now
            nothing = UUID(uuid=list(uuid.uuid4().bytes))
            response = self._client._action_type.Impl.SendGoalService.Response()
            self._answers.append(ClientGoalHandle(self._client, nothing, response).cancel_goal_async())
        return False


def _full_name(namespace: str, name: str) -> str:
    return f"{namespace.rstrip('/')}/{name}"
