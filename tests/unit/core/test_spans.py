from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from context_bench.core.ledger import LineTable, common, holds, merged, size, without

ranges = st.lists(st.tuples(st.integers(-3, 40), st.integers(-3, 40)), max_size=8)


def members(pairs):
    return {n for first, last in pairs for n in range(first, last + 1)}


@given(ranges, ranges)
def test_sets_of_ranges_are_sets_of_numbers(a, b):
    one, other = merged(a), merged(b)
    assert members(one) == members(a)
    assert merged(one) == one
    assert all(first[1] + 1 < second[0] for first, second in pairwise(one))
    assert size(one) == len(members(a))
    assert members(common(one, other)) == members(a) & members(b)
    assert members(without(one, other)) == members(a) - members(b)
    assert all(holds(one, n) == (n in members(a)) for n in range(-4, 42))


@given(st.text(alphabet="ab\n\r\x0c\u2028é", max_size=40).map(lambda text: text.encode()), ranges)
def test_lines_and_bytes_of_a_file_agree(data, pairs):
    table = LineTable.of(data)
    lines = data.split(b"\n")[: -1 if data.endswith(b"\n") else None] if data else []
    assert table.lines == len(lines)
    kept = table.clamp(pairs)
    assert members(kept) <= set(range(1, len(lines) + 1))
    spans = table.bytes_of(kept)
    read = b"".join(data[first : last + 1] for first, last in spans)
    wanted = b"".join(
        lines[n - 1] + (b"\n" if n < len(lines) or data.endswith(b"\n") else b"") for n in sorted(members(kept))
    )
    assert read == wanted
    assert all(table.line_of(offset) == data[:offset].count(b"\n") + 1 for offset in range(len(data)))


def test_idioms_of_ranges():
    table = LineTable.of(b"a\nb\nc\nd")
    assert table.clamp([(3, 2)]) == [(2, 3)]
    assert table.clamp([(3, -1)]) == [(3, 4)]
    assert table.clamp([(0, 0)]) == [(1, 4)]
    assert table.clamp([(2, 500)]) == [(2, 4)]
    assert table.clamp([(5, 9)]) == []
    assert LineTable.of(b"").everything() == []
    assert LineTable.of(b"").clamp([(1, 1)]) == []


def test_ranges_that_touch_become_one():
    assert merged([(6, 8), (3, 5)]) == [(3, 8)]
    assert merged([(7, 8), (3, 5)]) == [(3, 5), (7, 8)]
    assert merged([(5, 3)]) == []
