"""The parameters of ``safe_planner``, and the scene they name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.yaml_files import UnreadableYaml, read_yaml
from sysid_ros.core.model.robot_files import config_directories
from sysid_ros.core.planning.request import RecedingSettings
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FrameParameters, SceneParameters


@dataclass(frozen=True)
class SafePlannerParameters(FrameParameters, SceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, read_only=True)
    """Certify as soon as the node runs."""
    scene: str = parameter("", read_only=True)
    """Obstacles: a name from config/scenes or the path of a YAML file; empty for none."""
    clearance: float = parameter(0.01, "m", lower=0.0, upper=1.0, read_only=True)
    """Distance to keep between spheres, to the ground and to obstacles; a scene may ask for more."""
    obstacles_timeout: float = parameter(0.0, "s", lower=0.0, upper=3600.0, read_only=True)
    """Longest time without a message on obstacles, from the start on; after it nothing is certified, and what moves
    brakes. 0: none need come, and obstacles stay until they are deleted."""
    verifier: VerifierSettings = parameters_from(VerifierSettings, read_only=True)
    planner: RecedingSettings = parameters_from(
        RecedingSettings,
        # Wide margins, so that a later plan with a less certain payload still finds room.
        defaults={"position_margin": 0.05, "distance_margin": 0.03},
        computed=("torque_fraction", "brake_time"),
        read_only=True,
    )

    def fixed_scene(self) -> Scene:
        """Return what is there whatever the topic says; a scene that names a ground knows better than the parameter.

        Raises:
            ParameterOutOfRange: The scene cannot be used.
        """
        scene = load_scene(self.scene)
        ground = self.ground if scene.ground_height is None else scene.ground_height
        return replace(scene, ground_height=ground, clearance=max(scene.clearance, self.clearance))

    @property
    def search(self) -> RecedingSettings:
        """Settings of the search, which keeps a little more of the torque limits than the proof asks for.

        Raises:
            ParameterOutOfRange: Nothing is left.
        """
        fraction = self.planner.torque_fraction * self.verifier.torque_fraction
        return replace(self.planner, torque_fraction=fraction, brake_time=self.verifier.brake_times[-1])

    def check(self) -> None:
        """Refuse what leaves the search no torque or no stop."""
        super().check()
        if not self.verifier.brake_times:
            raise ParameterOutOfRange("parameter 'brake_times' [s]", (), "at least one time")
        _ = self.search


def load_scene(name: str) -> Scene:
    """Load a scene of ``config/scenes`` by name, or a YAML file by path; empty for nothing at all.

    Raises:
        ParameterOutOfRange: There is none, or it cannot be used.
    """
    if not name:
        return Scene()
    files = {file.stem: file for folder in config_directories() for file in sorted((folder / "scenes").glob("*.yaml"))}
    path = files.get(name, Path(name).expanduser())
    if not path.is_file():
        known = sorted(files)
        raise ParameterOutOfRange("scene", name, f"one of {', '.join(known)}, or the path of a YAML file")
    try:
        data = read_yaml(path)
    except UnreadableYaml as error:
        raise ParameterOutOfRange("scene", str(path), f"a readable YAML file ({error.reason})") from error
    if not isinstance(data, dict):
        raise ParameterOutOfRange("scene", str(path), "a file with obstacles, ground_height, ...")
    return Scene.from_dict(data)
