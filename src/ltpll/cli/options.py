"""Options: those that several commands share, and those that follow from settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from ltpll.cleaning.settings import FRONT, TrainJob
from ltpll.errors import InputError, shown
from ltpll.settings import (
    Setting,
    by_full_name,
    option_name,
    read_file,
    setting,
    settings_of,
    with_settings,
)

# Options are grouped into panels of `--help`.
data_option = partial(typer.Option, rich_help_panel="Data")
output_option = partial(typer.Option, rich_help_panel="Output")

OwnRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder written by `ltpll train TABLE --out RUN`.")
]
TableOut = Annotated[Path, output_option(help="Table to write: .csv, .tsv or .parquet.")]
Fresh = Annotated[
    bool,
    output_option("--fresh", help="Discard earlier results of this command and train again."),
]
FalseDiscoveries = Annotated[
    float | None,
    output_option(
        help="Expected share of flagged sets that hold their true label after all.",
        min=0,
        max=1,
        show_default="0.3",
    ),
]
WrittenSeparator = Annotated[
    str | None,
    output_option(
        help="Separates the candidates in the written table.",
        show_default="that of the trained table",
    ),
]
OnError = Annotated[
    str,
    data_option(help="On a picture that cannot be read: stop, or skip it.", metavar="stop|skip"),
]
Device = Annotated[str, data_option(help="cpu, cuda or auto (CUDA if available).")]
Config = Annotated[
    Path | None,
    data_option(
        help="File with settings, such as ltpll.toml; options override it.", metavar="FILE"
    ),
]
Set = Annotated[
    list[str] | None,
    data_option(
        "--set",
        help="Any setting of the file, such as training.lr=0.1. May be repeated.",
        metavar="NAME=VALUE",
    ),
]


class SettingsCommand(TyperCommand):
    """A command with options for some settings; it says how the others are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an option that is a setting without one is explained."""
        known = {option for parameter in self.params for option in parameter.opts}
        for word in (arg.partition("=")[0] for arg in args):
            if not word.startswith("--") or word in known:
                continue
            if full := _full_name(word.removeprefix("--").replace("-", "_")):
                problem = f"{word} is no option, but a setting of the file"
                raise InputError(f"{problem}: give it with --set {full}=VALUE.")
        return super().parse_args(ctx, args)


def takes_settings(*front: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes settings of `TrainJob`, as the argument `job`.

    Those in `front` have options of their own; all others are given in a file, by the option
    `--config`, or by `--set`.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        options = [_option_of(settings_of(TrainJob)[name]) for name in front]

        @wraps(function)
        def command(**values: Any) -> None:
            source, given = values["context"].get_parameter_source, {}
            for option, name in zip(options, front, strict=True):
                value = values.pop(option.name)
                if source(option.name).name == "COMMANDLINE":
                    given[name] = value
            function(job=_read_job(values.pop("config"), values.pop("set_"), given), **values)

        own = dict(inspect.signature(function, eval_str=True).parameters)
        del own["job"]
        files = [_keyword("config", Config, None), _keyword("set_", Set, None)]
        parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own.values(), *options)]
        parameters += files
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


def words_of_option(name: str, value: str) -> list[str]:
    """The words that give a setting a value, by the last part of its name."""
    full = _full_name(name)
    if full is None or full in FRONT:
        return [option_name(name), value]
    return ["--set", f"{full}={value}"]


def _full_name(last: str) -> str | None:
    return next((name for name in settings_of(TrainJob) if name.endswith(f".{last}")), None)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _option_of(one: Setting) -> inspect.Parameter:
    """The option of a setting, as text, which the setting itself reads."""
    option, several = option_name(one.name), get_origin(one.kind) is tuple
    made = typer.Option(
        option,
        help=f"{one.help} May be repeated." if several else one.help,
        rich_help_panel=one.name.partition(".")[0].capitalize(),
        metavar="|".join(get_args(one.kind)) if get_origin(one.kind) is Literal else "VALUE",
    )
    default = None if several or one.default is None else str(one.default)
    kind = list[str] if several else str
    return _keyword(option[2:].replace("-", "_"), Annotated[kind | None, made], default)


def _read_job(config: Path | None, assigned: list[str] | None, given: dict[str, Any]) -> TrainJob:
    """The settings of a file, then those of `--set`, then those of options."""
    values: dict[str, Any] = {}
    if config is not None:
        values = by_full_name(TrainJob, read_file(config))
        with_settings(TrainJob, values, said=f"{config}: ")
    for text in assigned or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, such as training.lr=0.1, not {shown(text)}.")
        values[name.strip()] = setting(TrainJob, name.strip()).from_text(value)
    for name, value in given.items():
        one = setting(TrainJob, name)
        read = one.check if isinstance(value, list) else one.from_text
        values[name] = read(value, option_name(name))
    return with_settings(TrainJob, values)
