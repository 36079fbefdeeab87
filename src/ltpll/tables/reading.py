"""Reading: how a table is read; every setting is a field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ltpll.candidates.expressions import EMPTY
from ltpll.candidates.parsing import check_class_names
from ltpll.candidates.scores import DEFAULT_SCORES, SCORES, check_selection
from ltpll.candidates.votes import DEFAULT_VOTE_WEIGHTS, check_vote_weights, vote_rule
from ltpll.errors import InputError, shown
from ltpll.tables.annotation_columns import TRUE_LABEL
from ltpll.tables.streaming import Table

OBJECTS = ("images", "crops")  # examples of a COCO file


@dataclass(frozen=True)
class Reading:
    """How to read a table.

    A column may be missing if its option has the default name. The sets are in one column of text, or in one column per class. In a
    table of annotations, every row is the label that one annotator gave to one task; columns that are not named are found by their usual
    names.

    Args:
        candidates: The column of candidate sets.
        separator: What separates the names in a cell of `candidates`.
        id: The column of ids; None if ids are row numbers.
        path: The column of image paths; None if there is none.
        label: The column of true labels, which are used for evaluation only; by default the column `label`, if there is one and it does
            not hold the annotations.
        split: The column that names the split.
        group: The column of the picture or scene that rows share; None if there is none.
        class_columns: One 0/1 column per class, by name or with a prefix such as `is_*`.
        probability_columns: One column of probabilities per class, from which `top_k` or `mass` makes sets.
        top_k: Candidates are the k most likely classes.
        mass: Candidates are the fewest classes that together reach this probability.
        scores: What scores in cells such as `fox:0.6|dog:0.3`, and probabilities, are used for: `weights` of the candidates, or `none`.
        excluded: A column of classes that are removed from the row's set; by default the column `excluded`, if there is one and it does not
            hold numbers.
        empty: What a row without candidates means: `stop` (an error) or `all` (every class).
        taxonomy: A file of groups, whose names stand for all classes below them (see `read_taxonomy`).
        possible: A column of the classes that are possible in a row; None if there is none.
        site: The column of sites, for `possible_at`.
        possible_at: A file of the classes that are possible at each site.
        annotators: How the annotations of a task become a set, in a table of annotations: `union`, `votes-2` or `top-3`.
        task: The column of the examples that were annotated; usual names are task, image, item, id and path.
        worker: The column of annotators; usual names are worker, annotator, user and rater.
        annotation: The column of annotated labels; usual names are label, choice, answer and annotation.
        vote_weights: How the votes of annotators weight the candidates: `reliability`, `counts` or `none`.
        features: The feature columns, by name or with a pattern such as `f*`, which stands for columns of numbers; by default all other
            columns of numbers.
        ignore: Columns that are not features, by name or with a pattern; nor are they used for anything because of their usual name.
        control: The question of a Label Studio project whose choices are read; needed if there are several.
        objects: What the examples of a COCO file are: `images`, or `crops` for one example per annotation, cut out of its picture.
        classes: The classes in order; by default the names that occur.

    Examples:
        >>> reading = Reading(candidates="labels", separator=";", features=("height", "width"))
    """

    candidates: str = "candidates"
    separator: str = "|"
    id: str | None = "id"
    path: str | None = "path"
    label: str | None = None
    split: str = "split"
    group: str | None = None
    class_columns: tuple[str, ...] = ()
    probability_columns: tuple[str, ...] = ()
    top_k: int | None = None
    mass: float | None = None
    scores: str = DEFAULT_SCORES
    excluded: str | None = None
    empty: str = "stop"
    taxonomy: str | None = None
    possible: str | None = None
    site: str | None = None
    possible_at: str | None = None
    annotators: str | None = None
    task: str | None = None
    worker: str | None = None
    annotation: str | None = None
    vote_weights: str = DEFAULT_VOTE_WEIGHTS
    features: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    control: str | None = None
    objects: str = "images"
    classes: tuple[str, ...] | None = None

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
        """The options that differ from their defaults."""
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def check(self, *, is_json: bool = False) -> None:
        """Refuse options that contradict each other; files of labelling tools (`is_json`) have scores and votes themselves."""
        sources = {
            "class_columns": self.class_columns,
            "probability_columns": self.probability_columns,
            "annotators": self.annotators,
        }
        given = [name for name, value in sources.items() if value]
        if len(given) > 1:
            raise InputError(
                f"Sets cannot be read from {' and from '.join(given)} at the same time: give one of them."
            )
        rules = [
            name
            for name, value in (("top_k", self.top_k), ("mass", self.mass))
            if value is not None
        ]
        if self.probability_columns and len(rules) != 1:
            raise InputError(
                "Probabilities become sets by top_k (the k most likely) or by mass (the fewest that reach it): give one of the two."
            )
        if is_json and len(rules) > 1:
            raise InputError(
                "Scores become sets by top_k (the k most likely) or by mass (the fewest that reach it): give one of the two."
            )
        if rules and not self.probability_columns and not is_json:
            raise InputError(
                f"{rules[0]} makes sets from probabilities, but no probability_columns are given: name them, or omit {rules[0]}."
            )
        check_selection(self.top_k, self.mass)
        self._check_set_rules()
        if self.annotators is not None:
            vote_rule(self.annotators)
        named = next(
            (name for name in ("task", "worker", "annotation") if getattr(self, name) is not None),
            None,
        )
        if named is not None and self.annotators is None:
            raise InputError(
                f"{named} names a column of annotations, but annotators is not given: choose union, or omit {named}."
            )
        check_vote_weights(self.vote_weights)
        if self.objects not in OBJECTS:
            raise InputError(f"objects is {shown(self.objects)}: choose {' or '.join(OBJECTS)}.")
        if self.objects != OBJECTS[0] and not is_json:
            raise InputError("objects is for annotations of COCO: omit it for tables.")
        if self.control is not None and not is_json:
            raise InputError(
                "control names a question of a Label Studio project: omit it for tables."
            )
        if self.annotators is None and self.vote_weights != DEFAULT_VOTE_WEIGHTS and not is_json:
            raise InputError(
                "vote_weights needs the votes of annotators, but annotators is not given: give it, or omit vote_weights."
            )
        if self.classes is not None:
            check_class_names(self.classes)

    def _check_set_rules(self) -> None:
        for name, known in (("scores", SCORES), ("empty", EMPTY)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} is {shown(getattr(self, name))}: it must be {' or '.join(known)}."
                )
        if (self.site is None) != (self.possible_at is None):
            missing = (
                "the file possible_at with their classes"
                if self.possible_at is None
                else "the column site that names them"
            )
            raise InputError(
                f"The possible classes of sites need {missing}: give both, or omit {'site' if self.site else 'possible_at'}."
            )
        if self.possible is not None and self.site is not None:
            raise InputError(
                "The possible classes of a row come from a column or from its site: give one of possible and possible_at."
            )
        given = self.changed_set_rules()
        if self.annotators is not None and given:
            raise InputError(
                f"{given[0]} is for candidate sets, but the sets are made of annotations: omit it, or write the sets to a table first."
            )

    def changed_set_rules(self) -> list[str]:
        """The fields about the making of sets that differ from their defaults."""
        rules = ("scores", "excluded", "empty", "taxonomy", "possible", "site", "possible_at")
        return [
            one.name
            for one in fields(self)
            if one.name in rules and getattr(self, one.name) != one.default
        ]

    def find(self, table: Table, what: str) -> int | None:
        """The number of a column; None if it is not given, or is missing and has its default name."""
        name, default = (
            getattr(self, what),
            next(one.default for one in fields(self) if one.name == what),
        )
        if what in DEFAULT_COLUMNS and name is None:
            name = default = DEFAULT_COLUMNS[what]
        if name is None:
            return None
        if name == default and (
            name not in table.names or any(fits(name, pattern) for pattern in self.ignore)
        ):
            return None
        return table.column(name)


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern such as `f*` stands for this name; without `*`, it stands for itself only."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


DEFAULT_COLUMNS = {"label": TRUE_LABEL, "excluded": "excluded"}
DEFAULT_READING = Reading()
