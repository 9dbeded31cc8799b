"""Files in and out: strict YAML and JSON to objects and back; the only user of yaml and pydantic."""

from sim.config.locate import builtins, data_folder, locate
from sim.config.machine import load_machine
from sim.config.parts import load_parts
from sim.config.scenario_file import ScenarioFile, load_scenario, scenario_of
from sim.config.validation import validate
from sim.config.yaml_source import Document, parse_yaml, read_yaml

__all__ = [
    "Document",
    "ScenarioFile",
    "builtins",
    "data_folder",
    "load_machine",
    "load_parts",
    "load_scenario",
    "locate",
    "parse_yaml",
    "read_yaml",
    "scenario_of",
    "validate",
]
