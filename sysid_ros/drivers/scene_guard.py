"""What a driver knows of the surroundings: certificates must be about them, and a motion ends when they change."""

from __future__ import annotations

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.collision.scene import Scene
from sysid_ros.drivers.loop_types import LoopRefusal

_UNKNOWN = "no scene has been heard yet; the safe planner publishes it"
SCENE_PERIOD = 0.5
"""How often a safe planner says again what is around the arm [s]."""
SOURCE_MEMORY = 2.0
"""A source of scenes that was silent for longer than this has gone [s]."""


class SceneGuard:
    """Compares certificates with the present scene, and the present scene with that of the motion.

    While two sources say what is around the arm, nobody knows it: certificates of one would be judged by the scene of
    the other.
    """

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._fault = _UNKNOWN
        self._hash = ""
        self._certified: dict[str, Scene] = {}
        self._heard: dict[str, float] = {}  # sources by name: when they were heard last [s]

    @property
    def fault(self) -> str:
        """Why the scene is not known; empty if it is."""
        return self._fault

    @property
    def hash(self) -> str:
        """Hash of the present scene; empty where it is not known."""
        return self._hash

    def admit(self, certificate: Certificate | None, accepts_sampled: bool) -> None:
        """Checks that a certificate is about the present scene.

        Args:
            certificate: The certificate; none is somebody else's to refuse.
            accepts_sampled: Whether a certificate that was only checked at samples, and states no scene, will do.

        Raises:
            LoopRefusal: It is about another scene, or the scene is not known.
        """
        if certificate is None:
            return
        if certificate.method == "sampled":
            if accepts_sampled and not certificate.scene_hash:
                return
            if not accepts_sampled:
                raise LoopRefusal(
                    "trajectory",
                    "its certificate was only checked at samples; a proof is needed (parameter accept_sampled)",
                )
        if self._scene is None:
            raise LoopRefusal("trajectory", f"the surroundings are not known: {self._fault}")
        if certificate.scene_hash != self._hash:
            raise LoopRefusal(
                "trajectory",
                f"it was certified for scene {certificate.scene_hash[:12] or 'none'}, but the present one is "
                f"{self._hash[:12]}; plan it again",
            )
        # The motion before may still be on its way.
        self._certified = dict([*self._certified.items(), (self._hash, self._scene)][-2:])

    def contradict(self, source: str, now: float) -> str:
        """Notes that a source has spoken, and returns why what it says does not count; empty if it does.

        Args:
            source: Name of the source.
            now: A steady time [s].
        """
        self._heard[source] = now
        self._heard = {name: heard for name, heard in self._heard.items() if now - heard <= SOURCE_MEMORY}
        if len(self._heard) == 1:
            return ""
        names = ", ".join(sorted(name or "one without a name" for name in self._heard))
        return f"{len(self._heard)} safe planners say what is around the arm ({names}); stop all but one"

    def see(self, scene: Scene) -> str:
        """Takes a scene and returns why what moves now must stop; empty if it may go on."""
        self._scene, self._hash, self._fault = scene, scene.hash(), ""
        if all(scene.is_covered_by(certified) for certified in self._certified.values()):
            return ""
        return "the surroundings have changed since the motion was certified"

    def lose(self, fault: str) -> str:
        """Notes why the scene is not known any more, and returns why what moves now must stop."""
        self._scene, self._hash, self._fault = None, "", fault
        return f"the surroundings are no longer known: {fault}"
