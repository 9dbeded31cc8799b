"""`generate`: a Training and the homes of its tensors in, the operations of one step out."""

from __future__ import annotations

from collections.abc import Mapping

from sim.records import RankClass, Residency, Step, TensorClass
from sim.workload import frameworks, shapes
from sim.workload.step.builder import StepBuilder
from sim.workload.step.gradients import Gradients
from sim.workload.step.lane import Lane
from sim.workload.step.passes import Passes
from sim.workload.step.plan import Plan, resolve
from sim.workload.step.schedule import Turn, turns
from sim.workload.step.update import Update
from sim.workload.training import Training

#: a step is written layer by layer while that stays below this many layer passes; beyond, whole chunks
_MAX_LAYER_PASSES = 6000


def generate(
    training: Training,
    homes: Mapping[TensorClass, str],
    num_micro_batches: int | None = None,
    gpu_share: float = 0.0,
    state_edges: tuple[int, ...] = (),
) -> Step:
    """Operations of one optimizer step, one representative per pipeline stage.

    `homes` says where the placement keeps each tensor class: "gpu" (default), "host" or "storage". Sizes are bytes per
    rank. `num_micro_batches` writes out that many of the step's micro-batches (default all); what belongs to the step as a
    whole, its tokens and FLOPs and its framework's overhead, stays that of all. `gpu_share` of the optimizer states stays on
    the GPU and is updated there, whatever their home. The states of each layer of `state_edges` lie elsewhere than those of
    the layer before, so a sub-group that spans one is updated in parts. Raises InputError for a plan that no framework can run.
    """
    plan = resolve(training, homes, frameworks.profile(training.framework), num_micro_batches, gpu_share, state_edges)
    builder = StepBuilder(plan)
    gradients = Gradients(builder)
    passes = Passes(builder, gradients, _layers_per_block(plan))
    lanes = [Lane(stage, f"s{stage}" if plan.stages > 1 else "rank") for stage in range(plan.stages)]
    _emit_passes(plan, passes, lanes)
    update = Update(builder, gradients)
    for lane in lanes:
        update.emit(lane)
    passes.loader.refill(lanes[0])
    ranks = plan.world // plan.stages
    return Step(
        name=f"{training.model.name} step",
        operations=tuple(builder.operations),
        rank_classes=tuple(RankClass(name=lane.name, num_ranks=ranks, first_rank=lane.stage * ranks) for lane in lanes),
        group_sizes=_group_sizes(plan),
        resident=_resident(plan, update, lanes),
        model_flops=model_flops(plan),
        num_tokens=float(training.batch_size * training.sequence_length)
        * training.gradient_accumulation
        * training.parallelism.data,
        notes=update.notes(),
    )


def _layers_per_block(plan: Plan) -> int:
    """1 while the step stays small or layers synchronise with each other; whole chunks for huge pipelines."""
    passes = plan.shape.layers * plan.num_micro_batches
    if passes <= _MAX_LAYER_PASSES or plan.zero_stage == 3:
        return 1
    return plan.shape.layers


def _emit_passes(plan: Plan, passes: Passes, lanes: list[Lane]) -> None:
    """Write every stage's passes, each after the pass of the neighbouring stage that feeds it."""
    stages, chunks = plan.stages, plan.training.parallelism.interleave
    micro_batches = plan.num_micro_batches
    queues = [list(turns(stage, stages, chunks, micro_batches)) for stage in range(stages)]
    position = [0] * stages
    sent: dict[tuple[str, int, int], str | None] = {}  # (direction, micro-batch, chunk index) -> send
    last_chunk = stages * chunks - 1
    remaining = sum(len(queue) for queue in queues)
    while remaining:
        for stage in range(stages):
            while position[stage] < len(queues[stage]):
                turn = queues[stage][position[stage]]
                index = turn.chunk * stages + stage
                feeder = _feeder(turn, index, last_chunk)
                if feeder is not None and feeder not in sent:
                    break
                received = sent[feeder] if feeder is not None else None
                key = (turn.direction, turn.micro_batch, index)
                if turn.direction == "forward":
                    sent[key] = passes.forward(lanes[stage], turn, received)
                else:
                    is_last = turn.micro_batch == micro_batches - 1
                    sent[key] = passes.backward(lanes[stage], turn, received, is_last=is_last)
                position[stage] += 1
                remaining -= 1


def _feeder(turn: Turn, index: int, last_chunk: int) -> tuple[str, int, int] | None:
    """The pass whose output this pass needs from another stage."""
    if turn.direction == "forward":
        return ("forward", turn.micro_batch, index - 1) if index else None
    return ("backward", turn.micro_batch, index + 1) if index < last_chunk else None


def _group_sizes(plan: Plan) -> dict[str, int]:
    parallelism = plan.training.parallelism
    return {
        "data": parallelism.data * parallelism.context,
        "tensor": parallelism.tensor,
        "pipeline": parallelism.pipeline,
        "context": parallelism.context,
        "expert": parallelism.expert,
        "expert_data": plan.expert_replicas,
        "shard": plan.shards,
        "replica": plan.replicas,
        "world": plan.world,
    }


def _resident(plan: Plan, update: Update, lanes: list[Lane]) -> tuple[Residency, ...]:
    """Static bytes of the largest stage, per rank: weights, gradients, master weights, optimizer states."""
    lane = max(lanes, key=lambda item: plan.rank_parameters(item.stage).total)
    ranked, updated = plan.rank_parameters(lane.stage), update.elements(lane)
    dense, routed = plan.shards, min(plan.shards, plan.expert_replicas)
    weights = ranked.dense / dense + ranked.routed / routed if plan.zero_stage == 3 else ranked.total
    gradients = updated if plan.zero_stage >= 2 else ranked.trained
    adapter = ranked.adapter / (dense if plan.zero_stage == 3 else 1)
    stored = weights * update.builder.stored_weight_bytes + adapter * plan.weight_bytes
    return (
        Residency(tensor_class=TensorClass.WEIGHTS, size_bytes=stored),
        Residency(tensor_class=TensorClass.GRADIENTS, size_bytes=gradients * plan.weight_bytes),
        Residency(tensor_class=TensorClass.MASTER_WEIGHTS, size_bytes=updated * 4.0),
        Residency(tensor_class=TensorClass.OPTIMIZER_STATES, size_bytes=updated * 8.0),
    )


def model_flops(plan: Plan) -> float:
    """FLOPs of the whole job's step without recomputation: 6 per active weight and token plus causal attention.

    Of frozen weights (adapters) only 4: there is no weight gradient.
    """
    training, shape = plan.training, plan.shape
    tokens = training.batch_size * training.sequence_length * training.gradient_accumulation * training.parallelism.data
    count = plan.count
    unused = count.moe_layers * (count.experts - shape.experts_per_token) * count.expert
    weights = count.layers - unused + shape.vocabulary * shape.hidden
    width = (shapes.query_width(shape) + shapes.output_width(shape)) / 2
    windowed = shapes.windowed_layers(shape)
    keys, in_window = shapes.mean_keys(shape, training.sequence_length, plan.score_share)
    attention = 12.0 * width * shape.layers * ((1.0 - windowed) * keys + windowed * in_window)
    each = 4.0 if plan.is_frozen else 6.0
    return float(tokens) * (each * weights + attention)
