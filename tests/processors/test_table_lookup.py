from __future__ import annotations

import pytest

from shmjet.data.errors import ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.general.table_lookup import join_table
from shmjet.testing import verify_processor

from .driving import Driver, processors_of


def both(item: str, value: object) -> object:
    return (item, value)


def test_each_item_meets_the_last_value_for_its_key_or_none() -> None:
    entries = [("a", 1), ("b", 2), ("a", 3)]
    verify_processor(join_table(str.lower, [False], both)).inputs(["A", "b", "c"], entries).priorities(0, -1).expect(
        [("A", 3), ("b", 2), ("c", None)]
    )


def test_items_may_be_entries_under_a_key_of_theirs_on_edges_of_their_own() -> None:
    supplier = join_table(None, [len, False], both)
    verify_processor(supplier).inputs([1, 2, 3], ["x", "yy"], [(3, "three")]).priorities(0, -1, -1).expect(
        [(1, "x"), (2, "yy"), (3, "three")]
    )


def test_a_result_of_none_is_left_out() -> None:
    supplier = join_table(None, [False], lambda item, value: value)
    verify_processor(supplier).inputs([1, 2], [(2, "two")]).priorities(0, -1).expect(["two"])


def test_an_entry_that_is_no_pair_is_an_error_with_the_remedy() -> None:
    driver = Driver(processors_of(join_table(None, [False], both))[0])
    with pytest.raises(ProcessorError, match=r"\(key, value\) pair, or send_to\(table, key_fn\)"):
        driver.feed([5], ordinal=1)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one edge of entries"):
        join_table(None, [], both)
    with pytest.raises(TypeError, match="a function of item and value"):
        join_table(None, [False], 3)  # type: ignore[arg-type]


def test_timed_items_give_their_times_to_results() -> None:
    lookup = join_table(None, [False], lambda item, value: value and (item, value), timed=True)
    items = [(5, "a"), Watermark(5), (6, "c"), (7, "a")]
    verify_processor(lookup).inputs(items, [("a", 1)]).priorities(0, -1).expect(
        [(5, ("a", 1)), Watermark(5), (7, ("a", 1))]
    )
