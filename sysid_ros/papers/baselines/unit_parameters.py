"""The regressor by unit parameters: each column is the inverse dynamics of one unit element of a spatial inertia.

It serves as a reference and for any tree, joints of several degrees of freedom included; in loops over many samples the
batched :class:`~sysid_ros.core.regressors.torque.TorqueRegressor` is the faster one.

Source: SVA (92), (99) and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange

Array = NDArray[np.float64]

_ELEMENTS = 10


def regressor_of(inverse_dynamics: Callable[[Array], ArrayLike], bodies: int) -> Array:
    """Build the regressor from inverse dynamics that are linear in the inertial parameters (SVA, Algorithm 1).

    Args:
        inverse_dynamics: Maps inertial parameters, (10 bodies,), to generalised forces, (nv,), at one state.
        bodies: Number of bodies.

    Returns:
        Regressor, (nv, 10 bodies): ten evaluations per body, each of which costs a multiple of the number of joints.
    """
    return np.stack([np.asarray(inverse_dynamics(unit)) for unit in np.eye(_ELEMENTS * bodies)], axis=1)


class TreeRegressor:
    """Regressor of any tree of rigid bodies, joints of several degrees of freedom included, in O(n^2).

    One sweep gives the motion of all bodies; a body's ten columns are then the wrenches of its unit parameters,
    projected on the joints that carry it. Nothing is paid for the joints that do not. Keeps Pinocchio's workspace, so
    use one per thread.

    Args:
        model: Pinocchio model with gravity; its inertias do not matter.

    Source: SVA (92), with Algorithm 1's columns shared between the joints above a body.
    """

    def __init__(self, model: pin.Model):
        self._model, self._data = model, model.createData()
        # The columns of the Jacobian that move body i: those of the joints on its way to the root.
        self._support = []
        for body in range(1, model.njoints):
            joints = [joint for joint in model.supports[body] if joint > 0]
            self._support.append(
                np.concatenate([model.idx_vs[joint] + np.arange(model.nvs[joint]) for joint in joints])
            )

    def evaluate(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Evaluate the regressor at one state.

        Args:
            q: Configuration as Pinocchio takes it, (nq,).
            v: Velocity, (nv,).
            a: Acceleration, (nv,).

        Returns:
            Regressor, (nv, 10 bodies), in Pinocchio's order of the ten parameters, about the joint frames.

        Raises:
            ParameterOutOfRange: A vector has the wrong length or is not finite.
        """
        model, data = self._model, self._data
        state = [np.asarray(one, dtype=float) for one in (q, v, a)]
        for name, vector, size in zip("qva", state, (model.nq, model.nv, model.nv), strict=True):
            if vector.shape != (size,) or not np.isfinite(vector).all():
                raise ParameterOutOfRange(name, vector, f"{size} finite numbers")
        pin.forwardKinematics(model, data, *state)
        jacobian = pin.computeJointJacobians(model, data)  # (6, nv) in world axes about the world's origin
        regressor = np.zeros((model.nv, _ELEMENTS * (model.njoints - 1)))
        for body, support in enumerate(self._support, start=1):
            placement = data.oMi[body]
            # Gravity as an acceleration of the base: what a body needs to stay where it is.
            acceleration = data.a[body] - placement.actInv(model.gravity)
            wrenches = pin.bodyRegressor(data.v[body], acceleration)
            local = placement.inverse().action @ jacobian[:, support]
            regressor[support, _ELEMENTS * (body - 1) : _ELEMENTS * body] = local.T @ wrenches
        return regressor
