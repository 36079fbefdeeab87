"""Possible classes: which classes can occur in a row, or at the site of a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ltpll.candidates.cells import Entries
from ltpll.candidates.expressions import Possible
from ltpll.errors import InputError, shown
from ltpll.formatting import format_names
from ltpll.tables.columns import TextColumn, read_rows
from ltpll.tables.opening import open_table
from ltpll.tables.set_columns import SetColumn
from ltpll.tables.streaming import Table

LIST_COLUMNS = ("class", "classes", "possible", "candidates")  # usual names of the classes


def possible_in_rows(table: Table, column: SetColumn) -> Possible:
    """The possible classes of each row, from its own column; an empty cell allows every class."""
    lists = column.entries()
    of_row = np.where(np.diff(lists.indptr) > 0, np.arange(len(lists.indptr) - 1), -1)
    where = f"according to its column {shown(table.names[column.index])}"
    return Possible(lists, of_row, lambda _: where, table.describe_row)


def possible_at_sites(path: Path, table: Table, sites: TextColumn, separator: str) -> Possible:
    """The possible classes of each row, from a table with the classes of each site.

    Args:
        path: A .csv, .tsv or .parquet file with a column of sites, called `site` or like the column
            in the user's table, and a column `class`. A site may have several rows, and a cell may
            hold a set.
        table: The user's table, for messages.
        sites: Its column of sites.
        separator: What separates the names in a cell.

    Returns:
        One list for each site of the user's table. Every class is possible at a site without a
        list, and in rows without a site.

    Raises:
        InputError: The file cannot be read, or has a list for none of the sites.
    """
    listed = open_table(path)
    name = table.names[sites.index]
    site_name = name if name in listed.names else "site"
    site = TextColumn(listed, listed.column(site_name), repeated=True)
    chosen = next((column for column in LIST_COLUMNS if column in listed.names), "class")
    classes = SetColumn(listed, listed.column(chosen), separator)
    read_rows(listed, [site, classes])
    entries = classes.entries()
    number = {place: i for i, place in enumerate(site.names.names) if place}
    of_site = np.asarray([number.get(place, -1) for place in sites.names.names])
    if (of_site < 0).all():
        own = format_names([place for place in sites.names.names if place], 5)
        raise InputError(
            f"No site of {table.path} has a list in {path}: its sites are "
            f"{format_names(list(number), 5)}, and those of the table {own}."
        )
    # All rows of a site together are one list.
    site_of_entry = site.codes()[entries.rows].astype(np.int64)
    order = np.argsort(site_of_entry, kind="stable")
    sizes = np.bincount(site_of_entry, minlength=len(site.names.names))
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    lists = Entries(indptr, entries.codes[order], entries.names, entries.n_marked)
    of_site = np.where((of_site >= 0) & (sizes[of_site] > 0), of_site, -1)
    places = site.names.names
    return Possible(
        lists,
        of_site[sites.codes()],
        lambda i: f"at the site {shown(places[i])} according to {path}",
        lambda i: f"The list of the site {shown(places[i])} in {path}",
    )
