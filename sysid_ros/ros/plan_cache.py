"""Which of the published plans is worth a picture."""

from __future__ import annotations

from collections import OrderedDict

from sysid_ros.core.certification.plan import CertifiedPlan

_REMEMBERED = 8


class PlanCache:
    """Keeps plans until they end.

    A plan is drawn from the moment it is published. One that a driver follows counts before one that nobody follows
    yet; when the driver comes to rest, everything published until then is over.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[str, CertifiedPlan] = OrderedDict()
        self._followed: str | None = None
        self._waiting: str | None = None

    def on_plan(self, plan: CertifiedPlan) -> None:
        """Take a plan that was published."""
        self._plans[plan.plan_id] = plan
        self._plans.move_to_end(plan.plan_id)
        while len(self._plans) > _REMEMBERED:
            self._plans.popitem(last=False)

    def update(self, followed: str | None, waiting: str | None, now: float) -> None:
        """Take the status of the driver.

        Args:
            followed: ``plan_id`` of the plan it follows; None for none.
            waiting: ``plan_id`` of the plan that waits to take over; None for none.
            now: Time of its clock [s]; plans that are no longer valid are forgotten, if nobody follows them.
        """
        before, self._followed, self._waiting = self._followed, followed, waiting
        if before and not followed:
            self._plans.clear()
        elif before and before != followed:
            self._plans.pop(before, None)
        for key, plan in list(self._plans.items()):
            if now >= plan.certificate.expires_at and key not in (followed, waiting):
                del self._plans[key]

    def lose_driver(self) -> None:
        """Nobody says any more what is followed."""
        if self._followed:
            self._plans.clear()
        self._followed = self._waiting = None

    @property
    def shown(self) -> CertifiedPlan | None:
        """The plan that is followed, or else the latest that is not followed yet."""
        if self._followed:
            return self._plans.get(self._followed)
        return next(reversed(self._plans.values()), None)

    @property
    def is_followed(self) -> bool:
        """Whether the shown plan is followed."""
        return self._followed in self._plans

    @property
    def waiting(self) -> CertifiedPlan | None:
        """The plan that will take over."""
        return self._plans.get(self._waiting) if self._waiting else None
