"""The inertia ellipsoid against the textbook inertia of a solid ellipsoid and against sampled points."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.model.inertia import compute_inertia_ellipsoid, from_com_form


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return rotation * np.sign(np.linalg.det(rotation))


def test_recovers_a_known_ellipsoid():
    rng = np.random.default_rng(1)
    mass, center, axes = 1.8, np.array([0.1, -0.2, 0.3]), np.array([0.2, 0.1, 0.05])
    rotation = random_rotation(rng)
    moments = mass / 5.0 * (np.sum(axes**2) - axes**2)
    found = compute_inertia_ellipsoid(from_com_form(mass, center, rotation @ np.diag(moments) @ rotation.T))
    np.testing.assert_allclose(found.center, center, atol=1e-12)
    np.testing.assert_allclose(np.sort(found.semi_axes), np.sort(axes), atol=1e-10)
    np.testing.assert_allclose(found.principal_moments, np.sort(moments), atol=1e-12)
    rebuilt = found.rotation @ np.diag(found.principal_moments) @ found.rotation.T
    np.testing.assert_allclose(rebuilt, rotation @ np.diag(moments) @ rotation.T, atol=1e-12)
    assert np.linalg.det(found.rotation) == pytest.approx(1.0)


def test_refuses_what_no_body_can_be():
    with pytest.raises(NotPhysicallyConsistent, match="ellipsoid"):
        compute_inertia_ellipsoid(from_com_form(1.0, [0, 0, 0], np.diag([1.0, 0.1, 0.1])))
