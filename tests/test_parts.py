"""Parts are objects with options; one function builds them, and other packages can add some."""

import importlib
import inspect
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from ltpll.errors import InputError, InputWarning, UnknownNameError
from ltpll.extras import EXTRAS, Mixup
from ltpll.interfaces import Method
from ltpll.methods import CORR, METHODS, PRODEN
from ltpll.models import Classifier
from ltpll.parts import build_parts, describe_parts
from ltpll.rebalancers import REBALANCERS, RECORDS, OracleLA
from ltpll.registry import Registry
from support.fork_server import shared_fork_server
from support.refusals import refusal

REGISTRIES = {"methods": METHODS, "rebalancers": REBALANCERS, "extras": EXTRAS}
PARTS = [(package, name) for package, registry in REGISTRIES.items() for name in registry]
ALL_PARTS = pytest.mark.parametrize(("package", "name"), PARTS, ids=[name for _, name in PARTS])

# Every option of every part, with a value that is not its default.
OPTIONS = {
    "corr": {"form": "original", "weight": 0.5, "ramp_epochs": 7},
    "lw": {"form": "cross-entropy", "beta": 2.0},
    "pico": {
        **{
            "weight": 0.4,
            "temperature": 0.1,
            "width": 16,
            "queue": 32,
            "momentum": 0.9,
            "prototype_momentum": 0.8,
        },
        **{"phi": (0.9, 0.7), "first_epoch": 2},
    },
    "alim": {
        **{"missing": 0.1, "form": "scale", "estimate_from": 3, "alpha": 2, "weight": 0.4},
        **{"temperature": 0.1, "width": 16, "queue": 32, "momentum": 0.9},
        **{"prototype_momentum": 0.8, "phi": (0.9, 0.7), "first_epoch": 2},
    },
    "dirk": {
        **{"contrast": 0.5, "momentum": 0.9, "temperature": 0.1, "sharpness": 0.3},
        **{"width": 16, "queue": 32, "first_epoch": 2},
    },
    "papi": {
        **{"weight": 0.4, "temperature": 0.1, "width": 16, "alpha": 4, "ramp_epochs": 3},
        **{"phi": (0.9, 0.7), "prototype_momentum": (0.8, 0.6)},
    },
    "pop": {
        **{"strong_views": 1, "threshold": 0.01, "growth": 0.1, "window": 2, "first_epoch": 3},
    },
    "htc": {"tau": 1.0, "move": 0.5, "strength": 0.7, "quota": (0.1, 0.5), "ramp_epochs": 3},
    "deacon": {
        **{"tau": 1.0, "move": 0.5, "strength": 0.7, "quota": (0.1, 0.5), "ramp_epochs": 3},
        **{"consistency": 1.0, "contrast_from": (2, 3), "width": 16},
    },
    "solar": {
        **{
            "la": True,
            "estimation_epochs": 2,
            "ramp_epochs": 3,
            "quota": (0.1, 0.5),
            "strength": 0.7,
            "confident": 0.9,
        },
        **{"sharpness": 2.0, "queue": 64, "rates": (0.2, 0.02)},
    },
    "records": {"momentum": 0.99},
    "anchor": {
        "prior": "average",
        "bounds": "point",
        "width": 1.0,
        "warmup": 0.5,
        "lift": "none",
        "momentum": 0.5,
    },
    "auto": {"prior": "average", "warmup": 0.5},
    "set-evidence": {"power": 0.3, "until": 0.2, "warmup": 0.3},
    "balanced-head": {"weight": 0.5},
    **{
        name: {"class_frequencies": (5, 3, 2)}
        for name in ("oracle-la", "oracle-la-posthoc", "temp-oracle-la")
    },
    "bcl": {"weight": 0.1, "temperature": 0.2, "width": 16, "first_epoch": 2},
    "ldd": {"weight": 0.1, "epsilon": 0.01},
    "mixup": {"alpha": 2, "weight": 0.5, "first_epoch": 2},
    "paco": {
        "weight": 0.5,
        "alpha": 0.1,
        "temperature": 0.1,
        "width": 16,
        "queue": 32,
        "momentum": 0.9,
        "first_epoch": 2,
    },
    "sfn": {"weight": 0.1},
}

QUEUE = ["vectors", "labels", "next", "limit"]
PROJECTOR = [f"projector.{layer}.{what}" for layer in (0, 2) for what in ("weight", "bias")]
MEMORY = [
    *(
        f"memory.projector{kind}.{layer}.{what}"
        for kind in ("", "_follower.network")
        for layer in (0, 2)
        for what in ("weight", "bias")
    ),
    *(f"memory.model_follower.network.head.{what}" for what in ("weight", "bias")),
    *(f"memory.queue.{what}" for what in QUEUE),
]
# What checkpoints and saved classifiers contain; these names cannot change without losing old
# files.
ANCHOR = ["mean_feature", "bias", "lower", "upper", "strength", "mean_target"]
WHAT = ("weight", "bias")
HTC = ["share", "strength", "fusing", "relies", "prior"]
HTC += [f"{layer}.{what}" for layer in ("tail", "weighing") for what in WHAT]
STATE = {
    "corr": ["ramp"],
    "pico": [*MEMORY, "phi", "by_label", "prototypes"],
    "alim": [*MEMORY, "phi", "by_label", "prototypes", "outside"],
    "dirk": [*MEMORY, "by_label", *(f"described.{what}" for what in QUEUE)],
    "papi": [*PROJECTOR, "phi", "moving", "ramp", "prototypes"],
    "pop": ["current_threshold"],
    "htc": HTC,
    "deacon": [
        *(*HTC, "means", "counts"),
        *(f"projectors.{k}.{layer}.{what}" for k in (0, 1) for layer in (0, 2) for what in WHAT),
        *(
            f"{name}.{k}.{what}"
            for name in ("similar", "predicting")
            for k in (0, 1)
            for what in WHAT
        ),
    ],
    "solar": [
        "rate",
        "share",
        "strength",
        "relies",
        "prior",
        *(f"queue.{what}" for what in QUEUE),
    ],
    "records": ["mean_feature"],
    "epoch-records": ["prior", "total", "count"],
    "mean-target": ["mean_target"],
    "set-evidence": ANCHOR,
    "anchor": ANCHOR,
    "auto": ANCHOR,
    "balanced-head": ["log_mean_target", "head.weight", "head.bias"],
    "oracle-la": ["log_frequencies"],
    "oracle-la-posthoc": ["log_frequencies"],
    "temp-oracle-la": ["log_frequencies", "strength"],
    "bcl": ["centres", *PROJECTOR],
    "paco": MEMORY,
}


def made(package, name):
    return REGISTRIES[package][name](**OPTIONS.get(name, {}))


def small_model():
    return Classifier(nn.Identity(), nn.Linear(5, 3))


@ALL_PARTS
def test_every_part_is_imported_from_its_package(package, name):
    module, cls = importlib.import_module(f"ltpll.{package}"), REGISTRIES[package][name]
    assert getattr(module, cls.__name__) is cls


@ALL_PARTS
def test_options_are_what_the_constructor_was_given_and_a_clone_has_the_same(package, name):
    cls, options = REGISTRIES[package][name], OPTIONS.get(name, {})
    assert set(options) == {
        key
        for key, p in inspect.signature(cls).parameters.items()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    }
    part = cls(**options)
    assert part.get_params() == options
    assert all(part.get_params()[key] is value for key, value in options.items())
    part.attach(small_model())
    for copy in (clone(part), part.fresh()):
        assert type(copy) is cls
        assert copy.get_params() == options
        assert set(copy.state_dict()) == set(made(package, name).state_dict())  # as before attach


@ALL_PARTS
def test_what_a_checkpoint_contains_keeps_its_names(package, name):
    part = made(package, name)
    part.attach(small_model())
    assert set(part.state_dict()) == set(STATE.get(name, []))


@ALL_PARTS
def test_attaching_again_starts_from_the_beginning(package, name):
    part = made(package, name)
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            part.attach(small_model())
        first = {key: value.clone() for key, value in part.state_dict().items()}
        with torch.no_grad():
            for value in part.state_dict().values():
                value.fill_(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = made(package, name)
        other.attach(small_model())
    for key, value in other.state_dict().items():
        if key not in (
            "phi",
            "by_label",
            "ramp",
            "rate",
            "share",
            "strength",
            "fusing",
            "relies",
            "log_frequencies",
            "moving",
            "outside",
            "current_threshold",
        ):  # of the constructor
            assert torch.equal(first[key], value), key


def test_changed_options_give_the_object_that_the_constructor_would_give():
    part = CORR()
    assert part.set_params(form="original", weight=2.0) is part
    other = CORR(form="original", weight=2.0)
    assert (
        part.get_params()
        == other.get_params()
        == {"form": "original", "weight": 2.0, "ramp_epochs": 100}
    )
    assert part.views == other.views == ("weak", "strong", "strong")
    assert torch.equal(part.ramp, other.ramp)


def test_a_refused_option_changes_nothing():
    part = RECORDS(momentum=0.5)
    part.attach(small_model())
    assert "momentum" in refusal(lambda: part.set_params(momentum=2), InputError)
    assert (
        refusal(lambda: part.set_params(rate=2), InputError)
        == "RECORDS has no option 'rate'; its options: momentum."
    )
    assert part.momentum == 0.5
    assert part.mean_feature.shape == (5,)


def test_a_part_shows_its_options():
    assert repr(RECORDS(momentum=0.99)) == "RECORDS(momentum=0.99)"
    assert repr(PRODEN()) == "PRODEN()"


# ---- building ------------------------------------------------------------------------------------


def test_parts_are_built_from_names_options_and_objects():
    given = RECORDS(momentum=0.99)
    method, rebalancer, extras = build_parts(
        "corr", given, ["mixup", Mixup(alpha=3)], {"mixup": {"alpha": 2}, "corr": {"weight": 0.5}}
    )
    assert (type(method), type(rebalancer), [type(extra) for extra in extras]) == (
        CORR,
        RECORDS,
        [Mixup, Mixup],
    )
    assert (method.weight, rebalancer.momentum, [extra.alpha for extra in extras]) == (
        0.5,
        0.99,
        [2, 3],
    )
    assert rebalancer is not given


def test_what_an_oracle_knows_reaches_parts_given_by_name():
    counts = np.asarray([5, 3, 2])
    assert (
        build_parts("proden", "oracle-la", class_frequencies=counts).rebalancer.class_frequencies
        is counts
    )
    assert build_parts("proden", "records", class_frequencies=counts).rebalancer.get_params() == {
        "momentum": 0.9
    }
    own = {"oracle-la": {"class_frequencies": [1, 1, 1]}}
    assert build_parts(
        "proden", "oracle-la", options=own, class_frequencies=counts
    ).rebalancer.class_frequencies == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("prodden",), "Did you mean 'proden'"),
        (("proden", "records", (), {"mixup": {}}), "There are options for 'mixup'"),
        (
            (PRODEN(), RECORDS(), (), {"records": {"momentum": 0.5}}),
            "There are options for 'records'",
        ),
        (
            ("proden", "records", (), {"records": {"speed": 1}}),
            "no option 'speed'; its options: momentum.",
        ),
        ((PRODEN,), "is the class PRODEN: give an object"),
        ((RECORDS(),), "There is no method 'RECORDS(momentum=0.9)'"),
        (("proden", OracleLA([1, 2]), [["mixup"]]), "There is no extra"),
        ((3,), "There is no method '3'"),
    ],
)
def test_what_is_not_a_part_is_refused(arguments, fragment):
    kind = (
        UnknownNameError
        if "no method" in fragment or "no extra" in fragment or "mean" in fragment
        else InputError
    )
    assert fragment in refusal(lambda: build_parts(*arguments), kind)


# ---- plug-ins ------------------------------------------------------------------------------------

PLUGIN = '''
"""Uniform (Nobody et al., "Nothing", 2020): targets never change."""
from pathlib import Path

from torch.nn.functional import cross_entropy

from ltpll import METHODS, Method, Rebalancer
from ltpll.methods import PRODEN

Path(__file__).with_suffix(".imported").touch()
assert "corr" in METHODS  # a plug-in may read the registry


class Uniform(Method):
    name = "uniform"

    def loss(self, outputs, targets, candidates):
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs, targets, candidates):
        return targets


class Taken(PRODEN):
    name = "corr"


class Elsewhere(Rebalancer):
    name = "elsewhere"
'''


def install_plugin(folder, **entries):
    """A distribution as pip installs it: a module beside its metadata."""
    (folder / "ltpll_plugin.py").write_text(PLUGIN)
    info = folder / "ltpll_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ltpll-plugin\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[ltpll.methods]\n{lines}\n")


@pytest.fixture
def plugin_folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("ltpll_plugin", None)


def methods_with_plugins():
    return Registry("method", Method, "ltpll.methods").register_package(
        "ltpll.methods", list(importlib.import_module("ltpll.methods").__path__)
    )


def test_a_plug_in_is_loaded_when_the_registry_is_first_read(plugin_folder):
    install_plugin(plugin_folder, uniform="ltpll_plugin:Uniform")
    methods = methods_with_plugins()
    assert not (plugin_folder / "ltpll_plugin.imported").exists()
    assert set(methods) == {*METHODS, "uniform"}
    assert methods["uniform"].__module__ == "ltpll_plugin"
    assert methods.create("uniform").get_params() == {}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "ltpll_plugin:Missing",
            "AttributeError: module 'ltpll_plugin' has no attribute 'Missing'",
        ),
        ("ltpll_nowhere:Missing", "ModuleNotFoundError: No module named 'ltpll_nowhere'"),
        (
            "ltpll_plugin:Elsewhere",
            "<class 'ltpll_plugin.Elsewhere'> cannot be registered: a method is a class that "
            "inherits from Method and sets its own `name`",
        ),
        ("ltpll_plugin:Taken", "The method name 'corr' is taken by ltpll.methods.corr.CORR"),
    ],
)
def test_a_broken_plug_in_is_reported_once_in_a_sentence_and_left_out(plugin_folder, value, reason):
    install_plugin(plugin_folder, broken=value, uniform="ltpll_plugin:Uniform")
    methods = methods_with_plugins()
    with pytest.warns(InputWarning) as caught:
        assert methods["corr"] is CORR
    assert [str(warning.message) for warning in caught] == [
        f"The method plug-in 'broken' of ltpll-plugin was not loaded ({reason})."
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(methods) == {*METHODS, "uniform"}


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_line_lists_plug_ins_and_does_not_import_them_for_help(tmp_path):
    install_plugin(tmp_path, broken="ltpll_plugin:Taken", uniform="ltpll_plugin:Uniform")
    assert run(tmp_path, "-m", "ltpll", "--help").returncode == 0
    assert not (tmp_path / "ltpll_plugin.imported").exists()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "from support.interrupted_runs import command; command('list')"
    log, errors = tmp_path / "log", tmp_path / "errors"
    status, printed = shared_fork_server().call(
        "interrupted_runs.execute", code, log=log, errors=errors, environment={"COLUMNS": "100"}
    )
    assert status == 0, errors.read_text()
    assert [
        line.split()[:2] for line in printed.splitlines() if "targets never change" in line
    ] == [["method", "uniform"]]
    assert "'corr' is taken by ltpll.methods.corr.CORR" in " ".join(errors.read_text().split())
    assert "Traceback" not in errors.read_text()


def test_a_plug_in_is_fitted_saved_and_loaded_by_name_or_as_an_object(tmp_path):
    install_plugin(tmp_path, uniform="ltpll_plugin:Uniform")
    code = """
        import numpy as np
        from ltpll import METHODS, PartialLabelClassifier
        x, y = np.random.default_rng(0).normal(size=(30, 2)), [["a", "b"], ["b"], ["a"]] * 10
        fitted = [
            PartialLabelClassifier(method, epochs=2, device="cpu").fit(x, y)
            for method in ("uniform", METHODS["uniform"]())
        ]
        for each in fitted:
            each.save("saved")
            loaded = PartialLabelClassifier.load("saved", "cpu")
            assert np.array_equal(loaded.predict_proba(x), fitted[0].predict_proba(x))
    """
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{textwrap.dedent(code)}"
    status, printed = shared_fork_server().call(
        "interrupted_runs.execute", code, log=tmp_path / "log", cwd=tmp_path
    )
    assert status == 0, printed


def test_a_part_without_a_module_docstring_is_described_too():
    nameless = type("Nameless", (PRODEN,), {"name": "nameless", "__module__": "sys_without_doc"})
    sys.modules["sys_without_doc"] = type(sys)("sys_without_doc")
    METHODS.register(nameless)
    try:
        info = next(info for info in describe_parts() if info.name == "nameless")
        assert (info.source, info.idea) == ("", "")
    finally:
        del METHODS._classes["nameless"], sys.modules["sys_without_doc"]
