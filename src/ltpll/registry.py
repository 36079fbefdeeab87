"""A read-only mapping from names to classes that fills itself from the files of a package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from ltpll.errors import InputError, UnknownNameError, shown

T = TypeVar("T")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among the known ones: it guesses what was meant and lists them."""
    names = sorted(known)
    guess = get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {shown(guess[0])}?" if guess else ""
    return UnknownNameError(f"There is no {kind} {shown(name)}.{hint} Available: {', '.join(names)}.")


class Registry(Mapping[str, type[T]], Generic[T]):
    """Classes by their `name`; looking up a name that is not there lists the ones that are."""

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind = kind
        self.base = base
        self._classes: dict[str, type[T]] = {}

    def register(self, cls: type[T]) -> type[T]:
        """Add a class under its `name`; usable as a decorator, so methods can live outside this package."""
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            raise InputError(f"{cls!r} is not a {self.base.__name__}, so it cannot be registered as a {self.kind}.")
        name = cls.__dict__.get("name")
        if not isinstance(name, str) or not name:
            raise InputError(f"{cls.__name__} has no name: set the class attribute `name` to register it as a {self.kind}.")
        taken = self._classes.get(name)
        if taken is not None and taken is not cls:
            raise InputError(f"The {self.kind} name {shown(name)} is taken by {taken.__module__}.{taken.__qualname__}.")
        self._classes[name] = cls
        return cls

    def discover(self, package: str, path: list[str]) -> Registry[T]:
        """Import every module of a package and register the classes defined in it that have a `name` of their own."""
        for info in sorted(pkgutil.iter_modules(path), key=lambda info: info.name):
            module = importlib.import_module(f"{package}.{info.name}")
            for cls in vars(module).values():
                here = isinstance(cls, type) and issubclass(cls, self.base) and cls.__module__ == module.__name__
                if here and "name" in vars(cls):
                    self.register(cls)
        return self

    def create(self, name: str, context: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Build an object by name: `options` are the user's, `context` offers facts that the class takes if it wants them."""
        cls = self[name]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = {key: p for key, p in inspect.signature(cls).parameters.items() if p.kind in named}
        unknown = sorted(set(options) - set(parameters))
        if unknown:
            known = ", ".join(sorted(set(parameters) - set(context or {}))) or "none"
            raise InputError(f"The {self.kind} {shown(name)} has no option {shown(unknown[0])}; its options: {known}.")
        offered = {key: value for key, value in (context or {}).items() if key in parameters}
        arguments = {**offered, **options}
        missing = [key for key, p in parameters.items() if p.default is p.empty and key not in arguments]
        if missing:
            raise InputError(f"The {self.kind} {shown(name)} needs {shown(missing[0])}, which is not known here.")
        return cls(**arguments)

    def __getitem__(self, name: str) -> type[T]:
        try:
            return self._classes[name]
        except KeyError:
            raise unknown_name(self.kind, name, self._classes) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def __len__(self) -> int:
        return len(self._classes)

    def __repr__(self) -> str:
        return f"Registry of {self.kind}s: {', '.join(self)}"
