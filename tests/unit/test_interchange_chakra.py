"""Chakra: the wire format both ways, the pitfalls of real files, and export with memory nodes."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.config import load_machine
from sim.errors import InputError
from sim.interchange import chakra
from sim.interchange.chakra import wire
from sim.interchange.chakra.nodes import Node, NodeType, Trace
from sim.interchange.chakra.write import traces_of
from sim.interchange.load import load_trace
from sim.interchange.one_rank import groups_of
from sim.interchange.step_file import check_step
from sim.placement.plan import Entry, Placement
from sim.program import lower
from sim.records import Kernel, Kind, RankClass, Step, StepOperation, TensorClass

scalars = st.one_of(
    st.tuples(st.just(27), st.booleans()),
    st.tuples(st.sampled_from([9, 7]), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(13), st.integers(0, 2**64 - 1)),
    st.tuples(st.sampled_from([15, 17]), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(21), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(23), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(3), st.floats(allow_nan=False)),
    st.tuples(st.just(5), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(29), st.text()),
    st.tuples(st.just(31), st.binary(max_size=5)),
    st.tuples(st.just(30), st.lists(st.text(max_size=5), max_size=3)),
    st.tuples(st.just(14), st.lists(st.integers(0, 2**64 - 1), max_size=3)),
    st.tuples(st.just(18), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)),
    st.tuples(st.just(28), st.lists(st.booleans(), max_size=3)),
    st.tuples(st.just(4), st.lists(st.floats(allow_nan=False), max_size=3)),
    st.tuples(st.just(0), st.none()),
)
ids = st.integers(0, 2**64 - 1)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    attributes = draw(st.dictionaries(st.text(min_size=1, max_size=8), scalars, max_size=4))
    return Node(
        draw(ids), draw(st.text(max_size=20)), draw(st.sampled_from(NodeType)), draw(st.lists(ids, max_size=4)),
        draw(st.lists(ids, max_size=4)), draw(ids), draw(ids), {name: value for name, (_, value) in attributes.items()},
        {name: kind for name, (kind, _) in attributes.items()},
    )  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(nodes(), min_size=1, max_size=4))
def test_nodes_survive_the_wire(written: list[Node]) -> None:
    content = chakra.write_trace(Trace("x.0.et", "0.0.4", written))
    assert chakra.looks_like(content)
    read = chakra.read_trace(content, "x.0.et")
    assert read.version == "0.0.4"
    assert [msgspec.structs.astuple(node) for node in read.nodes] == [msgspec.structs.astuple(node) for node in written]


@settings(deadline=None, max_examples=100)
@given(st.lists(nodes(), min_size=2, max_size=4), st.floats(0.0, 0.999))
def test_a_cut_file_gives_its_whole_nodes_or_is_refused(written: list[Node], share: float) -> None:
    content = chakra.write_trace(Trace("x.0.et", "0.0.4", written))
    cut = content[: int(len(content) * share)]
    try:
        read = chakra.read_trace(cut, "x.0.et")
    except InputError:
        return
    whole = [n.id for n in written[: len(read.nodes)]]
    assert [n.id for n in read.nodes] == whole
    assert len(read.nodes) < len(written)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
@example(b"\x01\x00\x00")  # a first message that is none, then an empty node
@example(b"\x03\x0a\x01\xff\x00")  # a version that is not UTF-8
def test_noise_never_crashes(noise: bytes) -> None:
    chakra.looks_like(noise)
    try:
        read = chakra.read_trace(noise, "x.0.et")
        chakra.step_from([read])
    except InputError as error:
        assert "x.0.et" in str(error)  # noqa: PT017


def test_varints_of_known_bytes() -> None:
    """Examples of the protocol-buffers encoding guide."""
    assert wire.varint(150) == b"\x96\x01"
    assert wire.read_varint(b"\x96\x01", 0) == (150, 2)
    assert wire.varint(-2) == b"\xfe" + b"\xff" * 8 + b"\x01"
    assert wire.signed(wire.read_varint(wire.varint(-2), 0)[0]) == -2
    assert wire.text(2, "testing") == b"\x12\x07testing"
    with pytest.raises(wire.WireError, match="overlong"):
        wire.read_varint(b"\xff" * 11, 0)


def node(identity: int, kind: NodeType, deps: list[int] | None = None, us: int = 0, **attributes: Any) -> Node:
    return Node(identity, f"n{identity}", kind, [], deps or [], 0, us, attributes)


def step(*listed: Node, **options: Any) -> Step:
    read = chakra.step_from([Trace("x.0.et", "0.0.4", list(listed))], **options)
    assert not check_step(read)
    return read


def test_missing_dependencies_and_cpu_copies_of_collectives_are_counted() -> None:
    read = step(
        node(5, NodeType.COMM_COLL, [1, 2], us=7, is_cpu_op=True, comm_size=64),
        node(6, NodeType.COMM_COLL, [5], comm_size=4096, comm_type=0, is_cpu_op=0),
    )
    assert [(op.kind, op.size_bytes) for op in read.operations] == [(Kind.COMPUTE, 0), (Kind.COLLECTIVE, 4096)]
    assert read.operations[0].fixed_s == 7e-6
    assert read.operations[1].after == (read.operations[0].id,)
    assert any("not in the file (ignored): 2" in note for note in read.notes)
    assert any("communication nodes of the CPU" in note for note in read.notes)


def test_element_counts_become_bytes_and_gathers_count_the_result() -> None:
    compute = node(1, NodeType.COMP, num_ops=10**9, tensor_size=1000, inputs=["a", "500.0", "b", "x"])
    gather = node(2, NodeType.COMM_COLL, [1], comm_type=2, comm_size=100, pg_name="1", is_cpu_op=None)
    read = step(compute, gather, groups={"1": [0, 1], "2": [0, 2]}, element_bytes=2.0, num_ranks=4)
    kernel = read.operations[0].kernels[0]
    assert (kernel.kind, kernel.flops, kernel.read_bytes, kernel.write_bytes) == ("gemm", 1e9, 1000, 2000)
    assert (read.operations[1].size_bytes, read.operations[1].group) == (400, "tensor")
    assert read.group_sizes == {"world": 4, "tensor": 2, "data": 2}


def test_strided_groups_are_data_parallel() -> None:
    read = step(
        node(1, NodeType.COMM_COLL, comm_type=0, comm_size=8, pg_name="2"), groups={"1": [0, 1], "2": [0, 2], "3": [1, 3]}
    )
    assert read.operations[0].group == "data"
    assert read.rank_classes[0].num_ranks == 4


def test_circles_are_refused_unless_the_converter_made_them() -> None:
    with pytest.raises(InputError, match="wait for each other in a circle, among them 1 n1, 2 n2"):
        step(node(1, NodeType.COMP, [2], us=1), node(2, NodeType.COMP, [1], us=1))
    first, second = node(1, NodeType.COMP, us=1), node(2, NodeType.COMP, [1], us=1)
    first.ctrl_deps = [2]  # a piece of an operator that names a later piece as its parent
    read = step(first, second)
    assert len(read.operations) == 2
    assert any("close a circle" in note for note in read.notes)


def test_memory_nodes_are_transfers_between_named_tiers() -> None:
    read = step(
        node(1, NodeType.MEM_LOAD, tensor_size=100, source="cxl0", target="gpu"),
        node(2, NodeType.MEM_STORE, [1], tensor_size=50),
    )
    assert [(op.source, op.target, op.size_bytes) for op in read.operations] == [("cxl0", "gpu", 100), ("gpu", "dram", 50)]


def test_ranks_are_joined_at_their_collectives() -> None:
    def rank(us: int) -> list[Node]:
        return [node(1, NodeType.COMP, us=us), node(2, NodeType.COMM_COLL, [1], comm_type=0, comm_size=8)]

    read = chakra.step_from([Trace("x.0.et", "", rank(10)), Trace("x.1.et", "", rank(99))])
    assert not check_step(read)
    first = next(op for op in read.operations if op.id == "rank0.collective.0")
    assert set(first.after) == {"rank0.compute.0", "rank1.compute.0"}
    with pytest.raises(InputError, match="rank 1 is given twice"):
        chakra.step_from([Trace("x.1.et", "", rank(1)), Trace("y.1.et", "", rank(1))])


def offloaded() -> tuple[Step, Placement]:
    """A rank that fetches weights from two tiers, computes, reduces, and stores gradients."""
    rank = [
        StepOperation(id="rank.h2d.0", kind=Kind.TRANSFER, stream="rank.h2d", sequence=0, source="home:weights", target="gpu",
                      size_bytes=1e9, tensor_class=TensorClass.WEIGHTS, phase="forward"),
        StepOperation(id="rank.compute.0", kind=Kind.COMPUTE, stream="rank.compute", sequence=0, after=("rank.h2d.0",),
                      kernels=(Kernel(kind="gemm", flops=1e12, read_bytes=1e9, count=2.0),), layer=3),
        StepOperation(id="rank.compute.1", kind=Kind.MARKER, stream="rank.compute", sequence=1),
        StepOperation(id="rank.collective.0", kind=Kind.COLLECTIVE, stream="rank.collective", sequence=0,
                      collective="all_gather", group="data", size_bytes=1e8, num_calls=2.0, after=("rank.compute.1",)),
        StepOperation(id="rank.d2h.0", kind=Kind.TRANSFER, stream="rank.d2h", sequence=0, source="gpu", target="dram",
                      size_bytes=5e8, after=("rank.collective.0",)),
        StepOperation(id="rank.cpu.0", kind=Kind.HOST_UPDATE, stream="rank.cpu", sequence=0, num_elements=1e6,
                      bytes_per_element=28.0, after=("rank.d2h.0",)),
    ]  # fmt: skip
    made = Step(
        name="s",
        operations=tuple(rank),
        rank_classes=(RankClass(name="rank", num_ranks=2),),
        group_sizes={"data": 2, "world": 2},
    )
    placement = Placement(entries=(Entry(tensor_class=TensorClass.WEIGHTS, shares={"dram": 0.75, "cxl0": 0.25}),))
    return made, placement


def test_export_writes_memory_nodes_per_tier_and_passes_markers_through() -> None:
    made, placement = offloaded()
    written = traces_of(made, placement, seconds={"rank.compute.0": 0.0125})
    assert sorted(written) == [0, 1]
    by_name = {n.name: n for n in written[1].nodes}
    kinds = Counter(NodeType(n.type).name for n in written[1].nodes)
    assert kinds == {"MEM_LOAD": 2, "COMP": 2, "COMM_COLL": 1, "MEM_STORE": 1}
    loads = [n for n in written[1].nodes if n.type == NodeType.MEM_LOAD]
    assert {n.attributes["source"]: n.attributes["tensor_size"] for n in loads} == {"dram": 750_000_000, "cxl0": 250_000_000}
    compute = by_name["rank.compute.0"]
    assert sorted(compute.data_deps) == sorted(n.id for n in loads)
    assert (compute.attributes["num_ops"], compute.attributes["tensor_size"], compute.duration_us) == (
        2 * 10**12,
        2 * 10**9,
        12500,
    )
    gather = by_name["rank.collective.0"]
    assert gather.data_deps == [compute.id]  # through the marker
    assert gather.attributes["comm_size"] == 10**8  # two calls of half of 1e8 from each of two members
    assert by_name["rank.cpu.0"].attributes["is_cpu_op"] is True
    assert groups_of(made) == {"data": [[0, 1]], "world": [[0, 1]]}


def test_messages_between_pipeline_stages_become_send_and_receive() -> None:
    send = StepOperation(id="a.p2p.0", kind=Kind.COLLECTIVE, stream="a.p2p", sequence=0, collective="point_to_point",
                         target="b", size_bytes=64.0)  # fmt: skip
    use = StepOperation(id="b.compute.0", kind=Kind.COMPUTE, stream="b.compute", sequence=0, after=("a.p2p.0",),
                        kernels=(Kernel(kind="other", recorded_s=1.0),))  # fmt: skip
    classes = (RankClass(name="a", num_ranks=2), RankClass(name="b", num_ranks=2, first_rank=2))
    written = traces_of(Step(name="s", operations=(send, use), rank_classes=classes, group_sizes={"world": 4}), Placement())
    (sent,) = written[1].nodes
    receive, compute = written[3].nodes
    assert (sent.type, sent.attributes["comm_dst"]) == (NodeType.COMM_SEND, 3)
    assert (receive.type, receive.attributes["comm_src"]) == (NodeType.COMM_RECV, 1)
    assert sent.attributes["comm_tag"] == receive.attributes["comm_tag"]
    assert compute.data_deps == [receive.id]


def test_a_step_keeps_its_amounts_and_its_time_through_export_and_import(tmp_path: Path) -> None:
    made, _ = offloaded()
    machine = load_machine("epyc-9554p-2x4090")
    placement = Placement(entries=(Entry(tensor_class=TensorClass.WEIGHTS, shares={"dram": 1.0}),))
    for rank, trace in traces_of(made, placement).items():
        (tmp_path / f"t.{rank}.et").write_bytes(chakra.write_trace(trace))
    read = load_trace(tmp_path / "t.0.et", num_ranks=2)

    def end_s(which: Step) -> float:
        from sim.engine import replay

        return replay(lower(which, machine, placement)).makespan_s

    flat = msgspec.structs.replace(made, operations=tuple(
        msgspec.structs.replace(op, num_calls=1.0, size_bytes=op.size_bytes * op.num_calls) for op in made.operations
    ))  # fmt: skip
    assert sum(op.size_bytes for op in read.operations) == pytest.approx(sum(op.size_bytes for op in flat.operations))
    assert end_s(read) == pytest.approx(end_s(flat), rel=0.02)


def test_the_json_dialect() -> None:
    content = b'{"workload_graph": [{"Id": 3, "Name": "x", "NodeType": 4, "ctrlDeps": [1], "runtime": 5, "is_cpu_op": false}]}'
    read = chakra.step_from([chakra.read_trace(content, "t.0.json")])
    assert read.operations[0].kernels[0].recorded_s == pytest.approx(5e-6)
    for bad, message in (
        (b"{}", "no 'workload_graph'"),
        (b'{"workload_graph": [{"a": 1}]}', "without an id"),
        (b"{", "not JSON"),
    ):
        with pytest.raises(InputError, match=message):
            chakra.read_trace(bad, "t.0.json")
