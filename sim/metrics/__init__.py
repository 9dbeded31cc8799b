"""Statistics: pure functions of a program and the records of its replay."""

from sim.metrics.summary import ChannelUse, Summary, TierUse, summarise

__all__ = ["ChannelUse", "Summary", "TierUse", "summarise"]
