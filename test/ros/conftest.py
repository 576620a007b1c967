"""A node that a thread spins, for tests that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@pytest.fixture(scope="session")
def spinning() -> Callable[..., AbstractContextManager]:
    """Gives a context of ROS and a node in it, by the node's arguments, for as long as the block lasts."""

    @contextmanager
    def spin(*arguments, **options) -> Iterator:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        rclpy.init()
        node, executor, stop = Node(*arguments, **options), SingleThreadedExecutor(), threading.Event()
        executor.add_node(node)

        def run():
            while not stop.is_set():
                executor.spin_once(timeout_sec=0.05)

        thread = threading.Thread(target=run)
        thread.start()
        yield node
        stop.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
        rclpy.shutdown()

    return spin
