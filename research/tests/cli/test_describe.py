"""The command `data describe`: the sets of an experiment are those that its training draws."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ltpll.analysis.describe import ambiguity_degree, describe
from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.runs.run import Run
from ltpll_research.benchmark import Experiment, draw_problem, experiment_run
from ltpll_research.cli import app
from ltpll_research.image_sets.prepared import write_image_set
from support.commands import research
from support.pictures import coloured_images

DRAWN = {"imbalance": 4.0, "ambiguity": 0.3, "seed": 5}


@pytest.fixture(scope="module")
def images():
    return coloured_images(n_classes=6, per_class=40, superclass=np.asarray([0, 0, 1, 1, 2, 2]))


@pytest.fixture(scope="module")
def root(tmp_path_factory, images):
    """A data root with an image set that draws sets, and one that brings them."""
    folder = tmp_path_factory.mktemp("data")
    write_image_set(images, folder)
    own = Candidates.from_sets([{int(c), (int(c) + 1) % 6} for c in images.y_train], n_classes=6)
    write_image_set(
        coloured_images(n_classes=6, per_class=40, name="voc2007", candidates=own), folder
    )
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, images):
    """The folder of a run that is finished, as far as describing it goes."""
    experiment = Experiment.from_mapping({"data": "cifar10", **DRAWN})
    made = experiment_run(tmp_path_factory.mktemp("runs"), experiment)
    made.start()
    counts = np.bincount(draw_problem(experiment, images).y).tolist()
    judged = {
        "balanced_accuracy": 0.5,
        "per_class": [0.5] * 6,
        "many": None,
        "medium": None,
        "few": None,
    }
    last = {"test": judged, "prior_distance": 0.25}
    made.finish({"class_counts": counts, "last": last, "best": {"test": {"test": judged}}})
    return made.folder


def call(*arguments):
    return CliRunner().invoke(app, ["data", "describe", *(str(argument) for argument in arguments)])


def as_json(*arguments):
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def plain(description):
    """A description as JSON has it."""
    return json.loads(json.dumps(description.record()))


def without_source(record):
    return {key: value for key, value in record.items() if key != "source"}


@pytest.mark.parametrize("superclass", [False, True])
def test_an_image_sets_problem_is_the_one_that_training_draws(root, images, superclass):
    options = [
        "--imbalance",
        "4",
        "--ambiguity",
        "0.1",
        "--seed",
        "5",
        "--superclass" if superclass else "--uniform",
    ]
    found = as_json("cifar10", *options, "--data-root", root)
    experiment = Experiment.from_mapping(
        {"data": "cifar10", **DRAWN, "ambiguity": 0.1, "superclass": superclass}
    )
    problem = draw_problem(experiment, images)
    named = Candidates(problem.candidates.offsets, problem.candidates.labels, 6, images.classes)
    assert without_source(found) == plain(describe(named, problem.y.tolist()))
    assert found["source"].startswith("cifar10 at imbalance 4, ambiguity 0.1")
    assert found["classes"][0] == "class 0"
    assert found["ambiguity_degree"] == ambiguity_degree(problem.candidates, problem.y.tolist())


def test_the_defaults_are_those_of_train(root):
    found = call("cifar10", "--data-root", root)
    assert isinstance(found.exception, InputError)  # no long tail of 100 in classes of 40
    assert "imbalance 100" in str(found.exception)


def test_an_image_set_with_sets_of_its_own_is_described_with_them(root):
    found = as_json("voc2007", "--data-root", root)
    assert found["size_counts"] == {"2": 240}
    assert found["ambiguity_degree"] == 1.0
    assert "its own sets" in found["source"]


def test_a_run_is_described_by_its_problem_and_so_is_its_result_file(root, run):
    options = [part for name, value in DRAWN.items() for part in (f"--{name}", str(value))]
    drawn = as_json("cifar10", *options, "--data-root", root)
    for source in (run, run / "result.json"):
        found = as_json(source, "--data-root", root)
        assert without_source(found) == without_source(drawn)
        assert found["source"] == f"{source}: {drawn['source']}"


def test_the_bound_of_a_run_uses_the_same_problem(root, run, images):
    problem = draw_problem(Experiment.from_mapping({"data": "cifar10", **DRAWN}), images)
    result = CliRunner().invoke(
        app, ["bound", "--natarajan", "1", "--from", str(run), "--data-root", str(root)]
    )
    assert result.exit_code == 0, result.output
    assert (
        f"ambiguity degree {ambiguity_degree(problem.candidates, problem.y.tolist()):.4g}"
        in result.output
    )
    assert "0.25" in result.output


def test_true_labels_bring_the_true_imbalance_and_the_errors(root):
    result = research(
        "data",
        "describe",
        "cifar10",
        "--imbalance",
        "4",
        "--ambiguity",
        "0.3",
        "--data-root",
        root,
        COLUMNS="80",
    )
    assert result.returncode == 0, result.stderr
    for text in (
        "true labels are known",
        "L1 error",
        "The ambiguity degree",
        "(true labels: 4.0)",
        "× true share",
    ):
        assert text in result.stdout, result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["cifar11"], "cifar11 is not an image set (cifar10, cifar100, voc2007) or a run folder."),
        (["ok.csv", "--ambiguity", "0.3"], "--ambiguity is for image sets"),
        (["."], "not a run folder"),
    ],
)
def test_what_cannot_be_described_is_refused_in_one_sentence(arguments, fragment):
    result = call(*arguments)
    assert isinstance(result.exception, InputError)
    assert fragment in str(result.exception)


STUDY = {"study": "toy", "method": "proden", "rebalancer": "none", "seed": 0}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (STUDY, "a run of a study"),
        ({"data": {"name": "mine"}, "code": "x"}, "a run of another kind"),
    ],
)
def test_a_run_whose_sets_cannot_be_drawn_again_is_refused_and_called_what_it_is(
    tmp_path, config, kind
):
    made = Run(tmp_path, config)
    made.start()
    judged = {
        "balanced_accuracy": 0.5,
        "per_class": [0.5] * 6,
        "many": None,
        "medium": None,
        "few": None,
    }
    made.finish({"last": {"test": judged}, "best": {"test": {"test": judged}}})
    result = call(made.folder)
    assert isinstance(result.exception, InputError)
    assert f"This is {kind}, not a benchmark run" in str(result.exception)
