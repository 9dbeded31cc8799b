"""Power limits of boards: how much of its clock a device keeps below its rated power."""

from __future__ import annotations

#: clock over power: dynamic power is C V^2 f and the voltage follows the clock (assumed; 1/4 to 1/2)
_EXPONENT = 1 / 3


def clock_share(cap_w: float, rated_w: float) -> float:
    """Share of its clock that a board of `rated_w` watts keeps under a limit of `cap_w` watts, above 0 and at most 1.

    (cap / rated)^(1/3), the cube law of dynamic power. Four RTX 3090 held to 280 of 350 W kept 0.95 of their training
    rate (Puget Systems, November 2020), the law says 0.93. Memory has a clock of its own and is not slowed. Raises
    ValueError for a limit or a rated power that is not positive.
    """
    if cap_w <= 0 or rated_w <= 0:
        raise ValueError(f"watts are positive, got a limit of {cap_w!r} and a rated power of {rated_w!r}")
    return float(min(1.0, (cap_w / rated_w) ** _EXPONENT))
