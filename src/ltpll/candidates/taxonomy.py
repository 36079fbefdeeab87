"""Taxonomy: a tree of names in which a group stands for all classes below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from ltpll.errors import InputError, shown


class Taxonomy:
    """A tree (or several) whose inner nodes are groups and whose leaves are classes.

    Args:
        parents: For each name its parent; None or "" for a root. A parent that has no entry of its
            own is a root.
        ranks: For some names their rank, such as `genus`; `genus:Vulpes` then means the same as
            `Vulpes`.

    Raises:
        InputError: The names form a circle.

    Examples:
        >>> groups = {"red fox": "Vulpes", "fennec": "Vulpes", "wolf": "Canis"}
        >>> Taxonomy(groups).classes_below("Vulpes")
        ('red fox', 'fennec')
    """

    def __init__(
        self, parents: Mapping[str, str | None], ranks: Mapping[str, str] | None = None
    ) -> None:
        self.ranks = dict(ranks or {})
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
        """Whether a name, with or without its rank, is an inner node."""
        return self.without_rank(name) in self._children

    def without_rank(self, name: str) -> str:
        """A name without its rank; other names are unchanged."""
        if name in self.names or ":" not in name:
            return name
        rank, _, rest = (part.strip() for part in name.partition(":"))
        return rest if rest in self.names and self.ranks.get(rest) == rank else name

    def classes_below(self, name: str) -> tuple[str, ...]:
        """The classes that a name stands for: the class itself, or all leaves below a group.

        Args:
            name: A class, a group, or a group with its rank, such as `genus:Vulpes`.

        Raises:
            InputError: The name is not in the taxonomy; the message is the end of a sentence that
                names the row.
        """
        bare = self.without_rank(name)
        if bare not in self.names:
            guess = get_close_matches(name, list(self.names), n=1)
            hint = f" (did you mean {shown(guess[0])}?)" if guess else ""
            which = f"{shown(name)}, which is not in the taxonomy{hint}"
            raise InputError(f"{which}: correct the name or its rank, or add it to the taxonomy")
        return tuple(self._leaves_below(bare))


def build_taxonomy(
    entries: Iterable[tuple[str, str, str]], where: Callable[[int], str]
) -> Taxonomy:
    """A taxonomy from name, parent and rank of each entry; an empty parent or rank is none.

    Raises:
        InputError: A name has two parents or two ranks, or names form a circle; `where` names the
            entry.
    """
    parents: dict[str, str] = {}
    ranks: dict[str, str] = {}
    for i, (name, parent, rank) in enumerate(entries):
        if not name:
            raise InputError(f"{where(i)} has no name: name a class or a group, or drop it.")
        for what, value, known in (("parent", parent, parents), ("rank", rank, ranks)):
            if value or what == "parent":
                before = known.setdefault(name, value)
                if before != value:
                    which = f"{where(i)} gives {shown(name)} the {what} {shown(value)}"
                    had = f"the {what} {shown(before)}" if before else f"no {what}"
                    raise InputError(f"{which}, but it had {had} before: keep one of them.")
    return Taxonomy(parents, ranks)
