"""The catalogue of the paper's tables and figures: settings of runs, and published numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from ltpll.registry import unknown_name_error
from ltpll_research.paper.protocols import PROTOCOLS, Protocol

Setting = Mapping[str, Any]  # entries of an Experiment; missing ones have their default
DATA_NAMES = {"cifar10": "CIFAR-10-LT", "cifar100": "CIFAR-100-LT", "voc2007": "PASCAL VOC"}


@dataclass(frozen=True)
class Cell:
    """One number of a table: the setting of its runs, where records hold it, and the paper's."""

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
    """A table or figure; `instead` names the command for one that needs more than runs."""

    name: str
    where: str
    title: str
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    instead: str = ""

    @property
    def settings(self) -> list[Setting]:
        """The distinct settings of all cells: what has to be trained."""
        cells = [cell for line in self.lines for cell in line.cells]
        found = {json.dumps(cell.setting, sort_keys=True): cell.setting for cell in cells}
        return list(found.values())


def with_equal_lengths(item: Item) -> Item:
    """The item for runs that are all trained equally long: its labels do not state lengths."""
    lines = [replace(line, protocol=replace(line.protocol, length="")) for line in item.lines]
    return replace(item, lines=tuple(lines))


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
    parts = [
        DATA_NAMES.get(column["data"], column["data"]) + ("-NU" if column.get("superclass") else "")
    ]
    for sign, key in (("ρ", "imbalance"), ("q", "ambiguity")):
        if key in column:
            parts.append(
                f"{sign}={column[key] if column[key] == 'natural' else f'{column[key]:g}'}"
            )
    if "figure" in column:
        parts.append(column["figure"].replace("balanced_accuracy", "overall"))
    return " ".join(parts)


# ---- tables ----------------------------------------------------------------------------------


@cache
def published() -> dict[str, Any]:
    """The numbers of the paper's tables, as printed."""
    text = files("ltpll_research.paper").joinpath("published.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    for table in tables.values():
        table["columns"] = [one for values in table["columns"] for one in _columns(values)]
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
    trained = PROTOCOLS[protocol]
    cells = []
    for column, number in zip(columns, published or [None] * len(columns), strict=True):
        own = {name: value for name, value in column.items() if name != "figure"}
        setting = own | parts | trained.settings_for(column["data"])
        cells.append(Cell(setting, posthoc or "test", column.get("figure", figure), number))
    return Line(row_label(method, rebalancer, posthoc, extras), tuple(cells), trained)


def _item(
    name: str, where: str, title: str, columns: Sequence[Mapping[str, Any]], lines: Sequence[Line]
) -> Item:
    return Item(name, where, title, tuple(map(column_label, columns)), tuple(lines))


def _columns(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The columns of all combinations of values; one that is not a list is shared."""
    several = (value if isinstance(value, list) else [value] for value in values.values())
    return (dict(zip(values, chosen, strict=True)) for chosen in product(*several))


def _tables() -> Iterator[Item]:
    for name, table in published().items():
        columns = table["columns"]
        lines = []
        for row in table["rows"]:
            own = {name: row[name] for name in ("method", "rebalancer", "posthoc", "extras")}
            own["protocol"] = row.get("protocol", "records")
            lines.append(_line(columns, **own, published=row["values"]))
        yield _item(name, table["table"], table["title"], columns, lines)


# ---- figures ---------------------------------------------------------------------------------

CIFAR10 = {"data": "cifar10", "imbalance": 100, "ambiguity": 0.5}
CIFAR100 = {"data": "cifar100", "imbalance": 100, "ambiguity": 0.05}
MOMENTA = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)


# Pairs of rebalancer and post-hoc adjustment.
BARE, ORACLE, OURS, POSTHOC = (
    ("none", ""),
    ("oracle-la", ""),
    ("records", ""),
    ("none", "oracle-la-posthoc"),
)
LOWER = {**CIFAR100, "ambiguity": 0.03}
BY_AMBIGUITY = [{**CIFAR10, "ambiguity": ambiguity} for ambiguity in (0.3, 0.5, 0.7)]
PROBED = "ltpll-research probe RUN, for the runs of average-prediction"
DRAWN = "ltpll-research tsne RUN, for proden's runs of the main table at q=0.5"
# Name, place, title, columns, method and rows of what the runs show by themselves or, for others,
# the command that shows it. The caption of Figure 6a names both CORR and PRODEN.
FIGURES: tuple[tuple[Any, ...], ...] = (
    ("average-prediction", "Figure 1", "Average prediction during training", [CIFAR100], "proden"),
    ("prior", "Figure 3", "The estimated prior and its distance from the truth", [LOWER], "corr"),
    ("toy", "Figure 4", "Toy study", [], "", "ltpll-research toy"),
    ("per-class", "Figure 5", "Accuracy per class", BY_AMBIGUITY, "corr"),
    (
        "linear-probing",
        "Figure 6a",
        "Linear probing (PRODEN is our choice)",
        [CIFAR100],
        "proden",
        PROBED,
    ),
    ("ablation-m", "Figure 6b", "RECORDS' momentum", [CIFAR100], "corr"),
    ("t-sne", "Figure 8", "t-SNE of the features", [CIFAR10], "proden", DRAWN),
)
ROWS = {"prior": (OURS,), "toy": (), "per-class": (BARE, POSTHOC, ORACLE, OURS)}


def _figures() -> Iterator[Item]:
    for name, where, title, columns, method, *instead in FIGURES:
        lines = [_line(columns, method, *pair) for pair in ROWS.get(name, (BARE, ORACLE, OURS))]
        if name == "ablation-m":
            lines = list(_momenta())
        item = _item(name, where, title, columns, lines)
        yield replace(item, instead=instead[0] if instead else "")


def _momenta() -> Iterator[Line]:
    setting = {**CIFAR100, "method": "corr", "rebalancer": "records", "extras": []}
    for momentum in MOMENTA:
        # The default is left out, so that the run is shared with the main table.
        options = {} if momentum == 0.9 else {"options": {"records": {"momentum": momentum}}}
        cell = Cell(setting | options, "test", "balanced_accuracy", None)
        yield Line(f"corr + records, m = {momentum:g}", (cell,))


# ---- beyond the paper ------------------------------------------------------------------------

# Method, rebalancer, post-hoc adjustment, extras, protocol, and what the paper of this protocol
# reports for the two columns below.
SYSTEMS: tuple[tuple[str, str, str, Sequence[str], str, Sequence[float | None]], ...] = (
    ("solar", "none", "", (), "records-solar", (70.63, 41.71)),
    ("solar", "none", "la", (), "records-solar", ()),
    ("solar", "none", "", (), "solar", (74.16, None)),
    ("solar", "none", "la", (), "solar", (80.88, None)),
    ("pico", "none", "", (), "records", ()),
    ("pico", "records", "", (), "records", ()),
    ("htc", "none", "", (), "records", ()),
    ("htc", "none", "", (), "htc", ()),
    ("deacon", "none", "", (), "deacon", (85.78, None)),
    ("deacon", "none", "head", (), "deacon", (75.22, None)),
    ("deacon", "none", "tail", (), "deacon", (77.42, None)),
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
    title = "Whole systems and further combinations"
    yield _item("systems", "Beyond the paper", title, columns, lines)


ITEMS: dict[str, Item] = {item.name: item for item in (*_tables(), *_figures(), *_beyond())}
