"""The scene as the driver hears it: certificates must be about it, and a motion ends when it changes."""

from __future__ import annotations

import time

from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers import scene_guard
from sysid_ros.ros.conversions import scene_from_message


class SceneGuard(scene_guard.SceneGuard):
    """The guard of the driver, fed by messages.

    Args:
        n: Number of joints; what is carried hangs on the last one.
    """

    def __init__(self, n: int):
        super().__init__()
        self._n = n

    def hear(self, message: SceneMessage) -> str:
        """Takes a scene and returns why what moves now must stop; empty if it may go on."""
        contradiction = self.contradict(message.source, time.monotonic())
        if contradiction:
            return self.lose(contradiction)
        try:
            scene = scene_from_message(message, self._n)
        except SysidError as error:
            return self.lose(str(error))
        return self.lose(message.fault) if message.fault else self.see(scene)
