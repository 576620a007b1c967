import numpy as np

from sysid_ros.core.estimation.windows.model import InertialRegressor
from sysid_ros.core.estimation.windows.signals import differentiate_regressors


def test_derivatives_agree_with_central_differences(robot, tools):
    regressor = InertialRegressor(robot, robot.n)
    rng = np.random.default_rng(1)
    q, v = rng.uniform(-2, 2, (3, robot.n)), rng.uniform(-1, 1, (3, robot.n))
    derivatives = differentiate_regressors(regressor.evaluate, q, v)
    step = 1e-5
    for joint in range(robot.n):
        unit = step * np.eye(robot.n)[joint]
        by_q = [
            (a - b) / (2 * step)
            for a, b in zip(regressor.evaluate(q + unit, v), regressor.evaluate(q - unit, v), strict=True)
        ]
        by_v = [
            (a - b) / (2 * step)
            for a, b in zip(regressor.evaluate(q, v + unit), regressor.evaluate(q, v - unit), strict=True)
        ]
        expected = dict(momentum_q=by_q[0], force_q=by_q[1], momentum_v=by_v[0], force_v=by_v[1])
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(derivatives, name)[..., joint], value, atol=2e-8, err_msg=name)
