"""The study store: what a row keeps, what a second write does, what is refused."""

import sqlite3

import pytest

from sim.errors import InputError
from sim.study.store import FILE_NAME, Outcome, Store


def outcome(position, key="k", status="fits", **more):
    return Outcome(position=position, key=key, status=status, parameters={"a": position}, point=b'{"step_time_s":1.5}', **more)


def test_outcomes_come_back_in_sweep_order_with_their_own_parameters(tmp_path):
    with Store(tmp_path) as store:
        store.write(
            [outcome(2, "x"), outcome(0, "x"), outcome(1, "y", "does_not_fit", reason="dram")], plan="p", model_version="1"
        )
        read = list(store.outcomes("p"))
    assert [row.position for row in read] == [0, 1, 2]
    assert [row.summary for row in read] == [{"step_time_s": 1.5, "parameters": {"a": i}} for i in range(3)]
    assert (read[1].status, read[1].reason) == ("does_not_fit", "dram")


def test_plans_do_not_mix_and_share_results(tmp_path):
    with Store(tmp_path) as store:
        store.write([outcome(0, "x")], plan="p", model_version="1")
        store.write([outcome(5, "x", is_known=True)], plan="q", model_version="1")
        assert store.finished("p") == {0}
        assert store.finished("q") == {5}
        assert next(store.outcomes("q")).summary["step_time_s"] == 1.5
        assert store.known_keys() == {"x"}
        assert store.counts("p") == {"fits": 1}


def test_the_first_result_of_a_key_stays_but_a_lost_one_gives_way(tmp_path):
    with Store(tmp_path) as store:
        store.write([outcome(0, "x", "lost")], plan="p", model_version="1")
        assert store.finished("p") == set()
        assert store.known_keys() == frozenset()
        store.write([outcome(0, "x", seconds=2.0)], plan="p", model_version="1")
        store.write([outcome(0, "x", seconds=9.0)], plan="p", model_version="1")
        assert [(row.status, row.seconds) for row in store.outcomes("p")] == [("fits", 2.0)]


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path):
    def broken():
        yield outcome(0, "x")
        raise KeyboardInterrupt

    with Store(tmp_path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.write(broken(), plan="p", model_version="1")
        assert store.finished("p") == set()
        store.write([outcome(0, "x")], plan="p", model_version="1")
        assert store.finished("p") == {0}


def test_two_writers_in_one_folder(tmp_path):
    with Store(tmp_path) as one, Store(tmp_path) as two:
        for i in range(20):
            one.write([outcome(i, f"k{i}")], plan="p", model_version="1")
            two.write([outcome(i, f"k{i}")], plan="p", model_version="1")
        assert one.finished("p") == two.finished("p") == set(range(20))
        assert one.check() == "ok"


def test_foreign_files_and_schemas_are_refused(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all" * 100)
    with pytest.raises(InputError, match="as a study"):
        Store(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    with Store(tmp_path) as store:
        store.note("schema", "99")
    with pytest.raises(InputError, match="schema 99"):
        Store(tmp_path)


def test_reading_needs_a_study_and_writes_nothing(tmp_path):
    with pytest.raises(InputError, match="no study"):
        Store(tmp_path / "none", is_read_only=True)
    Store(tmp_path).close()
    with Store(tmp_path, is_read_only=True) as store, pytest.raises(sqlite3.OperationalError, match="readonly"):
        store.note("a", "b")


def test_a_full_disk_is_told_and_leaves_whole_rows(tmp_path):
    outcomes = [Outcome(position=i, key=f"key{i}", status="fits", point=b"x" * 5000) for i in range(40)]
    with Store(tmp_path) as store:
        store.write(outcomes[:1], plan="p", model_version="1")
        store._connection.execute("PRAGMA max_page_count=10")
        with pytest.raises(InputError, match="full"):
            store.write(outcomes[1:], plan="p", model_version="1")
        assert [outcome.position for outcome in store.outcomes("p")] == [0]
