"""The JSON Schema of scenario files, for editors: generated from the dataclasses that also validate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.config.scenario_keys import KEYS
from sim.config.short_form import ALL
from sim.config.validation import adapter
from sim.records import TensorClass
from sim.scenario import Options
from sim.workload.inference import Inference
from sim.workload.training import Training

_SHARES = {
    "oneOf": [
        {"type": "string", "description": "one tier, by role (gpu dram cxl nvme pmem) or name"},
        {"type": "object", "description": "shares of tiers, or {policy, shares | weights, layers, options}"},
        {"type": "array", "items": {"type": "object"}, "description": "entries for ranges of layers"},
    ]
}


def scenario_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario file."""
    definitions: dict[str, Any] = {}
    training, inference, options = (_block(cls, definitions) for cls in (Training, Inference, Options))
    for name in ("Training", "Inference"):  # a model is also written by name, or by the path of a config.json
        model = definitions[name]["properties"]["model"]
        model.pop("$ref", None)
        model["oneOf"] = [{"type": "string"}, {"$ref": "#/$defs/ModelShape"}, {"type": "object", "required": ["base"]}]
    ranks = definitions["Parallelism"]["properties"]["data"]
    ranks["anyOf"] = [{"type": ranks.pop("type"), "minimum": ranks.pop("minimum")}, {"const": ALL}]
    workload = {
        "type": "object",
        "properties": {"training": training, "inference": inference, "trace": {"type": ["string", "object"]}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    placement = _placement()
    forms: dict[str, Any] = {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"},
        "topology": {"type": ["string", "object"]},
        "workload": workload,
        "jobs": {"type": "array", "items": _job(workload, placement), "minItems": 1},
        "training": training,
        "model": {"type": "string"},
        "dataset": {"type": "object"},
        "placement": placement,
        "options": options,
        "measured": {"type": "array", "items": {"type": "object", "required": ["metric", "value", "source"]}},
        "claim": {"type": "object", "required": ["id", "stated"]},
        "prices": {"type": "string"},
        "assumptions": {"type": "array", "items": {"type": "string"}},
    }
    properties = {key: forms.get(key, {"type": "object"}) | {"description": meaning} for key, meaning in KEYS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tiersim scenario",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": definitions,
    }


def _placement() -> dict[str, Any]:
    """The schema of a placement."""
    return {
        "type": "object",
        "properties": {name.value: _SHARES for name in TensorClass}
        | {"policy": {"type": "string"}, "options": {"type": "object"}},
        "additionalProperties": False,
    }


def _job(workload: Mapping[str, Any], placement: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one of several jobs."""
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "host": {"type": "string"},
            "gpus": {"type": ["string", "array"], "items": {"type": "string"}},
            "workload": workload,
            "placement": placement,
            "start": {"type": "string"},
            "after": {"type": "string"},
            "steps": {"type": "integer", "minimum": 1},
        },
        "required": ["workload"],
        "additionalProperties": False,
    }


def _block(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Add the schema of a dataclass and of all it names to `definitions`; returns a reference to it."""
    schema = adapter(cls).json_schema(ref_template="#/$defs/{model}")
    definitions.update(schema.pop("$defs", {}))
    definitions[cls.__name__] = schema
    return {"$ref": f"#/$defs/{cls.__name__}"}
