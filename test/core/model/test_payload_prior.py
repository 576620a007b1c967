"""Payload priors: the box of an object holds every such object, and bad priors are refused."""

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import NotPhysicallyConsistent, ParameterOutOfRange
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.payload import object_box, read_prior
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.core.model.sampling import sample_payload
from sysid_ros.core.model.settings import Section

OBJECT = {
    "mass": [0.5, 2.0],
    "center_of_mass": {"lower": [-0.1, 0.02, 0.1], "upper": [0.05, 0.06, 0.3]},
    "radius_of_gyration": 0.08,
}
BOXED = {
    "frame": "joint",
    "lower": [0.5, -1.0, -1.0, -1.0, 0.0, -0.5, 0.0, -0.5, -0.5, 0.0],
    "upper": [2.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    "nominal": [1.0, 0.0, 0.0, 0.1, 0.1, 0.0, 0.1, 0.0, 0.0, 0.1],
}
PLACEMENT = (rotation_from_rpy([0.3, -0.7, 2.0]), np.array([0.02, -0.3, 0.5]))


def read(values, placement=PLACEMENT):
    return read_prior(Section(values, "payload_priors.test"), "test", placement, 7)


def random_object(rng, extreme):
    """A body of the prior OBJECT about the tool frame: its moments are (b+c, a+c, a+b) with a, b, c >= 0."""
    ends = np.array(OBJECT["mass"]), np.array(list(OBJECT["center_of_mass"].values()))
    if extreme:
        mass = rng.choice(ends[0])
        com = ends[1][rng.integers(0, 2, 3), np.arange(3)]
    else:
        mass, com = rng.uniform(*ends[0]), rng.uniform(*ends[1])
    shares = rng.dirichlet([0.3, 0.3, 0.3])
    moments = np.array([shares[1] + shares[2], shares[0] + shares[2], shares[0] + shares[1]])
    moments *= mass * OBJECT["radius_of_gyration"] ** 2 / moments.max()
    turned = rotation_from_rpy(rng.uniform(-np.pi, np.pi, 3))
    return from_com_form(mass, com, turned @ np.diag(moments) @ turned.T)


@pytest.mark.parametrize("extreme", [False, True])
def test_every_object_is_inside(extreme):
    rng = np.random.default_rng(0)
    prior, straight = read(OBJECT), read(OBJECT, (np.eye(3), np.zeros(3)))
    seen = []
    for _ in range(1000):
        theta = random_object(rng, extreme)
        assert straight.box.contains(theta)
        assert prior.box.contains(transform_parameters(theta, *PLACEMENT))
        seen.append(theta)
    if extreme:  # the bounds are not wider than they have to be
        reached = (np.max(seen, axis=0) - np.min(seen, axis=0)) / straight.box.width
        assert np.all(reached > 0.8)


def test_a_prior_of_a_turned_tool_keeps_the_box_of_its_centre_of_mass():
    rng = np.random.default_rng(3)
    prior, limits = read(OBJECT), OBJECT["center_of_mass"]
    shape, (rotation, translation) = prior.shape, PLACEMENT
    assert shape.turned is not None and np.prod(shape.turned.box.width) < 0.5 * np.prod(shape.com.width)
    for k in range(200):
        own = rng.uniform(*limits.values()) if k % 2 else np.where(rng.integers(0, 2, 3), *limits.values())
        com = rotation @ own + translation
        assert shape.com.contains(com) and shape.turned.box.contains(shape.turned.axes.T @ com)
        drawn = sample_payload(prior, rng, corner=k % 2 == 0)
        at_tool = rotation.T @ (drawn[1:4] / drawn[0] - translation)
        assert np.all((np.array(limits["lower"]) - 1e-9 <= at_tool) & (at_tool <= np.array(limits["upper"]) + 1e-9))
    for parallel in (np.eye(3), np.diag([1.0, -1.0, -1.0]), rotation_from_rpy([np.pi / 2, 0.0, np.pi])):
        assert read(OBJECT, (parallel, translation)).shape.turned is None


def test_nominal_and_spheres():
    prior = read({**OBJECT, "spheres": [[0.0, 0.0, 0.2, 0.1]]})
    assert prior.box.contains(prior.nominal) and prior.nominal[0] == 1.25 and prior.target == "payload"
    (sphere,) = prior.spheres
    assert (sphere.body, sphere.radius, sphere.link) == (7, 0.1, "payload")
    assert sphere.center == pytest.approx(PLACEMENT[0] @ [0.0, 0.0, 0.2] + PLACEMENT[1])


def test_a_box_may_be_given_in_the_tool_frame():
    in_joint, in_tool = read(BOXED), read({**BOXED, "frame": "tool"})
    assert np.allclose(in_joint.box.upper, BOXED["upper"])
    assert in_tool.nominal == pytest.approx(transform_parameters(in_joint.nominal, *PLACEMENT))
    corner = transform_parameters(np.array(BOXED["upper"]), *PLACEMENT)
    assert in_tool.box.contains(corner)


def test_object_box_is_exact_for_simple_numbers():
    box = object_box([0.0, 2.0], Box([-0.1, 0.0, 0.2], [0.1, 0.0, 0.3]), 0.1)
    expected = [2.0, 0.2, 0.0, 0.6, 2 * (0.09 + 0.01), 2 * 0.005, 2 * (0.01 + 0.09 + 0.01), 2 * (0.03 + 0.005)]
    assert box.upper[:8] == pytest.approx(expected, abs=1e-12)
    assert box.lower[[0, 4, 6, 9]] == pytest.approx(np.zeros(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": [2.0, 0.5]}, r"test.mass \[2.0\]: expected at most the upper value"),
        ({"mass": [0.0, 0.0]}, "not zero"),
        ({"mass": [-1.0, 0.5]}, r"mass\[0\] -1.0: expected 0 to 1000 \[kg\]"),
        ({"radius_of_gyration": 0.0}, "radius_of_gyration 0.0"),
        ({"radius_of_gyration": None}, "radius_of_gyration None"),
        ({"gyration": 1.0}, "test.gyration 1.0: expected no setting of that name; known: .*mass"),
        ({"target": "tool"}, "target 'tool': expected one of payload, end_effector"),
        ({"frame": "world"}, "frame 'world': expected one of tool, joint"),
        ({"center_of_mass": {"lower": [0, 0, 0], "upper": [0, -1, 0]}}, "center_of_mass.lower"),
        ({"center_of_mass": {"lower": [0, 0], "upper": [0, 0, 0]}}, "a list of 3 numbers"),
        ({"center_of_mass": 0.1}, "center_of_mass 0.1: expected a mapping"),
        ({"spheres": [[0, 0, 0, -1]]}, r"spheres\[0\]\[3\] -1.0: expected a radius above 0"),
    ],
)
def test_bad_objects_are_refused(change, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        read({**OBJECT, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nominal": [3.0, *BOXED["nominal"][1:]]}, "nominal .*expected inside its box"),
        ({"lower": [3.0, *BOXED["lower"][1:]]}, "test.lower .*expected at most upper"),
        ({"upper": [1.0]}, "a list of 10 numbers"),
        ({"nominal": ["heavy"] * 10}, r"nominal\[0\] 'heavy'"),
    ],
)
def test_bad_boxes_are_refused(change, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        read({**BOXED, **change})


def test_a_nominal_payload_that_no_body_has_is_refused():
    with pytest.raises(NotPhysicallyConsistent, match="nominal payload of prior 'test'"):
        read({**BOXED, "nominal": [*BOXED["nominal"][:9], 0.5]})


def test_prior_of_the_gripper_covers_the_dumbbells_it_can_hold():
    robot = load_robot("kinova_gen3_2f85")
    placement = tool_transform(robot)
    for mass in (0.1, 1.81, 2.27, 2.5):
        for offset in (-0.03, 0.0, 0.03):
            inertia = np.diag([0.0048, 0.0006, 0.0048]) * mass  # a dumbbell across the fingers, 0.07 m of gyration
            theta = from_com_form(mass, [offset, -offset, 0.15 + offset], inertia)
            assert robot.payload_prior.box.contains(transform_parameters(theta, *placement))
    heavy = transform_parameters(from_com_form(3.63, [0.0, 0.0, 0.15], np.diag([0.02, 0.002, 0.02])), *placement)
    assert not robot.payload_prior.box.contains(heavy)
