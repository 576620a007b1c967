"""Identifiability of a payload from the information the streaming estimator keeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.advice import Advice, advise
from sysid_ros.core.identifiability.data import DataAnalysis, analyze_data
from sysid_ros.core.identifiability.information import ArmInformation
from sysid_ros.core.identifiability.pinocchio_tree import tree_from_model
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Structure, analyze_structure
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel


class PayloadIdentifiability:
    """What can be known of a payload in the hand of an arm, and what the data know of it.

    The arm's own parameters count as known up to their box: what the box leaves open is part of the error of each row.

    Args:
        robot: The arm and the prior of its payload.
        prior: What was known of the ten parameters before, if it is not that prior: of last body and payload together,
            for instance.
    """

    def __init__(self, robot: RobotModel, prior: Box | None = None):
        self._robot = robot
        self.structure: Structure = analyze_structure(
            tree_from_model(robot.pin_model), AnalysisSettings(known=robot.joint_names[:-1])
        )
        self._source = ArmInformation(robot, self.structure)
        radius = (prior or robot.payload_prior.box).radius
        # What a prior box leaves no room for needs no data; the analysis counts in units of what was unknown.
        self._scale = np.maximum(radius, 1e-6 * max(float(radius.max()), 1e-6))

    @property
    def row_error(self) -> float:
        """Typical error of a mean torque [Nm]: the median over the joints, at rest in the home posture."""
        home = self._robot.home[None]
        return float(np.median(self._source.row_deviation(home, 0.0 * home, 0.0 * home)))

    def analyze(self, gram: ArrayLike, box: Box | None = None) -> DataAnalysis:
        """What the data know.

        Args:
            gram: Gram matrix of the windows as mean torques, (10, 10) [Nm^2 per parameter^2], as
                ``StreamingEstimator.information`` gives it. It forgets which joint a row belongs to, so all rows are
                given the same typical error.
            box: Guaranteed bounds of the ten parameters.

        Returns:
            The analysis.

        Raises:
            ParameterOutOfRange: The matrix has another shape or is not finite.
        """
        return analyze_data(self.structure, self._information(gram), self._scale, box)

    def advise(self, analysis: DataAnalysis, gram: ArrayLike, speeds: ArrayLike | None = None) -> Advice | None:
        """A motion that tells what the data do not.

        Args:
            analysis: What :meth:`analyze` made of the same Gram matrix.
            gram: The Gram matrix.
            speeds: Largest speeds in the data, (n,) [rad/s], if known.

        Returns:
            The advice; None if nothing is missing or nothing helps.
        """
        recorded = None if speeds is None else np.asarray(speeds, dtype=float)
        return advise(self._robot, analysis, self._source, self._information(gram), recorded)

    def _information(self, gram: ArrayLike) -> np.ndarray:
        matrix = np.asarray(gram, dtype=float)
        if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
            raise ParameterOutOfRange("information", matrix.shape, "finite, of shape (10, 10)")
        return matrix / self.row_error**2
