"""The scene as the driver receives it: certificates must be about it, and a motion ends when it changes."""

from __future__ import annotations

import time

from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers import admission
from sysid_ros.ros.conversions import scene_from_message


class SceneGuard(admission.SceneGuard):
    """The guard of the driver, fed by messages.

    Args:
        n: Number of joints; what is carried hangs on the last one.
    """

    def __init__(self, n: int):
        super().__init__()
        self._n = n

    def on_scene(self, message: SceneMessage) -> str | None:
        """Take a scene and return why what moves now must stop; None if it may go on."""
        conflict = self.find_conflict(message.source, time.monotonic())
        if conflict is not None:
            return self.invalidate(conflict)
        try:
            scene = scene_from_message(message, self._n)
        except SysidError as error:
            return self.invalidate(str(error))
        return self.update(scene) if message.is_known else self.invalidate(message.fault)
