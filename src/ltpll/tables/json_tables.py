"""JSON tables: files with one object for each row, whose members are its cells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, shown
from ltpll.tables.json_stream import json_items
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import ReadProgress, Table, TableBatch

ROWS = 2048  # in a batch
CELL_BYTES = 16  # for each member that a row lacks, too


class JsonLinesTable(Table):
    """A .jsonl or .ndjson file, whose columns are all members that occur.

    Cells are texts, as in a .csv file, where a batch has values of several types.
    """

    path: Path

    def __init__(self, path: Path) -> None:
        kinds: dict[str, set[type]] = {}
        self.n_rows = 0
        for row in _rows(path, None):
            self.n_rows += 1
            for name, value in row.items():
                kinds.setdefault(name, set()).add(type(value))
        super().__init__(path, tuple(kinds))
        self.kinds = [found - {type(None)} for found in kinds.values()]
        self._as_strings(self.names)
        if not kinds:
            raise InputError(f"{path} has no rows: give at least one example.")
        size = CELL_BYTES * self.n_rows * len(kinds)
        check_expansion(path, path.stat().st_size, size, "give all rows the same members")

    def numeric(self, index: int) -> bool | None:
        if self.kinds[index] >= {str} and self.kinds[index] & {int, float}:
            return None  # a text among numbers may be a typo
        return self.kinds[index] <= {int, float}

    def holds_words(self, index: int) -> bool:
        return not self.kinds[index] & {list, dict}

    def _batches(
        self, columns: Sequence[int], on_progress: ReadProgress | None
    ) -> Iterator[TableBatch]:
        first, left = 0, _rows(self.path, on_progress)
        while rows := list(islice(left, ROWS)):
            cells = {index: self._cells(index, rows) for index in columns}
            yield TableBatch(first, len(rows), cells, self.n_rows)
            first += len(rows)

    def _cells(self, index: int, rows: Sequence[dict[str, Any]]) -> Any:
        import pyarrow as pa  # type: ignore[import-untyped]

        values = [row.get(self.names[index]) for row in rows]
        if self.holds_words(index):
            with suppress(pa.ArrowException, OverflowError, UnicodeError):
                found = pa.array(values)
                if not pa.types.is_null(found.type):
                    return found
        return self._as_strings([_text_of(value) for value in values])

    def _as_strings(self, texts: Sequence[str]) -> Any:
        import pyarrow as pa

        try:
            return pa.array(texts, pa.string())
        except UnicodeEncodeError as error:  # halves of surrogate pairs, which JSON can write
            wrong = ascii(error.object)[:60]
            raise InputError(
                f"{self.path} holds {wrong}, which is not valid text: correct it."
            ) from None


def _rows(path: Path, on_progress: ReadProgress | None) -> Iterator[dict[str, Any]]:
    for item in json_items(path, on_progress):
        if not isinstance(item.value, dict):
            raise InputError(
                f"Row {item.number} of {path} is {shown(item.value)}: give one object for each "
                'row, such as {"id": "a", "candidates": ["cat", "fox"], "x": 0.5}.'
            )
        yield item.value


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
