"""Reading: how a table is read; every setting is a field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ltpll.errors import InputError
from ltpll.settings import Count, FilePath, Within, check_types

if TYPE_CHECKING:  # so that the help of a command does not import torch
    from ltpll.tables.streaming import Table

TRAINING = ("train", "training")  # splits
HELD_OUT = ("test", "val", "valid", "validation", "dev", "eval", "holdout", "held-out")


@dataclass(frozen=True)
class Reading:
    """How to read a table.

    A column may be missing if its setting has the default name. The sets are in one column of text,
    or in one column per class. In a table of annotations, every row is the label that one annotator
    gave to one task; columns that are not named are found by their usual names.

    Examples:
        >>> reading = Reading(candidates="labels", separator=";", features=("height", "width"))
    """

    candidates: str = "candidates"
    """Column of candidate sets, such as cat|fox or a JSON list."""
    separator: str = "|"
    """Separates the candidates of a set."""
    id: str | None = "id"
    """Column of ids; without one, ids are row numbers."""
    path: str | None = "path"
    """Column of paths of pictures, inside the folder of images."""
    label: str | None = None
    """Column of true labels, used for evaluation only. By default the column label, if there is one
    and it does not hold the annotations."""
    split: str = "split"
    """Column with train or test; test rows are held out."""
    group: str | None = None
    """Column of the picture or scene that rows share; all its rows are in the same fold."""
    class_columns: tuple[str, ...] = ()
    """Instead of sets: a column of 0 and 1 for each class. Name them, or give a prefix: 'is_*'."""
    probability_columns: tuple[str, ...] = ()
    """Instead of sets: a column of probabilities for each class, from which top_k or mass makes
    sets. Name them, or give a prefix: 'p_*'."""
    top_k: Count | None = None
    """The candidates are the k most probable classes."""
    mass: Annotated[float, Within(0, 1, open_below=True)] | None = None
    """The candidates are the fewest classes whose probabilities sum to this."""
    scores: Literal["weights", "none"] = "weights"
    """What scores such as {"fox": 0.6, "dog": 0.3}, or probabilities, are for: weights of the
    candidates, or none."""
    empty: Literal["stop", "all"] = "stop"
    """What an empty set means: stop (a mistake), or all (every class)."""
    taxonomy: FilePath | None = None
    """Groups that may stand for all classes below them: a table of class and parent."""
    annotators: str | None = None
    """Instead of sets: rows are single annotations, joined by union, votes-2 (at least two votes)
    or top-3."""
    task: str | None = None
    """Column of annotated examples; by default task, image, item, id or path."""
    worker: str | None = None
    """Column of annotators; by default worker, annotator, user or rater."""
    annotation: str | None = None
    """Column of annotated labels; by default annotation, label, choice or answer."""
    vote_weights: Literal["reliability", "counts", "none"] = "reliability"
    """How votes weight the candidates: by the annotators' estimated reliability, by their number,
    or not at all."""
    features: tuple[str, ...] | None = None
    """Columns to learn from, by name or by a pattern such as 'f*'. By default all other columns of
    numbers."""
    ignore: tuple[str, ...] = ()
    """Columns that are not features, by name or by a pattern such as 'meta_*'; nor are they used
    for anything because of their usual name."""
    sheet: str | None = None
    """Sheet of an Excel file; by default the only one with data."""
    control: str | None = None
    """Question of a Label Studio project whose choices are read; needed if there are several."""
    classes: tuple[str, ...] | None = None
    """The classes in order; by default the names that occur."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Reading:
        """Create from options or records, in which tuples are lists; unknown names are ignored."""
        known = {one.name for one in fields(cls)}
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in known
        }
        return cls(**given)

    def given(self) -> list[str]:
        """The settings that differ from their defaults."""
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def check(self, *, is_json: bool = False) -> None:
        """Refuse settings that contradict each other.

        Args:
            is_json: Whether the file is that of a labelling tool or SpeciesNet, which has scores
                and votes without settings about columns.

        Raises:
            InputError: A value does not fit its setting, or two settings do not fit each other.
        """
        check_types(self)
        made_of = "class_columns", "probability_columns", "annotators"
        sources = [name for name in made_of if getattr(self, name)]
        rules = [name for name in ("top_k", "mass") if getattr(self, name)]
        rules_of_sets = "scores", "empty", "taxonomy"
        set_rules = [name for name in self.given() if name in rules_of_sets]
        problems = {
            f"Sets cannot be read from {' and from '.join(sources)} at the same time: give one of "
            "them.": len(sources) > 1,
            "Scores become sets by top_k (the k most likely) or by mass (the fewest that reach "
            "it): give one of the two.": len(rules) > 1
            or (len(rules) == 0 and bool(self.probability_columns)),
            f"{' '.join(set_rules[:1])} is for candidate sets, but the sets are made of "
            "annotations: leave it out, or write the sets to a table first.": bool(set_rules)
            and self.annotators is not None,
        }
        needed = dict.fromkeys(("task", "worker", "annotation"), "annotators")
        if not is_json:
            needed |= {"top_k": "probability_columns", "mass": "probability_columns"}
            needed |= {"vote_weights": "annotators", "control": "a project of Label Studio"}
        problems |= {
            f"{name} needs {other}: give it, or leave {name} out.": not getattr(self, other, None)
            for name, other in needed.items()
            if name in self.given()
        }
        for problem, is_there in problems.items():
            if is_there:
                raise InputError(problem)
        if self.annotators is not None:
            from ltpll.candidates.votes import vote_rule

            vote_rule(self.annotators)
        if self.classes is not None:
            from ltpll.candidates.parsing import check_class_names

            check_class_names(self.classes)

    def find(self, table: Table, what: str) -> int | None:
        """The number of a column; None if it is not given, or is missing with its default name."""
        name = getattr(self, what) or DEFAULT_COLUMNS.get(what)
        if name is None:
            return None
        default = DEFAULT_COLUMNS.get(what, getattr(DEFAULT_READING, what))
        is_ignored = any(fits(name, pattern) for pattern in self.ignore)
        if name == default and (name not in table.names or is_ignored):
            return None
        return table.column(name)


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern such as `f*` stands for this name; without `*`, only for itself."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


DEFAULT_COLUMNS = {"label": "label"}
DEFAULT_READING = Reading()
