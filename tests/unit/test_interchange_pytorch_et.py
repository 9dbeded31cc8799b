"""PyTorch execution traces: both schemas, storages as dependencies, what has no time."""

import json
from typing import Any

import pytest

from sim.errors import InputError
from sim.interchange.load import load_trace
from sim.interchange.pytorch_et import step_from
from sim.records import Kind, Step


def tensor(storage: int, elements: int, device: str = "cuda:0", width: int = 4) -> list[Any]:
    return [storage + 1000, storage, 0, elements, width, device]


def node(identity: int, name: str, inputs: list[Any], outputs: list[Any], parent: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": identity, "name": name, "parent": parent, "inputs": inputs, "outputs": outputs} | more


NODES = [
    node(1, "[pytorch|root]", [], [], parent=0),
    node(2, "aten::copy_", [tensor(1, 64), tensor(9, 64, "cpu")], [tensor(1, 64)]),
    node(3, "aten::mm", [tensor(1, 64), tensor(2, 32)], [tensor(3, 32)],
         input_shapes=[[8, 8], [8, 4]], input_types=["Tensor(float)", "Tensor(float)"]),
    node(4, "aten::view", [tensor(3, 32)], [tensor(3, 32)]),
    node(5, "nccl:all_reduce", [tensor(3, 32)], [], parent=6),
    node(6, "record_param_comms", [[tensor(3, 32)], 7, "allreduce"], []),
    node(7, "aten::relu", [tensor(2, 32)], [tensor(4, 32)]),
    node(8, "record_param_comms", [7, "wait", [], []], []),
    node(9, "aten::add_", [tensor(5, 32), tensor(2, 32)], [tensor(5, 32)]),
    node(10, "aten::mul", [tensor(8, 5, "cpu")], [tensor(8, 5, "cpu")]),
]  # fmt: skip


def read(nodes: list[dict[str, Any]], **options: Any) -> Step:
    return step_from([("et.json", json.dumps({"schema": "1.0.1", "pid": 1, "nodes": nodes}).encode())], **options)


def test_leaf_operators_become_kernels_and_collectives_depend_through_storages() -> None:
    step = read(NODES, num_ranks=8)
    by_name = {op.name: op for op in step.operations}
    assert list(by_name) == ["aten::copy_", "aten::mm", "nccl:all_reduce", "aten::relu", "aten::add_"]
    copy, product, reduce = (by_name[name] for name in ("aten::copy_", "aten::mm", "nccl:all_reduce"))
    assert (copy.kind, copy.source, copy.target, copy.size_bytes) == (Kind.TRANSFER, "dram", "gpu", 256)
    assert product.kernels[0].flops == 2 * 8 * 8 * 4
    assert (product.kernels[0].read_bytes, product.kernels[0].write_bytes) == (4 * 96, 4 * 32)
    assert product.after == (copy.id,)
    assert (reduce.size_bytes, reduce.after) == (128, (product.id,))
    assert by_name["aten::relu"].after == ()  # runs beside the all-reduce
    assert by_name["aten::add_"].after == (reduce.id,)  # after the recorded wait
    assert step.rank_classes[0].num_ranks == 8
    assert any("operators on CPU tensors (left out: they hold no times): 1" in note for note in step.notes)


def test_the_newer_schema_says_the_same() -> None:
    nodes = [
        {"id": n["id"], "name": n["name"], "ctrl_deps": n["parent"],
         "inputs": {"values": n["inputs"], "shapes": n.get("input_shapes", []), "types": n.get("input_types", [])},
         "outputs": {"values": n["outputs"], "shapes": [], "types": []},
         "attrs": [{"name": "pg_size", "type": "uint64", "value": 8}]}
        for n in NODES
    ]  # fmt: skip
    assert read(nodes).operations == read(NODES, num_ranks=8).operations
    assert read(nodes).rank_classes[0].num_ranks == 8


def test_what_is_no_gpu_trace_is_refused() -> None:
    with pytest.raises(InputError, match="no operator on GPU tensors"):
        read(NODES[-1:])
    with pytest.raises(InputError, match="is no execution trace"):
        step_from([("et.json", b'{"schema": "1", "nodes": [{"id": "x"}]}')])


def test_of_several_ranks_the_first_stands_for_all(tmp_path: Any) -> None:
    content = json.dumps({"schema": "1.0.1", "nodes": NODES})
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_text(content)
    both = load_trace([tmp_path / "b.json", tmp_path / "a.json"])
    assert both.name == "a.json"
    assert both.rank_classes[0].num_ranks == 2


def test_kinds_are_not_mixed_and_other_files_are_named(tmp_path: Any) -> None:
    (tmp_path / "et.json").write_text(json.dumps({"schema": "1.0.1", "nodes": NODES}))
    (tmp_path / "k.json").write_text('{"traceEvents": []}')
    with pytest.raises(InputError, match="files of different kinds: kineto, pytorch-et"):
        load_trace([tmp_path / "et.json", tmp_path / "k.json"])
    for content, message in {
        '<?xml version="1.0"?><topology version="2.0"/>': "is output of lstopo FILE.xml, .* --hwloc",
        "<system/>": "is XML, not a trace", '{"fio version": "fio-3.33"}': "is output of fio",
        "\tGPU0\tGPU1\n": "nvidia-smi topo", "# size count type time algbw busbw": "output of nccl-tests",
        "Intel(R) Memory Latency Checker - v3": "output of Intel mlc, .* --mlc", "anything": "no trace of a known kind",
        "[[-1, 1, 37888, 7], [-1, 1, 512, 7]]": "is a memory timeline",
        '{"train_batch_size": 4, "zero_optimization": {}}': "DeepSpeed configuration",
    }.items():  # fmt: skip
        (tmp_path / "x").write_text(content)
        with pytest.raises(InputError, match=message):
            load_trace(tmp_path / "x")


def timed(identity: int, name: str, start_us: float, duration_us: float, **more: Any) -> dict[str, Any]:
    side: dict[str, Any] = {"values": [], "shapes": [], "types": []}
    times = {"ts": start_us, "exclusive_dur": duration_us, "inclusive_dur": duration_us}
    return {"id": identity, "name": name, "ctrl_deps": 1, "inputs": side, "outputs": side, "attrs": []} | times | more


def side(tensors: list[Any], shapes: list[Any], kind: str = "Tensor(float)") -> dict[str, Any]:
    return {"values": tensors, "shapes": shapes, "types": [kind] * len(tensors)}


PRODUCT = {"inputs": side([tensor(1, 64), tensor(2, 32)], [[8, 8], [8, 4]]), "outputs": side([tensor(3, 32)], [[8, 4]])}
#: as Chakra's linker writes it: operators of the CPU with their own time, GPU work below them
LINKED = [
    timed(2, "aten::mm", 0.0, 5.0, **PRODUCT),
    timed(3, "ampere_sgemm_64x64", 8.0, 20.0, ctrl_deps=2, cat="kernel", stream=7, **PRODUCT),
    timed(4, "aten::copy_", 6.0, 2.0, inputs=side([tensor(9, 32, "cpu"), tensor(3, 32)], [[8, 4], [8, 4]])),
    timed(5, "Memcpy DtoH (Device -> Pageable)", 28.0, 4.0, ctrl_deps=4, cat="gpu_memcpy", stream=7,
          inputs=side([tensor(9, 32, "cpu"), tensor(3, 32)], [[8, 4], [8, 4]])),
    timed(6, "record_param_comms", 9.0, 1.0, inputs=side([tensor(3, 32)], [[8, 4]]),
          attrs=[{"name": "pg_size", "type": "uint64", "value": 4}, {"name": "collective_name", "value": "allreduce"}]),
    timed(7, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30.0, 9.0, ctrl_deps=6, cat="kernel", stream=20,
          inputs=side([tensor(3, 32)], [[8, 4]])),
    timed(8, "aten::clock", 11.0, -3.0),
]  # fmt: skip


def test_a_trace_joined_with_a_profile_keeps_times_of_kernels_and_times_copies_anew() -> None:
    document = {"schema": "1.1.0-chakra.0.0.4", "nodes": [timed(1, "[thread]", 0.0, 0.0), *LINKED]}
    step = step_from([("et.json", json.dumps(document).encode())])
    by_name = {op.name: op for op in step.operations}
    product = by_name["ampere_sgemm_64x64"]
    (kernel,) = product.kernels
    assert (kernel.recorded_s, kernel.flops, kernel.kind) == (pytest.approx(20e-6), 2 * 8 * 8 * 4, "gemm")
    assert product.after == (by_name["aten::mm"].id,)  # its launch
    copy = by_name["Memcpy DtoH (Device -> Pageable)"]
    assert (copy.kind, copy.source, copy.size_bytes, copy.is_pinned) == (Kind.TRANSFER, "gpu", 128, False)
    assert set(copy.after) == {product.id, by_name["aten::copy_"].id}
    reduce = by_name["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert (reduce.kind, reduce.size_bytes, reduce.group) == (Kind.COLLECTIVE, 128, "world")
    assert step.rank_classes[0].num_ranks == 4
    assert by_name["aten::copy_"].fixed_s == pytest.approx(2e-6)
    assert step.source_step_s == pytest.approx(39e-6)
    assert "nodes with a negative duration (left out): 1" in step.notes


def communicating(*attributes: dict[str, object], listed: str = "") -> list[dict[str, object]]:
    """An all-reduce with those attributes, behind the node that lists the process groups."""
    groups = {
        "id": 1,
        "name": "## process_group:init ##",
        "ctrl_deps": 0,
        "inputs": {"values": [listed], "shapes": [], "types": []},
    }
    sent = timed(2, "record_param_comms", 0.0, 1.0, inputs=side([tensor(3, 32)], [[8, 4]]), attrs=list(attributes))
    work = timed(3, "ncclDevKernel_AllReduce", 1.0, 9.0, ctrl_deps=2, cat="kernel", stream=20,
                 inputs=side([tensor(3, 32)], [[8, 4]]))  # fmt: skip
    return [groups, sent, work]


@pytest.mark.parametrize(
    ("listed", "ranks", "group"),
    [
        ([{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": []},
          {"pg_name": "1", "pg_size": 4, "ranks": [0, 1, 2, 3]}], 8, "tensor"),
        ([{"pg_name": "0", "pg_size": 8, "ranks": list(range(8))}, {"pg_name": "1", "pg_size": 2, "ranks": [0, 4]}], 8, "data"),
        ([{"pg_name": "1", "pg_size": 2, "ranks": [0, 4]}], 8, "data"),
        ("not json", 4, "world"),
        ([7, {"pg_name": 3}], 4, "world"),
    ],
)  # fmt: skip
def test_the_node_that_lists_process_groups_tells_ranks_and_members(listed: object, ranks: int, group: str) -> None:
    text = listed if isinstance(listed, str) else json.dumps(listed)
    attributes = [{"name": "pg_name", "value": "1"}, {"name": "pg_size", "type": "uint64", "value": 4}]
    document = {"schema": "1.1.1-chakra.0.0.4", "nodes": communicating(*attributes, listed=text)}
    step = step_from([("et.json", json.dumps(document).encode())])
    assert step.rank_classes[0].num_ranks == ranks
    assert [op.group for op in step.operations if op.kind is Kind.COLLECTIVE] == [group]
