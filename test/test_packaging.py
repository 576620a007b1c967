"""Version, licence, dependencies and executables agree wherever they are written."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from sysid_ros.processes import IDENTIFY, SPACE

ROOT = Path(__file__).parents[1]
ROSDEP = {
    # Python package: key for rosdep
    "argcomplete": "python3-argcomplete",
    "matplotlib": "python3-matplotlib",
    "jinja2": "python3-jinja2",
    "numpy": "python3-numpy",
    "pin": "pinocchio",
    "protobuf": "python3-protobuf",
    "pyyaml": "python3-yaml",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "urdf-parser-py": "urdfdom_py",
    "pytest": "python3-pytest",
}
OPTIONAL = {"casadi", "mcap-ros2-support", "mujoco", "rosbags"}
"""Only pip has packages of them: requirements-ros.txt. What needs one says so where it is missing."""
ONLY_PIP = {"clarabel", "cvxpy", "distributed", *OPTIONAL}
"""Not in package.xml. Tests are skipped without the first three."""
IMPORTED_AS = {"pin": "pinocchio", "protobuf": "google", "pyyaml": "yaml"}
ONLY_LAUNCHED = {"launch", "launch_ros", "ros2launch", "robot_state_publisher", "rviz2", "rmw_fastrtps_cpp"}


def package_xml(folder=ROOT):
    return ElementTree.parse(folder / "package.xml").getroot()


def depends(root):
    return {node.text for tag in ("depend", "exec_depend", "test_depend") for node in root.findall(tag)}


def requirement_name(line):
    return re.match(r"[A-Za-z0-9_.-]+", line)[0].lower().replace("_", "-")


def pinned(path):
    lines = [line.split("#")[0].strip() for line in (ROOT / path).read_text().splitlines()]
    return {requirement_name(line): line for line in lines if line}


@pytest.fixture(scope="module")
def setup_arguments():
    """What setup.py hands to setuptools where a ROS is sourced."""
    return read_setup(AMENT_PREFIX_PATH="/opt/ros")


def read_setup(**variables):
    code = (
        "import json, setuptools, runpy\n"
        "given = {}\n"
        "setuptools.setup = lambda **kw: given.update(kw)\n"
        "runpy.run_path('setup.py')\n"
        "print(json.dumps(given, default=str))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "AMENT_PREFIX_PATH"} | variables
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    return __import__("json").loads(result.stdout)


def test_without_ros_there_is_one_command(setup_arguments):
    alone = ["sysid = sysid_ros.cli.main:main"]
    assert read_setup()["entry_points"]["console_scripts"] == alone
    assert set(setup_arguments["entry_points"]["console_scripts"]) > set(alone)


def toml(path):
    """The few entries that are needed, read without a TOML library, which Python 3.10 lacks."""
    text = path.read_text()
    found = {key: re.search(rf'^{key} = "([^"]+)"', text, re.M)[1] for key in ("name", "version", "description")}
    found["license"] = re.search(r'^license = \{ text = "([^"]+)" \}', text, re.M)[1]
    for key in ("requires", "dependencies"):
        found[key] = ast.literal_eval(re.search(rf"^{key} = (\[.*?^\])", text, re.M | re.S)[1])
    return found


def test_setup_py_says_what_package_xml_says(setup_arguments):
    root = package_xml()
    assert setup_arguments["name"] == root.findtext("name") == "sysid_ros"
    assert setup_arguments["version"] == root.findtext("version")
    assert setup_arguments["license"] == root.findtext("license") == "Apache-2.0"
    assert setup_arguments["maintainer_email"] == root.find("maintainer").get("email")
    assert setup_arguments["description"] == root.findtext("description")


def test_pyproject_repeats_nothing():
    assert not re.search(r"^\[project\]", (ROOT / "pyproject.toml").read_text(), re.M)


def test_message_package_agrees_with_itself_and_with_us():
    root, project = package_xml(ROOT / "sysid_msgs"), toml(ROOT / "sysid_msgs" / "pyproject.toml")
    for key in ("version", "description", "license"):
        assert project[key] == root.findtext(key), key
    assert project["name"].replace("-", "_") == root.findtext("name") == "sysid_msgs"
    assert root.findtext("version") == package_xml().findtext("version")
    messages = {name for name in depends(root) if name.endswith("_msgs")}
    assert {f"ros-{name.replace('_', '-')}" for name in messages} <= {
        requirement_name(d) for d in project["dependencies"]
    }
    cmake = (ROOT / "sysid_msgs" / "CMakeLists.txt").read_text()
    for name in messages:
        assert f"find_package({name} REQUIRED)" in cmake
    assert set(re.search(r"DEPENDENCIES (.*)\n", cmake)[1].split()) == messages


def test_every_interface_file_is_built():
    cmake = (ROOT / "sysid_msgs" / "CMakeLists.txt").read_text()
    listed = set(re.findall(r"^  ((?:msg|srv|action)/\w+\.\w+)$", cmake, re.M))
    folder = ROOT / "sysid_msgs"
    assert listed == {
        str(path.relative_to(folder)) for kind in ("msg", "srv", "action") for path in folder.glob(f"{kind}/*")
    }


def test_python_dependencies_agree(setup_arguments):
    extras = setup_arguments["extras_require"]
    lines = [*setup_arguments["install_requires"], *extras["sim"]]
    names = {requirement_name(line) for line in lines}
    assert OPTIONAL <= names and set(pinned("requirements-ros.txt")) == OPTIONAL
    assert {requirement_name(line) for line in extras["ros"]} <= set(pinned("requirements.txt"))
    tests = {requirement_name(line) for line in setup_arguments["extras_require"]["test"]}
    keys = {key for key in depends(package_xml()) if key in ROSDEP.values()}
    assert {ROSDEP[name] for name in (names | tests) - ONLY_PIP} == keys
    assert names <= set(pinned("requirements.txt"))
    assert tests <= set(pinned("requirements-test.txt"))
    # What plans certified motions comes with every extra that moves an arm, and with no other.
    with_plans = {name for name, lines in extras.items() if "casadi" in map(requirement_name, lines)}
    assert with_plans == {"planning", "ros", "sim"}
    assert "casadi" not in map(requirement_name, setup_arguments["install_requires"])
    cluster = {requirement_name(line) for line in setup_arguments["extras_require"]["cluster"]}
    assert cluster and cluster <= set(pinned("requirements-test.txt")), "the extra is tested"


def test_requirements_are_pinned_and_no_lower_than_setup_py_asks(setup_arguments):
    lowest = {requirement_name(line): line.split(">=")[1] for line in setup_arguments["install_requires"]}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        line = line.split("#")[0].split(";")[0].strip()
        if not line:
            continue
        assert re.fullmatch(r"[A-Za-z0-9_.\[\]-]+==[0-9.]+", line), line
        name, version = requirement_name(line), line.split("==")[1]
        if name in lowest:
            assert tuple(map(int, version.split("."))) >= tuple(map(int, lowest[name].split("."))), line


def test_what_is_imported_is_declared():
    declared = {name: True for name in depends(package_xml())}
    imports = set()
    for path in [*(ROOT / "sysid_ros").rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imports |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imports.add(node.module.split(".")[0])
    foreign = imports - set(sys.stdlib_module_names) - {"sysid_ros"}
    modules = {IMPORTED_AS.get(name, name.replace("-", "_")): key for name, key in ROSDEP.items()}
    for name in foreign - ONLY_PIP:
        assert modules.get(name, name) in declared, f"{name} is imported but not in package.xml"
    unused = set(declared) - {modules.get(name, name) for name in foreign} - ONLY_LAUNCHED - {"python3-pytest"}
    assert unused == set(), f"in package.xml, but nothing imports {unused}"


def test_messages_are_built_with_the_versions_they_are_used_with():
    wanted = pinned("requirements.txt")
    project = toml(ROOT / "sysid_msgs" / "pyproject.toml")
    shared = [line for line in project["requires"] if requirement_name(line) in wanted]
    assert len(shared) >= 3
    for line in shared:
        assert line == wanted[requirement_name(line)]
    for line in project["dependencies"]:
        name, version = line.split("~=")
        assert wanted[name] == f"{name}=={version}"


def test_every_executable_has_an_entry_point_and_a_module(setup_arguments):
    scripts = dict(line.split(" = ") for line in setup_arguments["entry_points"]["console_scripts"])
    for process in (*IDENTIFY, *SPACE):
        assert scripts[process.executable] == f"{process.module}:main"
    for target in scripts.values():
        module, function = target.split(":")
        path = ROOT / (module.replace(".", "/") + ".py")
        body = ast.parse(path.read_text()).body
        functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        functions |= {getattr(one, "id", "") for node in body if isinstance(node, ast.Assign) for one in node.targets}
        assert function in functions, target


def test_everything_is_installed(setup_arguments):
    installed = {file for _, files in setup_arguments["data_files"] for file in files}
    wanted = [path for folder in ("launch", "config", "urdf", "rviz") for path in (ROOT / folder).rglob("*")]
    for path in wanted:
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(ROOT)) in installed
    assert {"package.xml", "resource/sysid_ros"} <= installed
    folders = {path.parent for path in (ROOT / "sysid_ros").rglob("*.py")}
    assert {str(folder.relative_to(ROOT)).replace("/", ".") for folder in folders} == set(setup_arguments["packages"])
    data, reports = setup_arguments["package_data"], ROOT / "sysid_ros" / "reports"
    assert "py.typed" in data["sysid_ros"] and (ROOT / "sysid_ros" / "py.typed").is_file()
    found = {path for pattern in data["sysid_ros.reports"] for path in reports.glob(pattern)}
    assert {path for path in (reports / "templates").rglob("*") if path.is_file()} == found and len(found) >= 5


def test_both_packages_are_in_the_colcon_defaults():
    import yaml

    defaults = yaml.safe_load((ROOT / "colcon_defaults.yaml").read_text())
    for verb in ("list", "build", "test"):
        for path in defaults[verb]["base-paths"]:
            assert (ROOT / path / "package.xml").is_file()
        assert len(defaults[verb]["base-paths"]) == 2


def test_a_link_lets_colcon_rosdep_and_bloom_find_both_packages(tmp_path):
    """They share this search, or its rule: no packages inside of packages. README.md says to make the link."""
    find_packages = pytest.importorskip("catkin_pkg.packages").find_packages
    (tmp_path / "sysid_ros").symlink_to(ROOT)
    assert list(find_packages(tmp_path)) == ["sysid_ros"]
    readme = (ROOT / "README.md").read_text()
    assert "ln -s sysid_ros/sysid_msgs src/sysid_msgs " in readme and "base-paths" not in readme
    (tmp_path / "sysid_msgs").symlink_to("sysid_ros/sysid_msgs")
    assert {package.name for package in find_packages(tmp_path).values()} == {"sysid_ros", "sysid_msgs"}


def test_a_release_has_all_packages_side_by_side(tmp_path):
    find_packages = pytest.importorskip("catkin_pkg.packages").find_packages
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made of a git checkout")
    words = ["make", "-s", "release", "DRAFT=yes", f"RELEASE={tmp_path}/release"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    found = find_packages(tmp_path / "release")
    assert {folder: package.name for folder, package in found.items()} == {
        name: name for name in ("sysid_ros", "sysid_msgs", "sysid_broadcaster")
    }
    assert {package.version for package in found.values()} == {package_xml().findtext("version")}


def test_nothing_is_released_with_placeholders(tmp_path):
    url, nobody = '<url type="repository">here</url>', "nobody@example.invalid"

    def release(text):
        for folder in (tmp_path, tmp_path / "sysid_msgs", tmp_path / "sysid_broadcaster"):
            folder.mkdir(exist_ok=True)
            (folder / "package.xml").write_text(text)
        return subprocess.run(["make", "-s", "-f", ROOT / "Makefile", "release"], cwd=tmp_path, capture_output=True)

    for text, missing in (
        (f'<maintainer email="{nobody}"/>{url}', "a maintainer"),
        ('<maintainer email="a@b"/>', "url"),
    ):
        refused = release(text)
        assert (
            refused.returncode
            and missing in refused.stdout.decode()
            and "sysid_msgs/package.xml" in str(refused.stdout)
        )
    assert (
        b"filled in" not in release(f'<maintainer email="a@b"/>{url}').stdout
    )  # that there is no git is another matter
    (tmp_path / "CITATION.cff").write_text((ROOT / "CITATION.cff").read_text())
    assert b"the authors in CITATION.cff" in release(f'<maintainer email="a@b"/>{url}').stdout
    folders = (ROOT, ROOT / "sysid_msgs", ROOT / "sysid_broadcaster")
    emails = {package_xml(folder).find("maintainer").get("email") for folder in folders}
    assert len(emails) == 1, (
        "all packages have the same maintainer, or the same placeholder that cannot be a real address"
    )


def test_version_in_changelog_and_citation():
    version = package_xml().findtext("version")
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert re.search(rf"^(Forthcoming|{re.escape(version)} \()", (ROOT / "CHANGELOG.rst").read_text(), re.M)


def test_installed_messages_are_those_of_this_checkout():
    """Messages compiled from other definitions would fail later and less clearly."""
    from sysid_msgs import action, msg, srv

    for folder, module in (("msg", msg), ("srv", srv), ("action", action)):
        for path in (ROOT / "sysid_msgs" / folder).glob("*"):
            kind = getattr(module, path.stem, None)
            assert kind is not None, f"{path.name} is not compiled: pip install ./sysid_msgs"
            sections = re.split(r"^---$", path.read_text(), flags=re.M)
            parts = {"msg": [kind]}.get(folder) or (
                [kind.Request, kind.Response] if folder == "srv" else [kind.Goal, kind.Result, kind.Feedback]
            )
            for section, part in zip(sections, parts, strict=True):
                lines = (line.split("#")[0].strip() for line in section.splitlines())
                fields = [line.split()[1] for line in lines if line and "=" not in line]
                compiled = list(part.get_fields_and_field_types())
                assert compiled == fields, f"{path.name} has changed: pip install ./sysid_msgs"


def test_setup_py_needs_what_is_declared_for_building():
    assert importlib.util.find_spec("setuptools") is not None
    names = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse((ROOT / "setup.py").read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"setuptools", "pybind11"}
    requires = re.search(r"^requires = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert {requirement_name(one) for one in ast.literal_eval(requires)} == {"setuptools", "pybind11"}
    assert "pybind11-dev" in {node.text for node in package_xml().findall("build_depend")}
