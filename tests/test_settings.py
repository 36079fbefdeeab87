"""Settings are declared once; files, options, checks and the command that repeats a run follow from
the fields.
"""

import tomllib
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltpll import PartialLabelClassifier
from ltpll.cleaning.settings import FRONT, DataFiles, Execution, TrainingSettings, TrainJob
from ltpll.registry import named_parameters
from ltpll.settings import (
    Count,
    Share,
    Within,
    as_toml,
    by_full_name,
    check_types,
    file_text,
    option_words,
    read_file,
    setting,
    settings_of,
    values_of,
    with_settings,
)
from ltpll.tables.reading import Reading
from support.refusals import refusal


@dataclass(frozen=True)
class Oven:
    degrees: Annotated[float, Within(0, 300, open_below=True)] | Literal["auto"] = "auto"
    """How hot it is."""
    shelves: Count = 2
    """How many
    shelves it has."""


@dataclass(frozen=True)
class Kitchen:
    """A kitchen."""

    name: str | None = None
    """What it is called."""
    spices: tuple[str, ...] = ()
    full: Share = 0.5
    cold: bool = False
    oven: Oven = field(default_factory=Oven)


def test_every_setting_of_train_says_what_it_is():
    for one in settings_of(TrainJob).values():
        assert one.help.endswith("."), one.name
        assert one.help[0].isupper() or one.name == "run.device", one.name


def test_defaults_are_those_of_the_classifier():
    of_classifier = {
        name: one.default for name, one in named_parameters(PartialLabelClassifier).items()
    }
    own = {"learner", "prior", "backbone", "finetune", "folds"}
    for name, one in settings_of(TrainingSettings).items():
        expected = of_classifier.get({"seed": "random_state"}.get(name, name))
        if name not in own:
            assert one.default == ({} if name == "options" else expected), name
    for name in ("device", "threads", "on_nan"):
        assert settings_of(Execution)[name].default == of_classifier[name]


def test_names_of_sections_and_docstrings_come_from_the_fields():
    known = settings_of(Kitchen)
    assert list(known) == ["name", "spices", "full", "cold", "oven.degrees", "oven.shelves"]
    assert known["oven.shelves"].help == "How many shelves it has."
    assert known["cold"].help == ""


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", "3", "3"),
        ("oven.degrees", "120", 120.0),
        ("oven.degrees", "auto", "auto"),
        ("oven.shelves", "3.0", 3),
        ("spices", "salt", ("salt",)),
        ("spices", '["salt", "a,b"]', ("salt", "a,b")),
        ("cold", "true", True),
        ("full", "0", 0.0),
    ],
)
def test_text_is_read_as_the_type_of_the_setting(name, text, value):
    read = setting(Kitchen, name).from_text(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("oven.degrees", 0, "must be a number above 0 and at most 300 or auto"),
        ("oven.degrees", "hot", "must be a number above 0"),
        ("oven.degrees", True, "must be a number above 0"),
        ("oven.degrees", float("nan"), "must be a number above 0"),
        ("oven.shelves", 1.5, "must be a whole number of at least 1"),
        ("oven.shelves", 2**70, "must be a whole number"),
        ("full", 1, "must be a number of at least 0 and below 1"),
        ("cold", 1, "must be true or false"),
        ("spices", [1], "must be text, or a list of such"),
        ("spices", {"a": 1}, "must be text, or a list of such"),
        ("name", ["a"], "must be text"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_it_must_be(name, value, words):
    message = refusal(lambda: with_settings(Kitchen, {name: value}, said="kitchen.toml: "))
    assert message.startswith(f"kitchen.toml: {name} is ")
    assert words in message
    changed = {name.rpartition(".")[2]: value}
    made = Kitchen(oven=Oven(**changed)) if "." in name else Kitchen(**changed)
    assert words in refusal(lambda: check_types(made))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("oven.shelfs", "oven.shelves may be meant"),
        ("degrees", "oven.degrees may be meant"),
        ("oven", "oven.degrees may be meant"),
        ("zzz", "the documentation lists all"),
    ],
)
def test_an_unknown_name_is_refused_with_a_similar_one(name, hint):
    assert hint in refusal(lambda: with_settings(Kitchen, {name: 1}))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    name=TEXTS,
    spices=st.lists(TEXTS, max_size=3),
    shelves=st.integers(1, 9),
    cold=st.booleans(),
)
def test_a_written_file_holds_the_settings_and_comments_out_defaults(name, spices, shelves, cold):
    made = Kitchen(name, tuple(spices), cold=cold, oven=Oven(shelves=shelves))
    text = file_text(Kitchen(oven=made.oven), "A kitchen")
    assert by_full_name(Kitchen, tomllib.loads(text)) == values_of(Kitchen(oven=made.oven))
    values = {
        key: tomllib.loads(f"x = {as_toml(value)}")["x"] for key, value in values_of(made).items()
    }
    assert with_settings(Kitchen, values) == made


def test_the_file_of_all_defaults_names_every_setting_of_train(tmp_path):
    text = file_text(TrainJob(), "Settings")
    for name in settings_of(TrainJob):
        assert f"\n# {name.rpartition('.')[2]} =" in text
    (tmp_path / "ltpll.toml").write_text(text)
    values = by_full_name(TrainJob, read_file(tmp_path / "ltpll.toml"))
    assert with_settings(TrainJob, values) == TrainJob()
    assert max(map(len, text.splitlines())) <= 100


def test_the_words_of_a_job_repeat_it():
    job = TrainJob(
        data=DataFiles(images="a folder", reviewed=("a.csv", "b.csv"), side=64),
        table=Reading(separator=";", class_columns=("is_*",), features=("u", "v"), group="site"),
        training=TrainingSettings(options={"lw": {"beta": 2}}, lr=0.1, epochs=3, extras=("mixup",)),
    )
    words = option_words(job, FRONT)
    values = {}
    by_option = {f"--{name.rpartition('.')[2].replace('_', '-')}": name for name in FRONT}
    for option, value in zip(words[::2], words[1::2], strict=True):
        name, text = value.split("=", 1) if option == "--set" else (by_option[option], value)
        one = setting(TrainJob, name).from_text(text)
        values[name] = (*values.get(name, ()), *one) if isinstance(one, tuple) else one
    assert with_settings(TrainJob, values) == job


def test_the_job_of_a_record_has_what_differs_from_the_defaults_only():
    job = TrainJob(
        data=DataFiles(table="t.csv", images="photos", side=64, on_error="skip"),
        table=Reading(separator=";", group="site"),
        training=TrainingSettings(method="proden", weight_decay=0.1),
    )
    record = {
        "config": {
            "experiment": "own",
            "method": "proden",
            "weight_decay": 0.1,
        },
        "source": {"table": "t.csv", "images": "photos", "side": 64, "preprocessing": {}},
        "skipped": [["a.jpg", "is damaged"]],
    }
    reading = {
        "separator": ";",
        "label": "label",
        "excluded": None,
        "group": "site",
        "classes": ["a"],
    }
    record["source"]["reading"] = reading
    assert TrainJob.of_record(record) == job
    assert "--set" not in replace(job, training=TrainingSettings(), data=DataFiles("t.csv")).words()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"epochs 3", "is not a TOML file: Expected '='"),
        (b"\xff", "is not a TOML file"),
        (b"x = " + b"[" * 5000, "is not a TOML file"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused_in_one_sentence(tmp_path, content, words):
    (tmp_path / "c.toml").write_bytes(content)
    assert words in refusal(lambda: read_file(tmp_path / "c.toml"))
