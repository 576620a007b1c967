import numpy as np

from sysid_ros.core.estimation.windows.errors import integrate_sign


def test_certain_and_uncertain_time():
    v = np.array([[0.2, -0.2], [0.1, -0.1], [0.005, -0.3], [-0.1, -0.2], [-0.2, -0.1]])
    steps = np.array([1.0, 2.0, 4.0, 8.0])
    result = integrate_sign(v, steps, np.array([0.01, 0.01]))
    np.testing.assert_allclose(result.value, [1.0 - 8.0, -15.0])
    np.testing.assert_allclose(result.uncertain, [6.0, 0.0])
    np.testing.assert_array_equal(result.is_steady, [True, False, False, True])


def test_the_true_integral_is_inside_for_every_speed_within_the_slack():
    rng = np.random.default_rng(0)
    fine = np.linspace(0, 1, 10001)
    v = np.stack([0.3 * np.sin(7 * fine + phase) + 0.1 for phase in (0.0, 1.0, 2.0)], axis=1)
    slack = 0.02 + 0.5 * 0.01 * 0.3 * 7
    true = np.trapezoid(np.sign(v), fine, axis=0)
    for _ in range(20):
        measured = v[::100] + rng.choice([-0.02, 0.02], v[::100].shape)
        result = integrate_sign(measured, np.diff(fine[::100]), np.full(3, slack))
        assert np.all(np.abs(true - result.value) <= result.uncertain + 1e-3)
        assert np.all(result.uncertain < 0.35)
