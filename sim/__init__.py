"""tiersim: a discrete-event simulator of memory tiers for LLM training."""

__version__ = "0.1.0"
