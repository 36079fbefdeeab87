"""Feed: the rows and views of every step of an epoch, which can be left after any step and taken up again by another process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ltpll.rng import get_random_state, set_random_state
from ltpll.training.distributed import World

T = TypeVar("T")


class Draw(Protocol):
    """Makes views of rows, or only of those in the places given, which are then the same that it makes of all."""

    def __call__(self, rows: Tensor, places: Tensor | None = None) -> tuple[Tensor, ...]: ...


class Feed:
    """Deals out `n` rows in a random order, `batch_size` at a time, with their views as `draw` makes them.

    Views are drawn for `chunk` rows at once, since launches cost the same. So all that is needed to go on in the middle of an epoch
    are the random states from which its order and the views at hand were drawn, and the number of steps behind.
    """

    def __init__(
        self, n: int, batch_size: int, drop_last: bool, chunk: int, generator: torch.Generator, world: World | None = None
    ) -> None:
        self.n = n
        self.size = min(batch_size, n)
        self.per_draw = max(chunk // self.size, 1)
        self.rows = n // self.size * self.size if drop_last else n
        self.generator = generator
        self.world = world or World()
        self.step = 0
        self._states: dict[str, dict[str, Tensor]] = {}  # of the order and of the views at hand

    @property
    def settings(self) -> dict[str, int]:
        """What has to be the same for another feed to go on in the middle of an epoch."""
        return {"batch_size": self.size, "batches_per_draw": self.per_draw, "rows": self.rows}

    def batches(self, draw: Draw) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """What is left of the epoch: rows of whole batches, views of this process's share; `step` has been counted up when one comes."""
        order = self._again("order", self._order) if self.step else self._first("order", self._order)
        for number, rows in enumerate(order.split(self.size * self.per_draw)):
            batches = rows.split(self.size)
            behind = max(self.step - number * self.per_draw, 0)
            if behind >= len(batches):
                continue
            places = torch.arange(len(rows), device=rows.device).split(self.size)
            shares = [place[self.world.part(len(place))] for place in places]
            of_these = partial(draw, rows) if self.world.alone else partial(draw, rows, torch.cat(shares))
            views = self._again("views", of_these) if behind else self._first("views", of_these)
            sizes = [len(share) for share in shares]
            for index, *of in list(zip(batches, *(view.split(sizes) for view in views), strict=True))[behind:]:
                self.step += 1
                yield index, tuple(of)

    def restart(self) -> None:
        """The next epoch."""
        self.step = 0

    def _order(self) -> Tensor:
        return torch.randperm(self.n, generator=self.generator, device=self.generator.device)[: self.rows]

    # ---- random states ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """What to keep of an epoch under way."""
        return {f"{name}.{key}": tensor for name, state in self._states.items() for key, tensor in state.items()} if self.step else {}

    def load(self, step: int, state: Mapping[str, Tensor]) -> None:
        self.step = step
        self._states = {}
        for name, tensor in state.items():
            what, key = name.split(".", 1)
            self._states.setdefault(what, {})[key] = tensor

    def _first(self, name: str, draw: Callable[[], T]) -> T:
        self._states[name] = self._now()
        return draw()

    def _again(self, name: str, draw: Callable[[], T]) -> T:
        """The same draw as before, with all random states as they are now afterwards."""
        now = self._now()
        self._set(self._states[name])
        drawn = draw()
        self._set(now)
        return drawn

    def _now(self) -> dict[str, Tensor]:
        # Views may come from torch's own random state too.
        return {"generator": self.generator.get_state(), **get_random_state(self.generator.device)}

    def _set(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])
        set_random_state(state, self.generator.device)
