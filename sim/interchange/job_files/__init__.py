"""Configurations of training jobs in other tools' words: DeepSpeed, accelerate, Trainer, torchtune, torchtitan, Megatron."""

from sim.interchange.job_files.accelerate import is_accelerate, read_accelerate
from sim.interchange.job_files.block import Block
from sim.interchange.job_files.deepspeed import read_deepspeed
from sim.interchange.job_files.json_file import parse_json, read_json
from sim.interchange.job_files.launcher import read_launch
from sim.interchange.job_files.megatron import read_megatron
from sim.interchange.job_files.settings import JobSettings, Known
from sim.interchange.job_files.torchtitan import read_toml, read_torchtitan
from sim.interchange.job_files.torchtune import is_torchtune, read_torchtune
from sim.interchange.job_files.trainer import read_trainer

__all__ = [
    "Block",
    "JobSettings",
    "Known",
    "is_accelerate",
    "is_torchtune",
    "parse_json",
    "read_accelerate",
    "read_deepspeed",
    "read_json",
    "read_launch",
    "read_megatron",
    "read_toml",
    "read_torchtitan",
    "read_torchtune",
    "read_trainer",
]
