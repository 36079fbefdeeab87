"""The catalogue of the paper's tables and figures: the settings of the runs behind each, and the published numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ltpll.registry import unknown_name_error
from ltpll_research.paper.protocols import PROTOCOLS, Protocol, find_protocol

Setting = Mapping[str, Any]  # entries of an Experiment; missing ones have their default
DATA_NAMES = {"cifar10": "CIFAR-10-LT", "cifar100": "CIFAR-100-LT", "voc2007": "PASCAL VOC"}
SHORT_FIGURES = {"balanced_accuracy": "overall"}


@dataclass(frozen=True)
class Cell:
    """One number of a table: the setting of its runs, where their records hold it, and the published value."""

    setting: Setting
    row: str  # "test", or the name of a post-hoc adjustment
    figure: str
    published: float | None  # in percent


@dataclass(frozen=True)
class Line:
    """One line of a table: a method with its extras and its rebalancer, trained by a protocol."""

    name: str
    cells: tuple[Cell, ...]
    protocol: Protocol = PROTOCOLS["records"]

    @property
    def label(self) -> str:
        """The name with whatever distinguishes the protocol from the RECORDS paper's."""
        return self.protocol.label(self.name)


@dataclass(frozen=True)
class Item:
    """A table or figure; `instead` names the command for one that does not come from benchmark runs."""

    name: str
    where: str
    title: str
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    instead: str = ""

    @property
    def settings(self) -> list[Setting]:
        """The distinct settings of all cells: what has to be trained."""
        found = {
            json.dumps(cell.setting, sort_keys=True): cell.setting
            for line in self.lines
            for cell in line.cells
        }
        return list(found.values())


def with_equal_lengths(item: Item) -> Item:
    """The item for runs that are all trained equally long, so that the labels of its lines do not state the lengths of their protocols."""
    return replace(
        item,
        lines=tuple(
            replace(line, protocol=replace(line.protocol, length="")) for line in item.lines
        ),
    )


def find_item(name: str) -> Item:
    """Find an item by its name, or by its place in the paper, such as table1."""
    for item in ITEMS.values():
        if name == item.name or name in _places(item.where):
            return item
    raise unknown_name_error("table or figure", name, ITEMS)


def _places(where: str) -> list[str]:
    """Turn 'Tables 2 and 10' into table2 and table10."""
    kind, *rest = where.lower().replace(" and ", " ").split()
    return [f"{kind.removesuffix('s')}{number}" for number in rest]


def row_label(method: str, rebalancer: str, posthoc: str, extras: Sequence[str]) -> str:
    added = [name for name in (*extras, rebalancer, posthoc) if name not in ("", "none")]
    return " + ".join([method, *added])


def column_label(column: Mapping[str, Any]) -> str:
    name = DATA_NAMES[column["data"]] + ("-NU" if column.get("superclass") else "")
    parts = [
        name,
        *(
            f"{sign}={column[key]:g}"
            for sign, key in (("ρ", "imbalance"), ("q", "ambiguity"))
            if key in column
        ),
    ]
    if "figure" in column:
        parts.append(SHORT_FIGURES.get(column["figure"], column["figure"]))
    return " ".join(parts)


# ---- tables -----------------------------------------------------------------------------------------------------------


@cache
def published() -> dict[str, Any]:
    """The numbers of the paper's tables, as printed."""
    tables: dict[str, Any] = json.loads(
        files("ltpll_research.paper").joinpath("published.json").read_text(encoding="utf-8")
    )
    return tables


def _line(
    columns: Sequence[Mapping[str, Any]],
    method: str,
    rebalancer: str,
    posthoc: str = "",
    extras: Sequence[str] = (),
    protocol: str = "records",
    *,
    figure: str = "balanced_accuracy",
    published: Sequence[float | None] = (),
) -> Line:
    """One line of an item; `figure` applies to columns that do not name another one."""
    parts = {"method": method, "rebalancer": rebalancer, "extras": list(extras)}
    trained = find_protocol(protocol)
    cells = []
    for column, number in zip(columns, published or [None] * len(columns), strict=True):
        setting = (
            {k: v for k, v in column.items() if k != "figure"}
            | parts
            | trained.settings_for(column["data"])
        )
        cells.append(Cell(setting, posthoc or "test", column.get("figure", figure), number))
    return Line(row_label(method, rebalancer, posthoc, extras), tuple(cells), trained)


def _item(
    name: str, where: str, title: str, columns: Sequence[Mapping[str, Any]], lines: Sequence[Line]
) -> Item:
    return Item(name, where, title, tuple(map(column_label, columns)), tuple(lines))


def _tables() -> Iterator[Item]:
    for name, table in published().items():
        columns = table["columns"]
        lines = [
            _line(
                columns,
                row["method"],
                row["rebalancer"],
                row["posthoc"],
                row["extras"],
                row.get("protocol", "records"),
                published=row["values"],
            )
            for row in table["rows"]
        ]
        yield _item(name, table["table"], table["title"], columns, lines)


# ---- figures ----------------------------------------------------------------------------------------------------------

CIFAR10 = {"data": "cifar10", "imbalance": 100, "ambiguity": 0.5}
CIFAR100 = {"data": "cifar100", "imbalance": 100, "ambiguity": 0.05}
MOMENTA = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)


def _figure(
    name: str,
    where: str,
    title: str,
    columns: Sequence[Mapping[str, Any]],
    method: str,
    rows: Sequence[tuple[str, str]],
    figure: str,
) -> Item:
    """An item for runs of one method in several settings; `rows` are pairs of rebalancer and post-hoc adjustment."""
    return _item(
        name, where, title, columns, [_line(columns, method, *row, figure=figure) for row in rows]
    )


def _figures() -> Iterator[Item]:
    bare, oracle, ours, posthoc = (
        ("none", ""),
        ("oracle-la", ""),
        ("records", ""),
        ("none", "oracle-la-posthoc"),
    )
    rows, lower = [bare, oracle, ours], {**CIFAR100, "ambiguity": 0.03}
    yield _figure(
        "average-prediction",
        "Figure 1",
        "Average prediction during training",
        [CIFAR100],
        "proden",
        rows,
        "mean_prediction",
    )
    yield _figure(
        "prior",
        "Figure 3",
        "The estimated prior and its distance from the truth",
        [lower],
        "corr",
        [ours],
        "prior_distance",
    )
    yield Item("toy", "Figure 4", "Toy study", instead="ltpll-research toy")
    by_ambiguity = [{**CIFAR10, "ambiguity": ambiguity} for ambiguity in (0.3, 0.5, 0.7)]
    yield _figure(
        "per-class",
        "Figure 5",
        "Accuracy per class",
        by_ambiguity,
        "corr",
        [bare, posthoc, oracle, ours],
        "per_class",
    )
    probe = _figure(
        "linear-probing",
        "Figure 6a",
        "Linear probing, top-1 and top-5",
        [CIFAR100],
        "proden",
        rows,
        "linear_probing",
    )
    yield replace(probe, instead="ltpll-research probe RUN, for the runs of average-prediction")
    setting = {**CIFAR100, "method": "corr", "rebalancer": "records", "extras": []}
    lines = []
    for momentum in MOMENTA:
        # The default is left out, so that the run is shared with the main table.
        options = {} if momentum == 0.9 else {"options": {"records": {"momentum": momentum}}}
        lines.append(
            Line(
                f"corr + records, m = {momentum:g}",
                (Cell(setting | options, "test", "balanced_accuracy", None),),
            )
        )
    yield _item("ablation-m", "Figure 6b", "RECORDS' momentum", [CIFAR100], lines)
    tsne = _figure(
        "t-sne", "Figure 8", "t-SNE of the features", [CIFAR10], "proden", rows, "features"
    )
    yield replace(
        tsne, instead="ltpll-research tsne RUN, for proden's runs of the main table at q=0.5"
    )


# ---- beyond the paper -------------------------------------------------------------------------------------------------

# Method, rebalancer, post-hoc adjustment, extras, protocol, and what the paper of this protocol reports for the two columns below.
SYSTEMS: tuple[tuple[str, str, str, Sequence[str], str, Sequence[float | None]], ...] = (
    ("solar", "none", "", (), "records-solar", (70.63, 41.71)),
    ("solar", "none", "la", (), "records-solar", ()),
    ("solar", "none", "", (), "solar", (74.16, None)),
    ("solar", "none", "la", (), "solar", (80.88, None)),
    ("pico", "none", "", (), "records", ()),
    ("pico", "records", "", (), "records", ()),
    ("htc", "none", "", (), "records", ()),
    ("htc", "none", "", (), "htc", ()),
    ("corr", "oracle-la", "", ("bcl",), "records", ()),
    ("corr", "records", "", ("bcl",), "records", ()),
    ("corr", "oracle-la", "", ("paco",), "records", ()),
    ("corr", "records", "", ("paco",), "records", ()),
    ("corr", "none", "", ("ldd",), "records", ()),
    ("corr", "none", "", ("sfn",), "records", ()),
    ("corr", "records", "", (), "records", ()),
)


def _beyond() -> Iterator[Item]:
    columns = (CIFAR10, CIFAR100)
    lines = [
        _line(columns, method, rebalancer, posthoc, extras, protocol, published=numbers)
        for method, rebalancer, posthoc, extras, protocol, numbers in SYSTEMS
    ]
    yield _item(
        "systems", "Beyond the paper", "Whole systems and further combinations", columns, lines
    )


ITEMS: dict[str, Item] = {item.name: item for item in (*_tables(), *_figures(), *_beyond())}
