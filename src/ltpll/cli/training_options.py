"""The options of `ltpll train` that a finished run was trained with, so that another command can print how to train again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ltpll.runs.run import Record

READING_OPTIONS = {
    "features": "feature-column",
    "class_columns": "class-column",
    "probability_columns": "probability-column",
    "annotators": "from-annotators",
}
ONLY_IN_CONFIG = ("options", "weight_decay")
OTHERWISE = (*ONLY_IN_CONFIG, "extras", "prior", "prune")  # --prune does not go with --reviewed


def training_options(record: Record) -> list[str]:
    """The options that differ from the defaults, as words of a command; files that the record does not name are called FILE."""
    config, source = record["config"], record["source"]
    words = [*_words("images", source.get("images")), *_words("features", source.get("features"))]
    if (
        source.get("images") is not None
        and source.get("preprocessing") is not None
        and config.get("backbone") is None
    ):
        words += _words("side", source.get("side"))
    if record.get("skipped"):
        words += ["--on-error", "skip"]
    words += _reading_options(source)
    words += _setting_options(config)
    return words


def _reading_options(source: Record) -> Iterator[str]:
    from ltpll.convert.json_formats import OPTIONS
    from ltpll.convert.json_stream import JSON_SUFFIXES
    from ltpll.tables.reading import DEFAULT_COLUMNS, Reading

    stored, is_json = (
        source.get("reading", {}),
        Path(source["table"]).suffix.lower() in JSON_SUFFIXES,
    )
    for one in fields(Reading):
        value, usual = stored.get(one.name, one.default), DEFAULT_COLUMNS.get(one.name, one.default)
        means_something = not is_json or any(one.name in options for options in OPTIONS.values())
        if value not in (one.default, usual) and one.name != "classes" and means_something:
            yield from _words(READING_OPTIONS.get(one.name, one.name), value)


def _setting_options(config: Record) -> Iterator[str]:
    from ltpll.cleaning.pipeline import TrainingSettings

    defaults = TrainingSettings()
    for name in (one.name for one in fields(TrainingSettings) if one.name not in OTHERWISE):
        if config.get(name, getattr(defaults, name)) != getattr(defaults, name):
            yield from _words(name, config[name])
    yield from _words("extra", list(config.get("extras") or ()))
    prior = config.get("prior", defaults.prior)
    if prior != defaults.prior:
        yield from _words("prior", prior if isinstance(prior, str) else "FILE")
    if any(
        config.get(name, getattr(defaults, name)) != getattr(defaults, name)
        for name in ONLY_IN_CONFIG
    ):
        yield from _words("config", "FILE")


def _words(name: str, value: Any) -> list[str]:
    """An option and its value; a list is given by repeating the option, and None by leaving it out."""
    values = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    return [word for one in values for word in (f"--{name.replace('_', '-')}", str(one))]
