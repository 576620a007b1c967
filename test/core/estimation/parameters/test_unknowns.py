import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import find_body, object_within
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent


def test_bodies_are_found_by_joint_and_link(robot):
    assert find_body(robot, "joint_4") == 4 and find_body(robot, "forearm_link") == 4
    for wrong in ("base_link", "joint_9"):
        with pytest.raises(ParameterOutOfRange, match="or a joint or moving link: joint_1"):
            find_body(robot, wrong)
    with pytest.raises(ParameterOutOfRange, match="body"):
        EstimatorSettings(body="")


def test_the_object_prior_holds_every_object():
    rng = np.random.default_rng(0)
    box, nominal = object_within(2.0, 0.3)
    assert box.contains(nominal) and is_physically_consistent(nominal)
    reached = np.zeros(10)
    for count in (1, 2, 5) * 300:
        points = rng.normal(size=(count, 3))
        points *= 0.3 / np.linalg.norm(points, axis=1, keepdims=True) * rng.choice([1.0, 0.5], (count, 1))
        masses = 2.0 * rng.dirichlet(np.ones(count)) * rng.choice([1.0, 0.3])
        parts = [from_com_form(m, p, np.zeros((3, 3))) for m, p in zip(masses, points, strict=True)]
        theta = np.sum(parts, axis=0)
        assert box.contains(theta)
        reached = np.maximum(reached, np.abs(theta) / box.upper)
    assert reached.min() > 0.9
