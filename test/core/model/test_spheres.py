"""Collision spheres cover the shapes of the URDF, and published sphere models of the arms."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf
from sysid_ros.core.model.rotation import rotation_from_rpy
from sysid_ros.core.model.spheres import collision_pairs, cover_box, cover_cylinder, cover_links

FACTS = Path(__file__).parents[4] / "shared" / "facts" / "robots"
ROBOTS = ("kinova_gen3", "kinova_gen3_2f85", "kuka_lbr_iiwa7", "kuka_lbr_iiwa14", "kuka_lbr_med7", "kuka_lbr_med14")


def numbers(element, key):
    return np.array([float(word) for word in element.get(key).split()])


def surface(form, rng, count=400):
    """Points on the surface of a URDF shape, in its own frame."""
    if form.tag == "sphere":
        points = rng.normal(size=(count, 3))
        return float(form.get("radius")) * points / np.linalg.norm(points, axis=1)[:, None]
    if form.tag == "box":
        points = rng.uniform(-1.0, 1.0, (count, 3))
        return 0.5 * numbers(form, "size") * points / np.abs(points).max(axis=1)[:, None]
    radius, length, angle = float(form.get("radius")), float(form.get("length")), rng.uniform(0.0, 2 * np.pi, count)
    height = np.where(rng.uniform(size=count) < 0.5, rng.uniform(-0.5, 0.5, count), rng.choice([-0.5, 0.5], count))
    size = np.where(np.abs(height) == 0.5, radius * np.sqrt(rng.uniform(size=count)), radius)
    # The rims are the points hardest to cover.
    size[:50], height[:50] = radius, np.sign(height[:50]) * 0.5
    return np.stack([size * np.cos(angle), size * np.sin(angle), length * height], axis=1)


def outside(points, spheres):
    """How far points (k, 3) stick out of spheres [(center, radius)] at most [m]; negative where all are inside."""
    centers, radii = np.array([center for center, _ in spheres]), np.array([radius for _, radius in spheres])
    return (np.linalg.norm(points[:, None] - centers, axis=2) - radii).min(axis=1).max()


@pytest.mark.parametrize("name", ROBOTS)
def test_every_shape_is_covered_by_the_spheres_of_its_body(name):
    robot, rng = load_robot(name), np.random.default_rng(0)
    model = robot.pin_model
    checked = 0
    for link in ET.fromstring(robot.urdf).findall("link"):
        for visual in link.findall("visual"):
            frame = model.frames[model.getFrameId(link.get("name"))]
            origin = visual.find("origin")
            points = surface(visual.find("geometry")[0], rng) @ rotation_from_rpy(numbers(origin, "rpy")).T
            points = np.array([frame.placement.act(point) for point in points + numbers(origin, "xyz")])
            spheres = [(s.center, s.radius) for s in robot.spheres if s.body == frame.parentJoint]
            assert outside(points, spheres) <= 0.0, link.get("name")
            # Not vacuous: spheres somewhat smaller do not cover it.
            checked += outside(points, [(center, 0.85 * radius) for center, radius in spheres]) > 0.0
    assert checked >= 7
    assert {sphere.body for sphere in robot.spheres} == set(range(8))


@pytest.mark.parametrize(("name", "file"), [("kinova_gen3_2f85", "kinova_gen3_7dof"), ("kuka_lbr_iiwa14",) * 2])
def test_published_sphere_models_stick_out_by_two_centimetres_at_most(name, file):
    path = FACTS / f"{file}.json"
    if not path.is_file():
        pytest.skip("the collected robot data are not on this machine")
    published = json.loads(path.read_text())["collision_spheres"]
    groups = published.get("spheres_by_link", {})
    children = {"joint_2": "half_arm_1_link", "joint_4": "forearm_link", "joint_6": "spherical_wrist_2_link"}
    groups |= {
        children[joint]: rows for joint, rows in published.get("spheres_by_joint", {}).items() if joint in children
    }
    robot, rng = load_robot(name), np.random.default_rng(1)
    model = robot.pin_model
    data = model.createData()
    # At zero the links a published group spans stand in one line.
    pin.framesForwardKinematics(model, data, np.zeros(7))
    spheres = [(data.oMi[s.body].act(s.center), s.radius) for s in robot.spheres]
    count = 0
    for link, rows in groups.items():
        if link == "lbr_link_0":
            continue
        for row in rows:
            points = rng.normal(size=(200, 3))
            points *= row["radius"] / np.linalg.norm(points, axis=1)[:, None]
            placement = data.oMf[model.getFrameId(link)]
            assert outside(np.array([placement.act(p + row["offset"]) for p in points]), spheres) < 0.0215
            count += 1
    assert count >= 13


@pytest.mark.parametrize("name", ROBOTS)
def test_bodies_two_apart_never_overlap_within_the_limits(name):
    """So a plan may demand distance of all these pairs: the arm's own build does not violate it."""
    robot, rng = load_robot(name), np.random.default_rng(2)
    model, spheres = robot.pin_model, robot.spheres
    data = model.createData()
    pairs = np.array([(i, j) for i, j in collision_pairs(robot) if spheres[j].body - spheres[i].body == 2])
    radii = np.array([sphere.radius for sphere in spheres])
    for _ in range(300):
        lower = np.maximum(robot.limits.q_lower, -np.pi)
        pin.forwardKinematics(model, data, rng.uniform(lower, np.minimum(robot.limits.q_upper, np.pi)))
        centers = np.array([data.oMi[sphere.body].act(sphere.center) for sphere in spheres])
        gaps = np.linalg.norm(centers[pairs[:, 0]] - centers[pairs[:, 1]], axis=1) - radii[pairs].sum(axis=1)
        assert gaps.min() > 0.0


def test_pairs():
    robot = load_robot("kuka_lbr_iiwa7")
    pairs = collision_pairs(robot)
    bodies = np.array([sphere.body for sphere in robot.spheres])
    links = [sphere.link for sphere in robot.spheres]
    assert np.all(bodies[pairs[:, 1]] - bodies[pairs[:, 0]] >= 2)
    names = {(links[i], links[j]) for i, j in pairs}
    assert ("lbr_link_0", "lbr_link_2") in names and ("lbr_link_5", "lbr_link_7") not in names
    held = collision_pairs(robot, (*robot.spheres, *robot.payload_prior.spheres))
    assert len(held) > len(pairs)


@pytest.mark.parametrize(("radius", "length"), [(0.05, 0.2), (0.1, 0.01), (0.02, 1.0)])
def test_cover_cylinder(radius, length):
    rows = cover_cylinder(radius, length)
    form = ET.Element("cylinder", radius=str(radius), length=str(length))
    points = surface(form, np.random.default_rng(3), 4000)
    assert outside(points, [(row[:3], row[3]) for row in rows]) <= 1e-12
    assert max(row[3] for row in rows) <= 1.25 * radius + 1e-12


@pytest.mark.parametrize("size", [(0.1, 0.1, 0.1), (0.02, 0.1, 0.4), (0.3, 0.3, 0.01)])
def test_cover_box(size):
    form = ET.Element("box", size=" ".join(map(str, size)))
    rows = cover_box(np.array(size))
    assert outside(surface(form, np.random.default_rng(4), 4000), [(row[:3], row[3]) for row in rows]) <= 1e-12


def test_shapes_of_any_urdf_give_spheres():
    robot = load_robot("kuka_lbr_med7")
    derived = load_robot_from_urdf(robot.urdf)
    assert {s.link for s in derived.spheres} == {s.link for s in robot.spheres}
    mesh = robot.urdf.replace("<sphere ", '<mesh filename="package://nowhere/a.stl" ').replace("<cylinder ", "<mesh ")
    assert cover_links(mesh) == {}
    assert any("no collision spheres: lbr_link_1" in sentence for sentence in load_robot_from_urdf(mesh).assumptions)


def test_collision_shapes_come_before_what_is_shown():
    text = """<robot name="r"><link name="a"><visual><geometry><sphere radius="1"/></geometry></visual>
    <collision><origin xyz="0 0 2"/><geometry><sphere radius="0.5"/></geometry></collision></link></robot>"""
    assert cover_links(text) == {"a": [[0.0, 0.0, 2.0, 0.5]]}


@pytest.mark.parametrize("row", [[0, 0, 0], [0, 0, 0, 0.0], [0, 0, "x", 0.1], "wide"])
def test_bad_spheres_are_refused(row):
    urdf = load_robot("kuka_lbr_med7").urdf
    with pytest.raises(ParameterOutOfRange, match="spheres.lbr_link_3"):
        load_robot_from_urdf(urdf, settings={"spheres": {"lbr_link_3": [row]}})
