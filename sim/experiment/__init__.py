"""One run: a scenario in, a result out. Joins the rooms; knows no physics and prints nothing."""

from sim.experiment.preparing import homes, placed, prepare, step_of
from sim.experiment.result import Result
from sim.experiment.running import fastest_twin, run

__all__ = ["Result", "fastest_twin", "homes", "placed", "prepare", "run", "step_of"]
