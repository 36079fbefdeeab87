"""Settings: what an entry of a config must be, so that one of the wrong kind is refused by name and not met inside a training."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ltpll.errors import InputError, shown

LARGEST_SEED = 2**32 - 1  # that numpy and scikit-learn take
# What a number must be beside a number: a test, and the words for it.
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (lambda value: value > 0, "above 0"),
    "weight_decay": (lambda value: value >= 0, "at least 0"),
    "epochs": (lambda value: value >= 1, "at least 1"),
    "batch_size": (lambda value: value >= 1, "at least 1"),
    "width": (lambda value: value >= 1, "at least 1"),
    "folds": (lambda value: value >= 0, "at least 0"),
    "imbalance": (lambda value: value >= 1, "at least 1"),
    "ambiguity": (lambda value: 0 <= value <= 1, "between 0 and 1"),
    "seed": (lambda value: 0 <= value <= LARGEST_SEED, f"between 0 and {LARGEST_SEED}"),
}


def check_setting(name: str, default: Any, value: Any, where: str = "The config's") -> None:
    """Refuse a value of another kind than the setting's default; a setting without one is text."""
    wanted = _wanted(name, default, value)
    if wanted is not None:
        raise InputError(f"{where} {name} is {shown(value)}: it must be {wanted}.")


def _wanted(name: str, default: Any, value: Any) -> str | None:
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, (int, float)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        if isinstance(default, float):
            return _outside(name, value) if number else "a number"
        if not number or value != int(value) or abs(value) >= 2**63:
            return "a whole number"
        return _outside(name, value)
    if name == "extras":
        return None if value is None or _are(value, str) else "a list of names, such as [mixup]"
    if name == "options":
        named = isinstance(value, Mapping) and _are(list(value), str)
        plain = value is None or (named and all(isinstance(of, Mapping) and _plain(of) for of in value.values()))
        return None if plain else "settings of parts by name, such as {lw: {beta: 2}}"
    return None if isinstance(value, str) else "text"


def _outside(name: str, value: float) -> str | None:
    """What a number must be, if it is not."""
    fits, words = RANGES.get(name, (lambda value: True, ""))
    return None if fits(value) else words


def _plain(options: Mapping[Any, Any]) -> bool:
    """Numbers, text and flat lists of them: deeper content of a small file can, where parts refer to others, unfold to gigabytes."""
    return _are(list(options), str) and all(
        value is None or _are(value if isinstance(value, (list, tuple)) else [value], bool, int, float, str) for value in options.values()
    )


def _are(values: Any, *kinds: type) -> bool:
    """Whether this is a list of nothing else, in which no number is infinite."""
    return isinstance(values, (list, tuple)) and all(
        isinstance(value, kinds) and not (isinstance(value, float) and not math.isfinite(value)) for value in values
    )
