"""Taxonomy: a tree of names in which a group stands for all classes below it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from ltpll.errors import InputError, shown


class Taxonomy:
    """A tree (or several) whose inner nodes are groups and whose leaves are classes.

    Args:
        parents: For each name its parent; None or "" for a root. A parent that has no entry of its
            own is a root.

    Raises:
        InputError: The names form a circle.

    Examples:
        >>> groups = {"red fox": "Vulpes", "fennec": "Vulpes", "wolf": "Canis"}
        >>> Taxonomy(groups).classes_below("Vulpes")
        ('red fox', 'fennec')
    """

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._children: dict[str, list[str]] = {}
        for name, parent in parents.items():
            if parent:
                self._children.setdefault(parent, []).append(name)
        try:
            TopologicalSorter(self._children).prepare()
        except CycleError as error:
            which = f"{shown(error.args[1][0])} is among its own parents"
            raise InputError(
                f"The taxonomy goes round in a circle: {which}; correct one."
            ) from None
        self.names = dict.fromkeys((*self._children, *parents))
        roots = (name for name in self.names if not parents.get(name))
        self.leaves = tuple(chain.from_iterable(map(self._leaves_below, roots)))

    def _leaves_below(self, name: str) -> list[str]:
        leaves, waiting = [], [name]
        while waiting:
            node = waiting.pop()
            waiting += reversed(self._children.get(node, ()))
            if node not in self._children:
                leaves.append(node)
        return leaves

    def is_group(self, name: str) -> bool:
        """Whether a name is an inner node."""
        return name in self._children

    def classes_below(self, name: str) -> tuple[str, ...]:
        """The classes that a name stands for: the class itself, or all leaves below a group.

        Raises:
            InputError: The name is not in the taxonomy; the message is the end of a sentence that
                names the row.
        """
        if name not in self.names:
            guess = get_close_matches(name, list(self.names), n=1)
            hint = f" (did you mean {shown(guess[0])}?)" if guess else ""
            which = f"{shown(name)}, which is not in the taxonomy{hint}"
            raise InputError(f"{which}: correct the name, or add it to the taxonomy")
        return tuple(self._leaves_below(name))
