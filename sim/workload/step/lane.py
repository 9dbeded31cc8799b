"""The state of one pipeline stage while its operations are written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Lane:
    """What one pipeline stage has written so far: the ids that later operations wait for."""

    stage: int
    name: str
    history: list[str] = field(default_factory=list)  # compute of each layer block, in order
    pending: list[str] = field(default_factory=list)  # what the next compute must wait for
    held: list[str] = field(default_factory=list)  # gradient copies that end before the next gradients are computed
    blocked_by: list[str] = field(default_factory=list)  # the last copy that held the framework

    last: str = ""  # the last compute of all

    def computed(self, identity: str) -> None:
        """A layer block was written."""
        self.history.append(identity)
        self.last = identity

    def drain(self) -> list[str]:
        """Take what the next compute must wait for."""
        waits, self.pending = self.pending, []
        return waits

    def release(self) -> list[str]:
        """Take the gradient copies that the next gradients must wait for."""
        waits, self.held = self.held, []
        return waits
