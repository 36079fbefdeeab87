"""Configs and records of experiments: any content is read, or refused with one sentence."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import seeds
from fuzz.mutations import VALUES
from fuzz.targets import check_sentence
from ltpll.errors import InputError
from ltpll.runs.run import config_hash
from ltpll.settings import read_file
from ltpll_research.benchmark import Experiment
from ltpll_research.comparing.page import render_page
from ltpll_research.comparing.pictures import draw_problems
from ltpll_research.comparing.systems import compare_systems
from ltpll_research.schema import check_record
from support.refusals import refusal

LIMIT = settings(
    deadline=5000, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
# ---- settings --------------------------------------------------------------------------------

trees = st.recursive(
    plain_values | st.sampled_from(["cifar10", "corr", "none"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@LIMIT
@given(
    entries=st.dictionaries(
        st.sampled_from([*Experiment.__dataclass_fields__, "other"]), trees, max_size=4
    )
)
def test_any_config_is_an_experiment_that_comes_back_from_its_own_config_or_is_refused(entries):
    try:
        experiment = Experiment.from_mapping({"data": "cifar10", **entries})
    except InputError as error:
        check_sentence(error)
        return
    config = json.loads(json.dumps(experiment.config()))
    assert config_hash(config) == config_hash(experiment.config())
    assert Experiment.from_config(config) == replace(experiment, options=config["options"])


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("extras = 5", "extras is 5: it must be text, or a list of such"),
        ("extras = [['mixup']]", "it must be text, or a list of such"),
        ("options = 5", "options is 5: it must be a table of names and values"),
        ("options.lw = 5", "it must be a table of names and values"),
        ("lr = nan", "lr is nan: it must be a number"),
        ("imbalance = inf", "imbalance is inf: it must be a number"),
        ("epochs = 1.5", "epochs is 1.5: it must be a whole number"),
        ("seed = -1", "seed is -1: it must be a whole number between 0 and 4294967295"),
        (f"width = {'9' * 400}", "it must be a whole number"),
        ("1 = 2", "There is no setting '1'"),
    ],
)
def test_a_config_that_is_none_is_refused(tmp_path, content, fragment):
    (tmp_path / "c.toml").write_text(f"data = 'cifar10'\n{content}")
    assert fragment in refusal(lambda: Experiment.from_mapping(read_file(tmp_path / "c.toml")))


@pytest.mark.parametrize(
    "entries",
    [{"lr": "HA"}, {"extras": "HA"}, {"options": "HA"}, {"options": {"lw": {"beta": "HA"}}}],
)
def test_settings_that_unfold_to_gigabytes_are_refused_at_once(entries):
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    unfolding = replaced(
        entries,
        next(
            path
            for path in places(entries)
            if path and not isinstance(entry_at(entries, path), dict)
        ),
        laughs,
    )
    assert "must be" in refusal(lambda: Experiment.from_mapping({"data": "cifar10", **unfolding}))


def entry_at(tree, path):
    return tree if not path else entry_at(tree[path[0]], path[1:])


def test_whole_numbers_written_with_a_point_are_the_same_run():
    with_point, without = (
        Experiment.from_mapping({"data": "cifar10", "epochs": n, "imbalance": 50}) for n in (3.0, 3)
    )
    assert config_hash(with_point.config()) == config_hash(without.config())


# ---- records ---------------------------------------------------------------------------------


def replaced(tree, path, value):
    if not path:
        return value
    if isinstance(tree, list):
        return [
            replaced(one, path[1:], value) if i == path[0] else one for i, one in enumerate(tree)
        ]
    return {
        key: replaced(one, path[1:], value) if key == path[0] else one for key, one in tree.items()
    }


def places(tree, path=()):
    yield path
    for key, one in (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    ):
        yield from places(one, (*path, key))


RECORD = seeds.record()


def test_a_record_with_any_entry_replaced_is_shown_or_refused(monkeypatch):
    pictures = []

    def draw(problems):  # a picture takes half a second, so only some are drawn
        pictures.append(problems)
        return draw_problems(problems) if len(pictures) % 25 == 1 else b""

    monkeypatch.setattr("ltpll_research.comparing.page.draw_problems", draw)
    refused, shown = 0, 0
    for i, path in enumerate(one for one in places(RECORD) if one):
        for value in (VALUES[i % len(VALUES)], VALUES[(7 * i + 3) % len(VALUES)]):
            try:
                record = replaced(RECORD, path, value)
                check_record(record)
                render_page(compare_systems([record]), title="t")
                shown += 1
            except InputError as error:
                check_sentence(error)
                refused += 1
    assert min(refused, shown) > 20


@pytest.mark.parametrize(
    ("path", "value", "fragment"),
    [
        (("config",), [], "$.config"),
        (("config", "seed"), "0", "$.config.seed"),
        (("config", "method"), None, "$.config.method"),
        (("posthoc",), ["nothing"], "Expected `object`, got `null`"),
        (("last", "test", "balanced_accuracy"), math.nan, "$.balanced_accuracy"),
        (("last", "test", "many"), "0.5", "$.many"),
        (("last", "test", "per_class"), [], "$.per_class"),
        (
            ("last", "test", "mean_prediction"),
            [1.0],
            "for different numbers of classes",
        ),
        (("last", "prior"), {}, "$.prior"),
        (("class_counts",), [0, 0, 0], "impossible class_counts"),
        (("classes",), ["a"], "for different numbers of classes"),
        (("seconds",), "long", "$.seconds"),
        (("environment",), [], "$.environment"),
        (("shots",), {"many": 1}, "missing required field `few`"),
        (("curves", "epoch"), [1, "2"], "$.curves.epoch"),
        (("curves", "accuracy", "test"), [0.5], "a curve without a number for each epoch"),
        (("curves",), [1], "$.curves"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(path, value, fragment):
    check_record(RECORD)
    message = refusal(lambda: check_record(replaced(RECORD, path, value)))
    assert fragment in message
    assert RECORD["key"] in message
