"""Text files that are read in batches leave nothing behind, whether they are read to their end or not."""

import weakref
from contextlib import suppress

import pytest

from ltpll.data.readers import streaming
from ltpll.errors import InputError


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n3,4\n", "a,b\n1,2\n3\n", 'a,b\n1,"2\n', "a,b\n1,\0\n"], ids=["good", "short row", "quote", "NUL"]
)
@pytest.mark.parametrize("rows", ["all", "first"])
def test_no_thread_reads_on_when_a_table_was_read_or_refused(tmp_path, monkeypatch, content, rows):
    # A thread of pyarrow that calls Python while the interpreter ends aborts the process, with a status that is not 2.
    sources = []

    class Watched(streaming._Rows):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            sources.append(weakref.ref(self))

    monkeypatch.setattr(streaming, "_Rows", Watched)
    (tmp_path / "t.csv").write_text(content)
    batches = streaming.open_table(tmp_path / "t.csv").batches([0, 1])
    with suppress(InputError):
        if rows == "all":
            list(batches)
        else:
            next(batches)
            batches.close()
    assert [source() for source in sources] == [None]
