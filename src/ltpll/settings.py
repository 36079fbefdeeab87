"""Settings: fields of frozen dataclasses, from which files, command-line options and checks follow.

A setting is a field with a type, a default and a docstring below it. Fields whose types are such
dataclasses themselves are sections, so that a setting has a name such as `table.separator`.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ltpll.errors import InputError, first_line, shown

T = TypeVar("T")


# ---- types of settings ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Within:
    """The range of a number; `open_below` and `open_above` exclude its ends."""

    least: float = -math.inf
    most: float = math.inf
    open_below: bool = False
    open_above: bool = False

    def __call__(self, value: float) -> float:
        below = value <= self.least if self.open_below else value < self.least
        above = value >= self.most if self.open_above else value > self.most
        if below or above:
            raise ValueError
        return value

    def words(self, kind: str) -> str:
        """The range in words."""
        if not (self.open_below or self.open_above) and math.isfinite(self.most - self.least):
            return f"{kind} between {self.least:g} and {self.most:.10g}"
        given = []
        if self.least > -math.inf:
            given.append(f"{'above' if self.open_below else 'of at least'} {self.least:g}")
        if self.most < math.inf:
            given.append(f"{'below' if self.open_above else 'at most'} {self.most:g}")
        return f"{kind} {' and '.join(given)}"


@dataclass(frozen=True)
class _OfLength:
    """So many values."""

    n: int

    def __call__(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(value) != self.n:
            raise ValueError
        return value

    def words(self, kind: str) -> str:
        return f"{self.n} values, each {kind.removesuffix(', or a list of such')}"


class _Path:
    """Makes the name of a file absolute, so that a record names it wherever it is read."""

    def __call__(self, value: str) -> str:
        return str(Path(value).expanduser().absolute())

    def words(self, kind: str) -> str:
        return "the path of a file"


class _Plain:
    """Refuses what JSON and TOML do not both have, such as dates, and lists of lists."""

    def __call__(self, value: Any) -> Any:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            number = isinstance(one, float)
            if not isinstance(one, (str, int, type(None))) and not number:
                raise ValueError
            if number and not math.isfinite(one):
                raise ValueError
        return value

    def words(self, kind: str) -> str:
        return "text, a number, or a list of these"


FilePath = Annotated[str, _Path()]
Plain = Annotated[Any, _Plain()]
Count = Annotated[int, Within(1)]
Seed = Annotated[int, Within(0, 2**32 - 1)]  # that numpy and scikit-learn accept
Share = Annotated[float, Within(0, 1, open_above=True)]
Whole = Annotated[int, Within(0)]
NotNegative = Annotated[float, Within(0)]
Positive = Annotated[float, Within(0, open_below=True)]
Fraction = Annotated[float, Within(0, 1)]
Fractions = Annotated[tuple[Fraction, Fraction], _OfLength(2)]
Wholes = Annotated[tuple[Whole, Whole], _OfLength(2)]


def accepted(kind: Any, value: Any) -> Any:
    """The value as a setting of this type has it, such as a list as a tuple, or a ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = accepted(arguments[0], value)
        for rule in arguments[1:]:
            value = rule(value)
        return value
    if origin in (Union, types.UnionType):
        for one in arguments:
            try:
                return accepted(one, value)
            except ValueError:
                continue
    elif origin is tuple:
        values = [value] if isinstance(value, str) else value
        if isinstance(values, (list, tuple)):
            return tuple(accepted(arguments[0], one) for one in values)
    elif origin is Mapping:
        if isinstance(value, Mapping):
            return {str(name): accepted(arguments[1], one) for name, one in value.items()}
    elif kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        whole = math.isfinite(value) and value == int(value) and abs(value) < 2**63
        if math.isfinite(value) if kind is float else whole:
            return kind(value)
    elif origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
    elif kind is Any or (kind in (str, bool, type(None)) and isinstance(value, kind)):
        return value
    raise ValueError


def expected(kind: Any, show: Callable[[Any], str] = str) -> str:
    """What a setting of this type must be, such as "a whole number of at least 1 or auto"."""
    *first, last = _alternatives(kind, show)
    return f"{', '.join(first)} or {last}" if first else last


def _alternatives(kind: Any, show: Callable[[Any], str]) -> list[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return [arguments[1].words(expected(arguments[0]))]
    if origin in (Union, types.UnionType):
        listed = {one for kind in arguments if get_origin(kind) is tuple for one in get_args(kind)}
        others = [one for one in arguments if one is not type(None) and one not in listed]
        return [word for one in others for word in _alternatives(one, show)]
    if origin is Literal:
        return list(map(show, arguments))
    if kind is bool and show is repr:
        return ["True", "False"]
    if origin is tuple:
        return [f"{expected(arguments[0])}, or a list of such"]
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return [plain.get(kind, "a table of names and values")]


# ---- one setting ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One setting, by its full name."""

    name: str
    kind: Any
    default: Any
    help: str
    show: Callable[[Any], str] = str  # how messages write its choices

    @property
    def takes_several(self) -> bool:
        """Whether its option may be repeated."""
        return any(get_origin(kind) is tuple for kind in (self.kind, *get_args(self.kind)))

    def check(self, value: Any, said: str = "") -> Any:
        """The value as the setting has it; `said` is how the InputError about it calls it."""
        try:
            return accepted(self.kind, value)
        except (ValueError, OverflowError):
            problem = f"{said or self.name} is {shown(value)}"
            must = f"it must be {expected(self.kind, self.show)}"
            raise InputError(f"{problem}: {must}.") from None

    def from_text(self, text: str, said: str = "") -> Any:
        """The value that is written as plain text, or as TOML."""
        values = [text]
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            values.append(tomllib.loads(f"value = {text}")["value"])
        if isinstance(values[-1], list):
            values.reverse()  # a list of names, and not one name with brackets
        for value in values:
            with suppress(ValueError, OverflowError):
                return accepted(self.kind, value)
        return self.check(values[-1], said)


@cache
def checked_arguments(function: Any) -> Mapping[str, Setting]:
    """The arguments whose types state which values are allowed, such as `Positive`."""
    try:
        kinds = get_type_hints(function, include_extras=True)
    except (NameError, AttributeError):  # of types that are imported for type checkers only
        return {}
    return {
        name: Setting(name, kind, None, "", repr)
        for name, kind in kinds.items()
        if _is_checkable(kind)
    }


def _is_checkable(kind: Any) -> bool:
    """Whether a type states values, and nothing that `accepted` does not know."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        others = set(arguments) - {int, float, str, bool, type(None)}
        return bool(others) and all(map(_is_checkable, others))
    ours = origin is Annotated and isinstance(arguments[1], Within | _OfLength)
    return ours or (origin is Literal and all(isinstance(one, str) for one in arguments))


def settings_of(cls: Any) -> Mapping[str, Setting]:
    """Every setting of a dataclass, by its full name, in the order of the fields."""
    return _settings_below(cls, "")


@cache
def _settings_below(cls: Any, prefix: str) -> Mapping[str, Setting]:
    found: dict[str, Setting] = {}
    hints, docs = _type_hints(cls), _field_docstrings(cls)
    for one in fields(cls):
        kind: Any = hints[one.name]
        name = f"{prefix}{one.name}"
        if is_dataclass(kind):
            section: Any = kind
            found |= _settings_below(section, f"{name}.")
        else:
            default = one.default if one.default_factory is MISSING else one.default_factory()
            found[name] = Setting(name, kind, default, docs.get(one.name, ""))
    return found


@cache
def _type_hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls, include_extras=True)


@cache
def _field_docstrings(cls: Any) -> dict[str, str]:
    """The docstring below each field; Python keeps those of classes and functions only."""
    try:
        (body,) = ast.parse(inspect.getsource(cls)).body
    except OSError:  # the source is not installed
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        ast.unparse(field.target): " ".join(str(below.value.value).split())
        for field, below in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def setting(cls: type[Any], name: str) -> Setting:
    """The setting with this full name; an InputError suggests similar ones."""
    known = settings_of(cls)
    if name in known:
        return known[name]
    last = name.rpartition(".")[2]
    similar = [one for one in known if last in (one.rpartition(".")[2], one.partition(".")[0])]
    similar = similar or get_close_matches(name, known, n=1)
    hint = f"{similar[0]} may be meant" if similar else "the documentation lists all"
    raise InputError(f"There is no setting {shown(name)}; {hint}.")


# ---- many settings -------------------------------------------------------------------------------


def with_settings(cls: type[T], values: Mapping[str, Any], said: str = "") -> T:
    """An instance with these values, by full names, and the defaults for all others.

    An InputError about a value that does not fit names it after `said`, such as that of a file.
    """
    sections: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        section, _, last = str(name).rpartition(".")
        checked = setting(cls, str(name)).check(value, f"{said}{name}")
        sections.setdefault(section, {})[last] = checked
    kind: Any = cls
    hints, below = _type_hints(kind), _sections(kind)
    made = {name: hints[name](**sections.get(name, {})) for name in hints if name in below}
    return cls(**sections[""], **made)


def _sections(cls: Any) -> set[str]:
    return {name.partition(".")[0] for name in settings_of(cls) if "." in name}


def values_of(instance: Any, *, all_of_them: bool = False) -> dict[str, Any]:
    """The values of an instance by full names: those that differ from the defaults, or all."""
    found = {}
    for name, one in settings_of(type(instance)).items():
        value = attrgetter(name)(instance)
        if all_of_them or value != one.default:
            found[name] = value
    return found


def check_types(instance: Any) -> None:
    """Refuse values in an instance that the types of its fields do not allow."""
    for name, value in values_of(instance).items():
        settings_of(type(instance))[name].check(value)


# ---- files ---------------------------------------------------------------------------------------


def read_file(path: Path) -> dict[str, Any]:
    """The values in a TOML file; an InputError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(f"There is no file {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a TOML file: {first_line(error)}.") from None


def by_full_name(cls: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the sections of a file, by full names."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name in _sections(cls) and isinstance(value, Mapping):
            found |= {f"{name}.{last}": one for last, one in value.items()}
        else:
            found[name] = value
    return found


def as_toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        pairs = (f"{as_toml(str(name))} = {as_toml(one)}" for name, one in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def file_text(instance: Any, title: str) -> str:
    """A TOML file of all settings with their meanings; defaults are commented out."""
    lines, section = [f"# {title}"], ""
    for name, value in values_of(instance, all_of_them=True).items():
        one = settings_of(type(instance))[name]
        before, _, last = name.rpartition(".")
        if before != section:
            section = before
            lines += ["", f"[{section}]"]
        lines += textwrap.wrap(one.help, 98, initial_indent="# ", subsequent_indent="# ")
        written = f"{last} = {'' if value is None else as_toml(value)}".rstrip()
        lines.append(f"# {written}" if value == one.default else written)
    return "\n".join(lines) + "\n"


def option_words(instance: Any, front: Iterator[str] | tuple[str, ...]) -> list[str]:
    """The words of a command that repeats these settings: options of the front row, or `--set`."""
    words: list[str] = []
    for name, value in values_of(instance).items():
        option, values = "--set", [f"{name}={value if isinstance(value, str) else as_toml(value)}"]
        if name in front:
            option = option_name(name)
            values = list(map(str, value if isinstance(value, tuple) else (value,)))
        words += [word for one in values for word in (option, one)]
    return words


def option_name(name: str) -> str:
    """The option of a setting in the front row of a command."""
    return f"--{name.rpartition('.')[2].replace('_', '-')}"
