"""Installs sysid_ros with pip or colcon. Name, version and texts come from package.xml, which ROS reads."""

import os
import platform
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

PACKAGE = ElementTree.parse(Path(__file__).with_name("package.xml")).getroot()
NAME = PACKAGE.findtext("name")
MAINTAINER = PACKAGE.find("maintainer")

# Executables of ROS 2, named after the last part of their module: `ros2 run sysid_ros monitor`. Without a sourced ROS
# there is no `ros2 run`, and such names have no place in a user's PATH: `python -m sysid_ros.nodes.monitor` runs them.
NODES = (
    "nodes.arm_driver",
    "emulators.nodes.arm_emulator",
    "nodes.calibrate_client",
    "nodes.estimator",
    "nodes.excitation_planner",
    "space.nodes.free_flyer_client",
    "space.nodes.free_flyer_driver",
    "space.nodes.free_flyer_identification",
    "nodes.identifiability",
    "nodes.identification",
    "nodes.identify_client",
    "nodes.monitor",
    "nodes.safe_planner",
)
HAS_ROS = "AMENT_PREFIX_PATH" in os.environ
EXECUTABLES = [f"{name.rpartition('.')[2]} = sysid_ros.{name}:main" for name in NODES] if HAS_ROS else []

# The kernel is compiled for several kinds of machines. The first module runs on all of them; those in the folder, which
# is no package, must not be found by what imports all modules of one.
KERNEL = Path("sysid_ros/core/kernel")
VARIANTS: dict[str, list[str]] = {"portable": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    VARIANTS["variants/avx2"] = ["-mavx2", "-mfma"]
    VARIANTS["variants/avx512"] = ["-mavx512f", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"]


class BuildKernel(build_ext):
    """Compiles the kernel; says what is missing where that fails."""

    def build_extensions(self):
        try:
            import pybind11

            headers = [pybind11.get_include()]
        except ImportError:  # of the system: pybind11-dev
            headers = []
        for extension in self.extensions:
            extension.include_dirs += headers
        self.parallel = self.parallel or os.cpu_count()
        try:
            super().build_extensions()
        except Exception as error:
            raise SystemExit(
                f"error: the kernel of sysid_ros could not be compiled ({error}). It needs a C++17 compiler, Python's "
                "headers and pybind11; on Debian and Ubuntu: apt install g++ python3-dev pybind11-dev"
            ) from error


def kernel_modules() -> list[Extension]:
    """Describe the modules of the kernel; those for some machines only may fail."""
    common = ["-O3", "-std=c++17", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-g0"]
    return [
        Extension(
            ".".join([*KERNEL.parts, *Path(name).parts[:-1], f"_{Path(name).name}"]),
            sources=[str(KERNEL / f"{name}.cpp")],
            depends=sorted(str(path) for path in KERNEL.glob("*.hpp")),
            extra_compile_args=common + flags,
            language="c++",
            optional=name != "portable",
        )
        for name, flags in VARIANTS.items()
    ]


CASADI, MATPLOTLIB = "casadi>=3.6", "matplotlib>=3.6"


def shared(folder: str, pattern: str) -> tuple[str, list[str]]:
    """Files of a folder, to be installed in the same folder of share/sysid_ros."""
    return f"share/{NAME}/{folder}", sorted(str(path) for path in Path(folder).glob(pattern) if path.is_file())


setup(
    name=NAME,
    version=PACKAGE.findtext("version"),
    description=PACKAGE.findtext("description"),
    maintainer=MAINTAINER.text,
    maintainer_email=MAINTAINER.get("email"),
    license=PACKAGE.findtext("license"),
    python_requires=">=3.10",
    ext_modules=kernel_modules(),
    cmdclass={"build_ext": BuildKernel},
    packages=find_packages(include=["sysid_ros", "sysid_ros.*"]),
    package_data={
        "sysid_ros.core.kernel": ["*.hpp", "*.cpp", "variants/*.cpp"],
        "sysid_ros.reports": ["templates/*"],
        "sysid_ros": ["py.typed"],
        "sysid_ros.ros": ["*.xml"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        shared("launch", "*.launch.py"),
        shared("config", "*.yaml"),
        shared("config/nodes", "*.yaml"),
        shared("config/scenes", "*.yaml"),
        shared("config/security", "*.xml"),
        shared("config/space", "*.yaml"),
        shared("config/sva", "*.yaml"),
        shared("config/view", "*"),
        shared("urdf", "*"),
        shared("rviz", "*.rviz"),
    ],
    # The ROS packages come with ROS, or as wheels with requirements.txt.
    install_requires=[
        "argcomplete>=3.1",
        "Jinja2>=3.0",
        "mcap-ros2-support>=0.5",
        "numpy>=1.26",
        "pin>=3.0",
        "protobuf>=3.20",
        "PyYAML>=6.0",
        "rich>=13.0",
        "rosbags>=0.10",
        "scipy>=1.11",
        "urdf-parser-py>=0.0.4",
    ],
    extras_require={
        "cluster": ["distributed>=2024.1"],
        "meshes": ["trimesh>=4.0"],
        # Figures of `sysid papers`; reports draw theirs themselves.
        "papers": [MATPLOTLIB],
        # Certified plans are searched with it; reading, identifying, proving and reporting do without.
        "planning": [CASADI],
        # ROS 2 as wheels, where no ROS is sourced; the messages are built from the checkout: pip install ./sysid_msgs
        "ros": [
            CASADI,
            "ros-rclpy[fastrtps]>=9.1",
            "ros-action-msgs>=2.3",
            "ros-diagnostic-msgs>=5.5",
            "ros-geometry-msgs>=5.5",
            "ros-nav-msgs>=5.5",
            "ros-rosidl-default-runtime>=1.7",
            "ros-sensor-msgs>=5.5",
            "ros-std-msgs>=5.5",
            "ros-std-srvs>=5.5",
            "ros-visualization-msgs>=5.5",
        ],
        "sim": [CASADI, "mujoco>=3.17"],
        "view": ["viser>=1.0"],
        "test": ["clarabel>=0.9", "cvxpy>=1.5", MATPLOTLIB, "pytest>=7.4"],
    },
    entry_points={"console_scripts": ["sysid = sysid_ros.cli.main:main", *EXECUTABLES]},
)
