"""Batches: the rows and views of every step of an epoch, which another process can resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from ltpll.rng import get_random_state, set_random_state
from ltpll.training.checkpoint import under_prefix, with_prefix
from ltpll.training.distributed import World

T = TypeVar("T")
DrawViews = Callable[..., tuple[Tensor, ...]]
"""Draws the views of some rows, or with a second argument only those at these places."""


class BatchSampler:
    """Shuffles `n` rows and yields them in batches with their views.

    Views are drawn for `chunk` rows at once, because each draw has a fixed cost. To resume in the
    middle of an epoch, it suffices to know the random states from which the order and the current
    views were drawn, and the number of steps done.

    `batch_size` counts the rows of all processes together; each process of `world` gets the views
    of its share of every batch. A last batch with fewer rows than processes is always dropped.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        drop_last: bool,
        chunk: int,
        generator: torch.Generator,
        world: World | None = None,
    ) -> None:
        self.n = n
        self.size = min(batch_size, n)
        self.batches_per_draw = max(chunk // self.size, 1)
        self.generator = generator
        self.world = world or World()
        rest = n % self.size
        # Each process needs a row.
        self.rows = n - rest if drop_last or rest < self.world.size else n
        self.step = 0
        # The random states before the order and the current views were drawn.
        self._states: dict[str, dict[str, Tensor]] = {}

    @property
    def settings(self) -> dict[str, int]:
        """The settings that must be equal to resume in the middle of an epoch."""
        draws = {"batch_size": self.size, "batches_per_draw": self.batches_per_draw}
        return {**draws, "rows": self.rows}

    def batches(
        self, draw: DrawViews, announce: Callable[..., None] = lambda rows, *places: None
    ) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Yield the rows of the remaining batches and the views of this process's share of them.

        `step` is incremented before a batch is yielded. `draw` draws the views of some rows; after
        each draw, `announce` is called as `draw` will be for the next one.
        """
        order = self._draw("order", self._draw_order, again=self.step > 0)
        chunks = order.split(self.size * self.batches_per_draw)
        for number, rows in enumerate(chunks):
            batches = rows.split(self.size)
            done = max(self.step - number * self.batches_per_draw, 0)
            if done >= len(batches):
                continue
            shares = self._shares(rows)
            views = self._draw("views", partial(draw, *self._own(rows)), again=done > 0)
            if number + 1 < len(chunks):
                announce(*self._own(chunks[number + 1]))
            sizes = [len(share) for share in shares]
            views_of = (view.split(sizes) for view in views)
            for index, *batch_views in list(zip(batches, *views_of, strict=True))[done:]:
                self.step += 1
                yield index, tuple(batch_views)

    def _shares(self, rows: Tensor) -> list[Tensor]:
        """The places of this process's share of each batch of a draw."""
        places = torch.arange(len(rows), device=rows.device).split(self.size)
        return [place[self.world.own_rows(len(place))] for place in places]

    def _own(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The rows of a draw, with this process's places unless it is alone."""
        return (rows,) if self.world.alone else (rows, torch.cat(self._shares(rows)))

    def restart(self) -> None:
        """Begin the next epoch."""
        self.step = 0

    def _draw_order(self) -> Tensor:
        order = torch.randperm(self.n, generator=self.generator, device=self.generator.device)
        return order[: self.rows]

    # ---- random states ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """The random states of the current epoch; empty between epochs."""
        found: dict[str, Tensor] = {}
        for name, state in self._states.items() if self.step else ():
            found |= with_prefix(name, state)
        return found

    def load_state_dict(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Resume after `step` steps of an epoch."""
        self.step = step
        self._states = {name: under_prefix(name, state) for name in ("order", "views")}

    def _draw(self, name: str, draw: Callable[[], T], *, again: bool) -> T:
        """Draw or, leaving all random states unchanged, repeat the earlier draw."""
        current = self._random_state()
        if not again:
            self._states[name] = current
            return draw()
        self._set_random_state(self._states[name])
        drawn = draw()
        self._set_random_state(current)
        return drawn

    def _random_state(self) -> dict[str, Tensor]:
        # Views may also draw from torch's global random state.
        return {"generator": self.generator.get_state(), **get_random_state(self.generator.device)}

    def _set_random_state(self, state: Mapping[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])
        set_random_state(state, self.generator.device)
