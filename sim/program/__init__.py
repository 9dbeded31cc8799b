"""Lowering: a step for any machine becomes a program on one."""

from sim.program.lower import lower

__all__ = ["lower"]
