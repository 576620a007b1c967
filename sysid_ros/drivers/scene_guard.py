"""What a driver knows of the scene: certificates must be about it, and a motion ends when it changes."""

from __future__ import annotations

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.collision.scene import Scene
from sysid_ros.drivers.loop_types import LoopRefusal

_UNKNOWN = "no scene has been received yet; the safe planner publishes it"
SCENE_PERIOD = 0.5
"""How often a safe planner says again what is around the arm [s]."""
SOURCE_MEMORY = 2.0
"""A source of scenes that has published nothing for longer than this has gone [s]."""


class SceneGuard:
    """Compares certificates with the present scene, and the present scene with that of the motion.

    While two sources say what is around the arm, nobody knows it: certificates of one would be judged by the scene of
    the other.
    """

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._fault: str | None = _UNKNOWN
        self._certified: dict[str, Scene] = {}
        self._sources: dict[str, float] = {}  # by name: when they spoke last [s]

    @property
    def fault(self) -> str | None:
        """Why the scene is not known; None if it is."""
        return self._fault

    @property
    def hash(self) -> str | None:
        """Hash of the present scene; None where it is not known."""
        return None if self._scene is None else self._scene.hash()

    def admit(self, certificate: Certificate) -> None:
        """Check that a certificate is about the present scene.

        Raises:
            LoopRefusal: It is about another scene, or the scene is not known.
        """
        if self._scene is None:
            raise LoopRefusal("trajectory", f"the scene is not known: {self._fault}")
        present = self._scene.hash()
        if certificate.scene_hash != present:
            raise LoopRefusal(
                "trajectory",
                f"it was certified for scene {certificate.scene_hash[:12] or 'none'}, but the present one is "
                f"{present[:12]}; plan it again",
            )
        # The motion before may still be on its way.
        self._certified = dict([*self._certified.items(), (present, self._scene)][-2:])

    def find_conflict(self, source: str, now: float) -> str | None:
        """Note that a source has spoken, and return why what it says does not count; None if it does.

        Args:
            source: Name of the source.
            now: A steady time [s].
        """
        self._sources[source] = now
        self._sources = {name: spoke for name, spoke in self._sources.items() if now - spoke <= SOURCE_MEMORY}
        if len(self._sources) == 1:
            return None
        names = ", ".join(sorted(name or "one without a name" for name in self._sources))
        return f"{len(self._sources)} safe planners publish a scene ({names}); stop all but one"

    def update(self, scene: Scene) -> str | None:
        """Take the present scene and return why what moves now must stop; None if it may go on."""
        self._scene, self._fault = scene, None
        if all(scene.is_covered_by(certified) for certified in self._certified.values()):
            return None
        return "the scene has changed since the motion was certified"

    def invalidate(self, fault: str) -> str:
        """Note why the scene is not known any more, and return why what moves now must stop."""
        self._scene, self._fault = None, fault
        return f"the scene is no longer known: {fault}"
