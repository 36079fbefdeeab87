"""Files that would expand to far more than they hold are refused before they take memory."""

import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.convert.open import read_label_table
from ltpll.tables import memory_limits as expansion
from ltpll.tables.memory_limits import ALWAYS, RATIO, expansion_problem
from ltpll.tables.opening import read_array, whole_table
from ltpll.tables.reading import Reading
from support.refusals import refusal

GIB = 1 << 30


def packed_npz(path, zeros, header=None):
    """An .npz file with `features`, so many zeros; `header` changes what the array claims."""
    start = BytesIO()
    np.lib.format.write_array_header_1_0(
        start,
        {"shape": (zeros // 4000, 1000), "fortran_order": False, "descr": "<f4", **(header or {})},
    )
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("features.npy", "w", force_zip64=True) as member,
    ):
        member.write(start.getvalue())
        for _ in range(zeros >> 20):
            member.write(bytes(1 << 20))
    return path


def peak_while(call):
    """The most bytes that Python and numpy held at a time during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_npz_file_of_zeros_is_refused_unexpanded(tmp_path):
    features = packed_npz(tmp_path / "bomb.npz", ALWAYS + (64 << 20))
    table = tmp_path / "t.csv"
    table.write_text("candidates\na\nb\n")
    messages = []
    source = TableSource(table, Reading(), features=features)
    assert peak_while(lambda: messages.append(refusal(lambda: read_examples(source)))) < 32 << 20
    assert "would expand to 320 MiB" in messages[0]


def test_an_array_whose_own_header_claims_more_than_the_archive_says_is_refused(tmp_path):
    path = packed_npz(tmp_path / "bomb.npz", 1 << 20, {"shape": (1 << 20, 1 << 10)})
    assert "is truncated" in refusal(lambda: read_array(path, "".join))


@pytest.mark.parametrize(("value", "millions"), [(1.5, 70), ("cat|dog", 20), (["cat", "dog"], 10)])
def test_a_parquet_file_that_repeats_one_value_millions_of_times_is_refused_unread(
    tmp_path, value, millions
):
    path = tmp_path / "bomb.parquet"
    column = pa.array([value]).take(pa.array(np.zeros(1_000_000, dtype=np.int32)))
    pq.write_table(
        pa.table({"candidates": pa.chunked_array([column] * millions)}), path, compression="zstd"
    )
    assert path.stat().st_size < 1 << 20
    before = pa.total_allocated_bytes()
    assert "would expand to" in refusal(lambda: read_label_table(path, needs_candidates=False))
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_honest_compressed_files_are_read(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 40)).astype(np.float32)
    np.savez_compressed(tmp_path / "x.npz", features=x)
    table = tmp_path / "t.csv"
    table.write_text("candidates\n" + "a|b\n" * 500)
    found = read_examples(TableSource(table, Reading(), features=tmp_path / "x.npz"))
    np.testing.assert_array_equal(found.x, x)


def test_what_is_small_or_nearly_as_large_as_its_file_may_expand(monkeypatch):
    monkeypatch.setattr(expansion, "available_memory", lambda: None)
    assert expansion_problem(0, ALWAYS) is None
    assert expansion_problem(ALWAYS, RATIO * ALWAYS) is None
    assert "more than 100 times" in expansion_problem(1 << 20, ALWAYS + 1)


def test_what_does_not_fit_into_memory_is_refused_whatever_its_ratio(monkeypatch):
    monkeypatch.setattr(expansion, "available_memory", lambda: 3 * GIB)
    assert expansion_problem(GIB, GIB) is None
    assert (
        expansion_problem(2 * GIB, 2 * GIB)
        == "that would take 4.0 GiB of memory, but only 3.0 GiB are available"
    )


def test_available_memory_is_what_the_machine_or_its_control_group_has_left(tmp_path):
    for name, text in {
        "memory.max": "1000",
        "memory.current": "700",
        "memory.stat": "anon 600\ninactive_file 50\n",
    }.items():
        (tmp_path / name).write_text(text + "\n")
    assert expansion._control_group(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert expansion._control_group(tmp_path) is None
    assert 0 < expansion.available_memory() < 1 << 50


@pytest.mark.parametrize("lists", [False, True], ids=["texts", "lists"])
@pytest.mark.parametrize("first", [None, 1])
def test_a_parquet_file_whose_cells_share_a_long_text_is_refused(tmp_path, lists, first):
    path = tmp_path / "bomb.parquet"
    cells = pa.DictionaryArray.from_arrays(
        pa.array([first, *[0] * 40]), pa.array(["x" * 8_000_000, "a"])
    )
    if lists:  # the first of which is empty
        cells = pa.ListArray.from_arrays(pa.array([0, *range(42)]), cells)
    pq.write_table(pa.table({"candidates": cells}), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    for read in (lambda: read_label_table(path, needs_candidates=False), lambda: whole_table(path)):
        assert "would expand to 305 MiB" in refusal(read)


def test_a_parquet_file_with_one_long_text_among_many_is_read(tmp_path):
    texts = ["a", "b" * 50_000, *["a", "b"] * 5000]
    pq.write_table(pa.table({"candidates": texts}), tmp_path / "t.parquet")
    assert len(read_label_table(tmp_path / "t.parquet").candidates) == 10_002
