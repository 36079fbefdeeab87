"""Taxonomy files: groups of classes, read from a table of classes and their parents or from indented text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ltpll.candidates.taxonomy import Taxonomy, build_taxonomy
from ltpll.errors import InputError
from ltpll.tables.columns import TextColumn
from ltpll.tables.streaming import TABLE_SUFFIXES, check_is_file, open_table

LARGEST = 1 << 26  # bytes of a text file
TAB = 8  # columns to which a tab in front of a name moves, if tabs and spaces are mixed


def read_taxonomy(path: Path) -> Taxonomy:
    """Read a taxonomy.

    A table (.csv, .tsv or .parquet) has the columns `class` and `parent`, and may have a column `rank`; roots have no parent. In any other
    file, each line is a name, indented under its parent; `genus: Vulpes` says that Vulpes is a genus.

    Args:
        path: The file.

    Returns:
        The taxonomy, whose leaves are the classes.

    Raises:
        InputError: The file cannot be read, a name has two parents, or names form a circle.

    Examples:
        >>> _ = Path("groups.csv").write_text("class,parent\\nred fox,Vulpes\\nfennec,Vulpes\\n")
        >>> read_taxonomy(Path("groups.csv")).members("Vulpes")
        ('red fox', 'fennec')
    """
    if path.suffix.lower() in TABLE_SUFFIXES:
        return _from_table(path)
    return _from_text(path)


def _from_table(path: Path) -> Taxonomy:
    table = open_table(path)
    names = ["class", "parent", *(["rank"] if "rank" in table.names else [])]
    columns = [TextColumn(table, table.column(name), repeated=True) for name in names]
    for batch in table.batches([column.index for column in columns]):
        for column in columns:
            column.add(batch)
    cells = [column.values().tolist() for column in columns]
    if len(cells) < 3:
        cells.append([""] * len(cells[0]))
    return build_taxonomy(zip(*cells, strict=True), table.row)


def _from_text(path: Path) -> Taxonomy:
    check_is_file(path)
    if path.stat().st_size > LARGEST:
        raise InputError(
            f"{path} is larger than {LARGEST >> 20} MiB: write a taxonomy as text with one name per line."
        )
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not UTF-8 text: save it as UTF-8 text with one name per line, or as .csv, .tsv or .parquet."
        ) from None
    numbers = [i for i, line in enumerate(lines) if line.strip()]
    if not numbers:
        raise InputError(
            f"{path} holds no names: write one name per line, indented under its parent."
        )
    return build_taxonomy(
        _indented(path, lines, numbers), lambda i: f"Line {numbers[i] + 1} of {path}"
    )


def _indented(path: Path, lines: list[str], numbers: list[int]) -> Iterator[tuple[str, str, str]]:
    """Name, parent and rank of each line."""
    above: list[
        tuple[int, str]
    ] = []  # the lines that this one may be below, with their indentation
    for number in numbers:
        line = lines[number].expandtabs(TAB)
        indentation = len(line) - len(line.lstrip())
        rank, colon, name = (part.strip() for part in line.partition(":"))
        rank, name = (rank, name) if colon and rank and name else ("", line.strip())
        closed = None
        while above and above[-1][0] >= indentation:
            closed = above.pop()[0]
        if closed is not None and closed != indentation:
            raise InputError(
                f"Line {number + 1} of {path} is indented by {indentation} columns, unlike every line above it that could be its sibling: "
                "indent siblings by the same amount."
            )
        yield name, above[-1][1] if above else "", rank
        above.append((indentation, name))
