"""The catalogue: what the registries hold, in the words of the files themselves, for the command line and the README."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import Registry


@dataclass(frozen=True)
class Part:
    """One entry of a registry; `source` is the citation that opens its module, empty where there is none, `idea` what follows it."""

    kind: str
    name: str
    source: str
    idea: str
    file: str


def parts() -> list[Part]:
    """Every method, rebalancer and extra."""
    registries: list[Registry[object]] = [METHODS, REBALANCERS, EXTRAS]  # type: ignore[list-item]
    found = []
    for registry in registries:
        for name in registry:
            module = sys.modules[registry[name].__module__]
            first = (module.__doc__ or "").splitlines()[0]
            # Behind the citation's closing parenthesis, since a title may hold a colon of its own.
            before, separator, idea = first.partition("): ")
            source = before + ")" if separator else ""
            if not separator:
                _, _, idea = first.partition(": ")
            path = module.__name__.replace(".", "/") + ".py"
            found.append(Part(registry.kind, name, source, idea, path))
    return found
