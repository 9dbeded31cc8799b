"""Inference times from a replay of a prefill and sampled decode tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sim.errors import InternalError
from sim.metrics.breakdown import Stretch
from sim.records import Program, Replay, Struct


def num_sampled_tokens(program: Program) -> int | None:
    """Decode tokens that a replay of this program shows; None for a training step."""
    phases = {(operation.phase, operation.micro_batch) for operation in program.operations}
    if not any(phase == "prefill" for phase, _index in phases):
        return None
    return sum(phase == "decode" for phase, _index in phases)


class InferenceTimes(Struct, frozen=True, kw_only=True):
    """What a user of a model feels. Seconds, and tokens per second over all sequences of the block."""

    time_to_first_token_s: float
    time_per_output_token_s: float  # mean over the decode tokens; 0 when only one token is generated
    tokens_per_s: float  # generated tokens / (prefill + decode)
    decode_tokens_per_s: float  # generated tokens of the decode / decode time; 0 when only one token is generated
    total_s: float

    def stretch(self, replay: Replay) -> Stretch:
        """How the replayed tokens stand for all of them: seconds after the first token count so many times."""
        sampled = replay.makespan_s - self.time_to_first_token_s
        rest = self.total_s - self.time_to_first_token_s
        return Stretch(after_s=self.time_to_first_token_s, factor=rest / sampled if sampled > 0 else 1.0)


def inference_times(program: Program, replay: Replay, *, output_length: int, num_sequences: int) -> InferenceTimes:
    """Integrate the sampled decode tokens (operations carry their index as `micro_batch`) over the whole output.

    Between two sampled tokens the duration is linear in the index, as the context is. Raises InternalError when a
    sample is missing.
    """
    phases = {operation.id: (operation.phase, operation.micro_batch) for operation in program.operations}
    first_token_s, ends = 0.0, dict[int, float]()
    for record in replay.operations:
        phase, index = phases[record.id]
        if phase == "prefill":
            first_token_s = max(first_token_s, record.end_s)
        elif phase == "decode":
            ends[index] = max(ends.get(index, 0.0), record.end_s)
    if output_length > 1 and (1 not in ends or output_length - 1 not in ends):
        raise InternalError(f"decode of {output_length} tokens was sampled at {sorted(ends)} only")
    decode_s, durations, before = 0.0, list[tuple[int, float]](), first_token_s
    for index in sorted(ends):
        durations.append((index, ends[index] - before))
        before = ends[index]
    if durations:
        decode_s = durations[0][1] + sum(_between(first, second) for first, second in pairwise(durations))
    total_s = first_token_s + decode_s
    decoded = output_length - 1
    return InferenceTimes(
        time_to_first_token_s=first_token_s,
        time_per_output_token_s=decode_s / decoded if decoded else 0.0,
        tokens_per_s=num_sequences * output_length / total_s,
        decode_tokens_per_s=num_sequences * decoded / decode_s if decoded else 0.0,
        total_s=total_s,
    )


def mean_times(answers: Sequence[InferenceTimes]) -> InferenceTimes:
    """Mean seconds of several answers alike, and the tokens per second of all of them in a row."""
    num = len(answers)
    total_s = sum(item.total_s for item in answers)
    decode_s = total_s - sum(item.time_to_first_token_s for item in answers)
    tokens = sum(item.tokens_per_s * item.total_s for item in answers)
    decoded = sum(item.decode_tokens_per_s * (item.total_s - item.time_to_first_token_s) for item in answers)
    return InferenceTimes(
        time_to_first_token_s=(total_s - decode_s) / num,
        time_per_output_token_s=sum(item.time_per_output_token_s for item in answers) / num,
        tokens_per_s=tokens / total_s,
        decode_tokens_per_s=decoded / decode_s if decoded else 0.0,
        total_s=total_s / num,
    )


def _between(first: tuple[int, float], second: tuple[int, float]) -> float:
    """Sum of the durations of the tokens after `first` up to and with `second`: an arithmetic series."""
    count = second[0] - first[0]
    step = (second[1] - first[1]) / count
    return count * first[1] + step * count * (count + 1) / 2
