"""Taxonomy files: groups of classes, from a table of classes and their parents or from text."""

from __future__ import annotations

from pathlib import Path

from ltpll.candidates.taxonomy import Taxonomy, build_taxonomy
from ltpll.errors import InputError
from ltpll.tables.columns import read_texts
from ltpll.tables.opening import READABLE, open_table
from ltpll.tables.streaming import require_file

LARGEST = 1 << 26  # bytes of a text file
TAB = 8  # columns to which a tab in front of a name moves, if tabs and spaces are mixed


def read_taxonomy(path: Path) -> Taxonomy:
    """Read a taxonomy.

    A table has the columns `class` and `parent`, and may have a column
    `rank`; roots have no parent. In any other file, each line is a name, indented under its parent;
    `genus: Vulpes` says that Vulpes is a genus.

    Args:
        path: The file.

    Returns:
        The taxonomy, whose leaves are the classes.

    Raises:
        InputError: The file cannot be read, a name has two parents, or names form a circle.

    Examples:
        >>> _ = Path("groups.csv").write_text("class,parent\\nred fox,Vulpes\\nfennec,Vulpes\\n")
        >>> read_taxonomy(Path("groups.csv")).classes_below("Vulpes")
        ('red fox', 'fennec')
    """
    if path.suffix.lower() in READABLE:
        table = open_table(path)
        names, parents, *ranks = read_texts(
            table, ["class", "parent", *(["rank"] if "rank" in table.names else [])]
        )
        rows = zip(names, parents, *(ranks or [[""] * len(names)]), strict=True)
        return build_taxonomy(rows, table.describe_row)
    require_file(path)
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
        numbers = [i for i, line in enumerate(lines) if line.strip()]
        if not numbers:
            raise ValueError("it is empty")
    except ValueError as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
        raise InputError(
            f"{path} cannot be read as a taxonomy ({reason}): write UTF-8 text with one name per "
            "line, indented under its parent, or a table."
        ) from None

    def line_of(i: int) -> str:
        return f"Line {numbers[i] + 1} of {path}"

    entries: list[tuple[str, str, str]] = []  # name, parent and rank of each line
    above: list[tuple[int, str]] = []  # indentations and names of lines that may hold this one
    for i, number in enumerate(numbers):
        line = lines[number].expandtabs(TAB)
        indentation = len(line) - len(line.lstrip())
        rank, _, name = (part.strip() for part in line.partition(":"))
        rank, name = (rank, name) if rank and name else ("", line.strip())
        closed = indentation
        while above and above[-1][0] >= indentation:
            closed = above.pop()[0]
        if closed != indentation:
            raise InputError(
                f"{line_of(i)} is indented by {indentation} columns, unlike every line above it "
                "that could be its sibling: indent siblings by the same amount."
            )
        entries.append((name, above[-1][1] if above else "", rank))
        above.append((indentation, name))
    return build_taxonomy(entries, line_of)
