"""``python -m sim.cli``: the `tiersim` command without an installation."""

from sim.cli import main

main()
