"""JSON files: the items of `json.loads`; the lines of a file one at a time."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll.tables import json_stream
from ltpll.tables.json_stream import json_items
from support.refusals import refusal

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def expected(content):
    """The items, by plain Python."""
    if isinstance(content, list):
        return [("", i + 1, value) for i, value in enumerate(content)]
    return [
        item
        for key, value in content.items()
        for item in (
            [(key, i + 1, one) for i, one in enumerate(value)]
            if isinstance(value, list)
            else [(key, 0, value)]
        )
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(values) | st.dictionaries(st.text(), values), st.sampled_from([None, 2]))
def test_items_are_those_of_the_parsed_file(tmp_path_factory, content, indent):
    path = tmp_path_factory.mktemp("json") / "t.json"
    path.write_text(json.dumps(content, indent=indent), encoding="utf-8", errors="surrogatepass")
    assert [tuple(item) for item in json_items(path)] == expected(json.loads(path.read_text()))


def test_lines_are_items(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('\ufeff{"a": 1}\n\n{"a": 2}\n')
    assert [item.value for item in json_items(path)] == [{"a": 1}, {"a": 2}]


def test_memory_does_not_grow_with_the_lines_of_a_file(tmp_path):
    path = tmp_path / "t.jsonl"
    with path.open("w") as file:
        file.writelines(f'{{"id": {i}, "text": "{"x" * 1000}"}}\n' for i in range(12_000))
    calls = []
    tracemalloc.start()
    items = json_items(path, lambda done, total: calls.append((done, total)))
    assert sum(1 for _ in items) == 12_000
    assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 2
    tracemalloc.stop()
    assert calls[-1] == (path.stat().st_size, path.stat().st_size)


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ltpll.tables.memory_limits.available_memory", lambda: 1 << 20)
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{}] * 20_000))
    assert "write one item per line" in refusal(lambda: list(json_items(path)))


@pytest.mark.parametrize(
    ("content", "reason"),
    {
        b'[{"a": 1}': "Expecting ',' delimiter",
        b'[{"a": "x': "Unterminated string",
        b"[1 2]": "Expecting ',' delimiter",
        b'{"a": 1} 2': "Extra data",
        b"{1: 2}": "Expecting property name",
        b"3": "neither a list nor an object",
        b"": "Expecting value",
        b"[" * 100_000: "nested too deeply",
        b"[" + b"9" * 5000 + b"]": "Exceeds the limit",
        b'["\xff"]': "not text in UTF-8",
    }.items(),
)
def test_what_is_not_json_is_refused_in_one_sentence(tmp_path, content, reason):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert reason in refusal(lambda: list(json_items(path)))


def test_a_line_that_is_too_long_is_refused_before_the_file_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "LONGEST", 1 << 10)
    path = tmp_path / "t.jsonl"
    path.write_text('["' + "x" * (1 << 20) + '"]')
    assert "a line is longer than" in refusal(lambda: list(json_items(path)))
