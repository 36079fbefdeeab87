"""Registries of classes by name, filled from packages and plug-ins, and their options."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, ClassVar, Generic, Self, TypeVar

from ltpll.errors import InputError, InputWarning, UnknownNameError, first_line, shown
from ltpll.settings import checked_arguments

T = TypeVar("T")


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for an unknown name, with the closest known name and the list of all of them."""
    names = sorted(known)
    guess = get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {shown(guess[0])}?" if guess else ""
    available = ", ".join(names)
    return UnknownNameError(f"There is no {kind} {shown(name)}.{hint} Available: {available}.")


def named_parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The parameters of a constructor that can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in inspect.signature(cls).parameters.items() if p.kind in named}


def _check_options(what: str, options: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(options) - set(known)):
        listed = ", ".join(sorted(known)) or "none"
        raise InputError(f"{what} has no option {shown(name)}; its options: {listed}.")


def _checking(constructor: Callable[..., None]) -> Callable[..., None]:
    """The constructor, which first checks the options that it is given."""
    signature = inspect.signature(constructor)

    @wraps(constructor)
    def checked(self: Any, *values: Any, **options: Any) -> None:
        known = checked_arguments(constructor)
        for name, value in signature.bind(self, *values, **options).arguments.items():
            if name in known:
                plain = value.item() if hasattr(value, "item") else value
                known[name].check(plain, f"{type(self).__name__}'s {name}")
        constructor(self, *values, **options)

    return checked


class Configurable:
    """An object whose options can be read and changed by name, as in scikit-learn.

    Methods, rebalancers and extras are configurable, so `sklearn.base.clone` copies them and
    `GridSearchCV` searches over their options. A constructor stores each argument unchanged in an
    attribute of the same name. Options whose types state which values are allowed are checked
    (`ltpll.settings`).

    Examples:
        >>> records = RECORDS(momentum=0.99)
        >>> records.get_params()
        {'momentum': 0.99}
        >>> records.set_params(momentum=0.9)
        RECORDS(momentum=0.9)
    """

    stored_as: ClassVar[Mapping[str, str]] = {}
    """The attribute that holds an option, where a buffer or module of a checkpoint already has the
    option's name.
    """

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "__init__" in vars(cls):
            cls.__init__ = _checking(cls.__init__)  # type: ignore[method-assign]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options by name; `deep` has no effect, because options have no options themselves."""
        names = named_parameters(type(self))
        return {name: getattr(self, self.stored_as.get(name, name)) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Change options; the object is then as if newly constructed.

        Raises:
            InputError: If there is no such option, or its value is refused; nothing is changed
                then.
        """
        options = self.get_params()
        _check_options(type(self).__name__, params, options)
        new = type(self)(**{**options, **params})
        vars(self).clear()
        vars(self).update(vars(new))
        return self

    def fresh(self) -> Self:
        """A new object with the same options, without anything learned."""
        return type(self)(**self.get_params())

    def extra_repr(self) -> str:
        """The options, for the `repr` of modules."""
        return ", ".join(f"{name}={shown(value)}" for name, value in self.get_params().items())


class Registry(Mapping[str, type[T]], Generic[T]):
    """A read-only mapping from the `name` of a class to the class.

    Args:
        kind: What the classes are, for messages: "method".
        base: The class that all of them inherit from.
        group: The entry point group in which other distributions offer classes, loaded when the
            registry is first read.

    Examples:
        >>> METHODS["corr"](form="original").form
        'original'
    """

    def __init__(self, kind: str, base: type[T], group: str | None = None) -> None:
        self.kind = kind
        self.base = base
        self._classes: dict[str, type[T]] = {}
        self._unread_group = group

    def register(self, cls: type[T]) -> type[T]:
        """Add a class under its `name`; can be used as a decorator.

        Raises:
            InputError: If the class does not inherit from `base` or does not define a name, or if
                the name is taken. A class of `__main__` replaces another one there, so that a
                notebook cell can be run again.
        """
        name = vars(cls).get("name") if isinstance(cls, type) else None
        if not (name and isinstance(name, str) and issubclass(cls, self.base)):
            needed = f"a {self.kind} is a class that inherits from {self.base.__name__}"
            raise InputError(f"{cls!r} cannot be registered: {needed} and sets its own `name`.")
        taken = self._classes.get(name, cls)
        if taken is not cls and not taken.__module__ == cls.__module__ == "__main__":
            by = f"{taken.__module__}.{taken.__qualname__}"
            raise InputError(f"The {self.kind} name {shown(name)} is taken by {by}.")
        self._classes[name] = cls
        return cls

    def register_package(self, package: str, path: list[str]) -> Registry[T]:
        """Import every module of a package, register the classes there that set a `name`, and make
        them attributes of the package.
        """
        for info in sorted(pkgutil.iter_modules(path), key=lambda info: info.name):
            module = importlib.import_module(f"{package}.{info.name}")
            for cls in vars(module).values():
                own = isinstance(cls, type) and issubclass(cls, self.base)
                if own and cls.__module__ == module.__name__ and "name" in vars(cls):
                    setattr(sys.modules[package], cls.__name__, self.register(cls))
        return self

    def create(self, name: str, context: Mapping[str, Any] | None = None, **options: Any) -> T:
        """Construct an object from `options`, and the facts in `context` that it takes."""
        cls = self[name]
        parameters = named_parameters(cls)
        what = f"The {self.kind} {shown(name)}"
        _check_options(what, options, parameters)
        offered = {key: value for key, value in (context or {}).items() if key in parameters}
        arguments = {**offered, **options}
        for key, parameter in parameters.items():
            if parameter.default is parameter.empty and key not in arguments:
                raise InputError(f"{what} needs {shown(key)}, which is not known here.")
        return cls(**arguments)

    def _load_plugins(self) -> None:
        if self._unread_group is None:
            return
        from importlib.metadata import entry_points

        found = entry_points(group=self._unread_group)
        self._unread_group = None  # before importing: a plug-in may read the registry itself
        for entry in found:
            try:
                self.register(entry.load())
            except Exception as error:
                origin = f" of {entry.dist.name}" if entry.dist else ""
                which = f"The {self.kind} plug-in {shown(entry.name)}{origin}"
                kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
                why = f"{which} was not loaded ({kind}{first_line(error)})."
                warnings.warn(why, InputWarning, stacklevel=4)

    def __getitem__(self, name: str) -> type[T]:
        self._load_plugins()
        try:
            return self._classes[name]
        except (KeyError, TypeError):  # a TypeError for what cannot be a key
            raise unknown_name_error(self.kind, name, self._classes) from None

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted(self._classes))

    def __len__(self) -> int:
        self._load_plugins()
        return len(self._classes)

    def __repr__(self) -> str:
        return f"Registry of {self.kind}s: {', '.join(self)}"
