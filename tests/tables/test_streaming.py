"""Text files are cut into blocks where rows end, as a parser of the whole file sees them."""

import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from ltpll.errors import InputError
from ltpll.tables import streaming
from ltpll.tables.opening import open_table
from support.processes import environment_of_tests
from support.refusals import refusal


def test_threads_of_pyarrow_are_given_no_object_of_python(tmp_path, monkeypatch):
    """They would need Python, perhaps after it has ended, which aborts the process."""

    def refused(*arguments, **options):
        raise AssertionError("pyarrow reads an object of Python")

    monkeypatch.setattr(pa, "PythonFile", refused)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert len(list(open_table(tmp_path / "t.csv").row_batches([0]))) == 1


@pytest.mark.reliability
@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n3,4\n", "a,b\n1,2\n3\n", 'a,b\n1,"2\n', "a;b\n1;2\n"]
)
def test_commands_that_end_right_after_reading_are_not_aborted(tmp_path, content):
    (tmp_path / "t.csv").write_text(content)
    command = [sys.executable, "-m", "ltpll", "describe", str(tmp_path / "t.csv")]
    for _ in range(12):
        assert (
            subprocess.run(
                command, capture_output=True, check=False, env=environment_of_tests()
            ).returncode
            == 2
        )


def rows_in_blocks(path):
    return [
        row
        for batch in open_table(path).row_batches([0, 1])
        for row in zip(*(batch.columns[i].to_pylist() for i in (0, 1)), strict=True)
    ]


def rows_in_one(content):
    """The rows as pyarrow reads them from the whole text."""
    text = pa.BufferReader(content)
    options = (
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types={"a": pa.binary(), "b": pa.binary()}),
    )
    found = csv.read_csv(text, csv.ReadOptions(column_names=["a", "b"]), *options).to_pydict()
    return list(zip(found["a"], found["b"], strict=True))


CELL = st.text(st.sampled_from('x"\n'), max_size=5).map(
    lambda text: '"' + text.replace('"', '""') + '"'
) | st.sampled_from(["", "x", 'x"', 'x""y', '""x', '"x"y"z', '"" ""', 'x"\r'.strip()])


@given(
    st.lists(st.tuples(CELL, CELL), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(24, 60),
)
def test_blocks_hold_the_rows_of_the_whole_file(tmp_path_factory, rows, line_end, size):
    path = tmp_path_factory.mktemp("blocks") / "t.csv"
    content = line_end.join(["z,z", *(",".join(row) for row in rows), "end,end"]).encode()
    path.write_bytes(b"a,b\n" + content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "BLOCK", size)
        with suppress(InputError):  # a row longer than a block
            assert rows_in_blocks(path) == rows_in_one(content)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_row_of_the_wrong_length_is_named_by_its_number_in_any_block(
    tmp_path, monkeypatch, line_end
):
    monkeypatch.setattr(streaming, "BLOCK", 50)
    (tmp_path / "t.csv").write_bytes(line_end.join(["a,b", *["1,2"] * 99, "1"]).encode())
    assert "but row 100 below it has 1" in refusal(lambda: rows_in_blocks(tmp_path / "t.csv"))


@pytest.mark.parametrize("row", ["x" * 9000 + ",1", '"' + "x\n" * 4500 + '",1'])
def test_a_row_longer_than_a_block_is_refused_by_the_rows_before_it(tmp_path, monkeypatch, row):
    monkeypatch.setattr(streaming, "BLOCK", 4096)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 10 + row + "\n" + "1,2\n" * 3000)
    assert "after row 10 below the header a row is longer than" in refusal(
        lambda: rows_in_blocks(tmp_path / "t.csv")
    )


@pytest.mark.parametrize("before", [0, 10, 5000])
def test_a_quote_that_is_never_closed_is_named(tmp_path, monkeypatch, before):
    monkeypatch.setattr(streaming, "BLOCK", 4096)
    (tmp_path / "t.csv").write_text('a,b\n"x""y",z\n' + "1,2\n" * before + '1,"2""\n')
    assert 'a quote (") is never closed' in refusal(lambda: rows_in_blocks(tmp_path / "t.csv"))


def test_progress_counts_the_bytes_of_all_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK", 1000)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 999)
    seen = []
    list(
        open_table(tmp_path / "t.csv").row_batches(
            [0], lambda done, total: seen.append((done, total))
        )
    )
    assert seen[-1] == (4000, 4000)
    assert len(seen) == 4
