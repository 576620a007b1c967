"""Which of the plans the monitor has heard of is worth a picture."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.trajectories.base import Trajectory

_REMEMBERED = 8


@dataclass(frozen=True, eq=False)  # two of them are the same only if they are one
class HeardPlan:
    """A plan as it was heard.

    Attributes:
        trajectory: The plan.
        certificate: Its certificate; None where it has none.
        scene: The scene it was certified in; None where that is not given.
    """

    trajectory: Trajectory
    certificate: Certificate | None
    scene: Scene | None


class PlanBook:
    """Remembers plans until they end.

    A plan is drawn from the moment it is published. One that a driver follows counts before one that nobody follows
    yet; when the driver comes to rest, everything heard until then is over.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[str, HeardPlan] = OrderedDict()
        self._followed = self._waiting = ""

    def hear(self, plan: HeardPlan) -> None:
        """Takes a plan that was published."""
        key = plan.trajectory.hash()
        self._plans[key] = plan
        self._plans.move_to_end(key)
        while len(self._plans) > _REMEMBERED:
            self._plans.popitem(last=False)

    def update(self, followed: str, waiting: str, now: float) -> None:
        """Takes what the driver says.

        Args:
            followed: Hash of the plan it follows; empty for none.
            waiting: Hash of the plan that waits to take over; empty for none.
            now: Time of its clock [s]; plans that are no longer valid are forgotten, if nobody follows them.
        """
        before, self._followed, self._waiting = self._followed, followed, waiting
        if before and not followed:
            self._plans.clear()
        elif before != followed:
            self._plans.pop(before, None)
        for key, plan in list(self._plans.items()):
            is_over = plan.certificate is not None and now >= plan.certificate.expires_at
            if is_over and key not in (followed, waiting):
                del self._plans[key]

    def lose_driver(self) -> None:
        """Nobody says any more what is followed."""
        if self._followed:
            self._plans.clear()
        self._followed = self._waiting = ""

    @property
    def shown(self) -> HeardPlan | None:
        """The plan that is followed, or else the latest that is not followed yet."""
        if self._followed:
            return self._plans.get(self._followed)
        return next(reversed(self._plans.values()), None)

    @property
    def is_followed(self) -> bool:
        """Whether the shown plan is followed."""
        return self._followed in self._plans

    @property
    def waiting(self) -> HeardPlan | None:
        """The plan that will take over."""
        return self._plans.get(self._waiting)
