"""What the footer of a Parquet file says is what pyarrow says of whole files, and damaged ones are refused by both, alive."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ltpll.tables.parquet_footer import column_chunks
from support.fork_server import shared_fork_server

TABLE = pa.table(
    {
        "a": [1, 2, None],
        "text": ["x", "y", "z"],
        "list": [["x"], ["y", "z"], []],
        "struct": [{"p": 1, "q": "r"}] * 3,
        "map": pa.array([[("k", 1)], [], [("l", 2)]], type=pa.map_(pa.string(), pa.int32())),
        "codes": pa.array(["u", "v", "u"]).dictionary_encode(),
        "pair": pa.array([[1.0, 2.0]] * 3, type=pa.list_(pa.float32(), 2)),
        "true": [True, False, True],
    }
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 1},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"write_statistics": False},
    ],
)
def test_chunks_are_those_that_pyarrow_finds(tmp_path, options):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path, **options)
    about = pq.read_metadata(path)
    expected = [
        (
            j,
            chunk.physical_type.endswith("BYTE_ARRAY"),
            chunk.num_values,
            chunk.total_uncompressed_size,
        )
        for group in map(about.row_group, range(about.num_row_groups))
        for j, chunk in enumerate(map(group.column, range(about.num_columns)))
    ]
    assert [tuple(chunk) for chunk in column_chunks(path)] == expected


def test_files_with_any_byte_changed_are_read_or_refused_and_end_no_process(tmp_path):
    """pyarrow's own description of a column ends the process where statistics are damaged, so this is tried in another one."""
    status, said = shared_fork_server().call(
        "interrupted_runs.read_damaged_parquet", str(tmp_path), log=tmp_path / "log"
    )
    assert status == 0, said
    refused, read = map(int, said.split())
    assert refused > 100
    assert read > 100


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PAR1",
        b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
        b"PAR1" + b"\x19" * 3000 + (3000).to_bytes(4, "little") + b"PAR1",  # lists in lists
        b"PAR1"
        + b"\x1c" * 3000
        + (3000).to_bytes(4, "little")
        + b"PAR1",  # structures in structures
        b"PAR1"
        + b"\x49\xfc\xff\xff\xff\xff\x0f"
        + (7).to_bytes(4, "little")
        + b"PAR1",  # four billion groups of rows
        b"PAR1"
        + b"\x16"
        + b"\xff" * 20
        + (21).to_bytes(4, "little")
        + b"PAR1",  # a number without end
        b"PAR1" + b"\x1f\x00" + (2).to_bytes(4, "little") + b"PAR1",  # no such type
    ],
)
def test_a_footer_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="footer"):
        column_chunks(tmp_path / "t.parquet")
