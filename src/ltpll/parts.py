"""Building methods, rebalancers and extras from names and options, and describing them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ltpll.errors import InputError, shown
from ltpll.extras import EXTRAS
from ltpll.interfaces import Extra, Method, Rebalancer
from ltpll.methods import METHODS
from ltpll.part_info import PartInfo
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import Configurable, Registry

P = TypeVar("P", bound=Configurable)
AUTO = "auto"
Options = Mapping[str, Mapping[str, Any]]


class Parts(NamedTuple):
    """The parts of a training run, in the order in which `PartialLabelTrainer` takes them."""

    method: Method
    rebalancer: Rebalancer
    extras: list[Extra]


def build_parts(
    method: str | Method,
    rebalancer: str | Rebalancer = "none",
    extras: Sequence[str | Extra] = (),
    options: Options | None = None,
    **context: Any,
) -> Parts:
    """Build new parts, each given by its name or as an object.

    Args:
        method: A name in `METHODS`, or a method.
        rebalancer: A name in `REBALANCERS`, or a rebalancer; "auto" is "none" for methods that
            cannot be combined with one.
        extras: Names in `EXTRAS`, or extras.
        options: Constructor arguments of parts given by name, for example `{"corr": {"form":
            "original"}}`.
        **context: Facts that are passed on to parts given by name if their constructors take them,
            such as `class_frequencies`.

    Returns:
        New parts; objects that were given are copied with their options and never changed.

    Raises:
        UnknownNameError: If there is no part of that name.
        InputError: If an option is unknown, or belongs to a part that is not among the given names.

    Examples:
        >>> method, rebalancer, extras = build_parts(
        ...     "corr", RECORDS(momentum=0.99), ["mixup"], {"mixup": {"alpha": 2}}
        ... )
        >>> extras[0].alpha
        2
    """
    options = options or {}
    given = [part for part in (method, rebalancer, *extras) if isinstance(part, str)]
    unused = next((name for name in options if name not in given), None)
    if unused is not None:
        which = f"There are options for {shown(unused)}"
        raise InputError(f"{which}, but no method, rebalancer or extra is given by that name.")
    built = _build_part(METHODS, method, options, context)
    if rebalancer == AUTO and built.why_no_rebalancer:
        rebalancer = "none"
    chosen = _build_part(REBALANCERS, rebalancer, options, context)
    return Parts(built, chosen, [_build_part(EXTRAS, extra, options, context) for extra in extras])


def _build_part(
    registry: Registry[P], part: str | P, options: Options, context: Mapping[str, Any]
) -> P:
    if isinstance(part, registry.base):
        return part.fresh()
    if isinstance(part, type):
        which = f"The {registry.kind} is the class {part.__name__}"
        raise InputError(f"{which}: give an object, {part.__name__}(…).")
    name = part if isinstance(part, str) else shown(part)
    return registry.create(name, context, **options.get(name, {}))


def describe_parts() -> list[PartInfo]:
    """Every available method, rebalancer and extra, including plug-ins."""
    registries: list[Registry[Any]] = [METHODS, REBALANCERS, EXTRAS]
    return [
        PartInfo.of_docstring(
            registry.kind,
            name,
            sys.modules[cls.__module__].__doc__ or "",
            cls.__module__.replace(".", "/") + ".py",
        )
        for registry in registries
        for name, cls in registry.items()
    ]
