import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.runs.run import Run
from ltpll_research.authors_draw import authors_draw
from ltpll_research.benchmark import (
    RECIPES,
    Experiment,
    build_trainer,
    draw_problem,
    experiment_run,
    train,
    with_recipe,
)
from ltpll_research.image_sets.prepared import ImageSet, write_image_set
from ltpll_research.recording import TensorBoardEvents
from support.commands import research
from support.pictures import coloured_images

SMALL = {
    "data": "cifar10",
    "imbalance": 4,
    "ambiguity": 0.2,
    "width": 2,
    "epochs": 3,
    "batch_size": 16,
    "lr": 0.05,
}


def from_recipe(recipe, **settings):
    return Experiment.from_mapping(with_recipe(recipe, settings))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_image_set(coloured_images(), folder)
    return folder


def test_the_defaults_are_the_papers_protocol():
    made = Experiment("cifar100")
    assert (made.epochs, made.batch_size, made.lr, made.weight_decay) == (800, 256, 0.01, 1e-3)
    assert (made.model, made.width, made.views, made.method, made.rebalancer) == (
        "resnet18",
        64,
        "paper",
        "corr",
        "records",
    )


def test_an_experiment_is_restored_from_its_config():
    made = Experiment.from_mapping(
        {**SMALL, "extras": ["mixup"], "options": {"lw": {"beta": 2}}, "method": "lw"}
    )
    config = made.config()
    assert config.pop("experiment") == "images"
    assert Experiment.from_mapping(config) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 5}, "There is no setting 'epoch'"),
        ({"epochs": "many"}, "epochs is 'many'"),
        ({"lr": True}, "lr is True"),
        ({"method": 3}, "method is 3"),
        ({"superclass": "yes"}, "superclass is 'yes'"),
    ],
)
def test_a_wrong_entry_of_a_config_is_named(change, message):
    with pytest.raises(InputError, match=message):
        Experiment.from_mapping({**SMALL, **change})


def test_a_config_without_data_is_refused():
    with pytest.raises(InputError, match="names no image set"):
        Experiment.from_mapping({})


def test_the_problem_is_long_tailed_ambiguous_and_drawn_by_the_seed_alone():
    one, same, other = (
        draw_problem(Experiment.from_mapping({**SMALL, "seed": seed}), coloured_images())
        for seed in (0, 0, 1)
    )
    assert np.bincount(one.y).tolist() == [24, 15, 9, 6]
    assert bool(one.candidates.contains(torch.from_numpy(one.y)).all())
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.candidates.labels, same.candidates.labels)
    assert not (
        len(one.candidates.labels) == len(other.candidates.labels)
        and torch.equal(one.candidates.labels, other.candidates.labels)
    )
    assert one.x.shape == (54, 3, 32, 32)
    assert one.x.dtype == torch.uint8
    np.testing.assert_allclose(one.mean, one.x.float().mean((0, 2, 3)) / 255, atol=1e-4)
    np.testing.assert_allclose(one.std, one.x.float().std((0, 2, 3)) / 255, atol=1e-3)


def test_superclass_ambiguity_needs_superclasses_and_prefers_them():
    experiment = Experiment.from_mapping(
        {**SMALL, "superclass": True, "ambiguity": 0.05, "imbalance": 1}
    )
    with pytest.raises(InputError, match="no superclasses"):
        draw_problem(experiment, coloured_images())
    drawn = draw_problem(experiment, coloured_images(superclass=np.asarray([0, 0, 1, 1])))
    dense = drawn.candidates.dense().numpy()
    same = dense[np.arange(len(drawn.y)), drawn.y ^ 1].mean()
    assert same > dense[np.arange(len(drawn.y)), (drawn.y + 2) % 4].mean()


def test_an_image_set_with_its_own_candidates_is_used_unchanged():
    own = Candidates.of([[c, (c + 1) % 4] for c in coloured_images().y_train])
    drawn = draw_problem(Experiment.from_mapping(SMALL), coloured_images(candidates=own))
    assert len(drawn.y) == 96
    assert torch.equal(drawn.candidates.labels, own.labels)


def test_options_reach_the_part_they_name():
    experiment = Experiment.from_mapping(
        {
            **SMALL,
            "method": "lw",
            "rebalancer": "records",
            "options": {"lw": {"beta": 2.0}, "records": {"momentum": 0.5}},
        }
    )
    trainer = build_trainer(experiment, draw_problem(experiment, coloured_images()), device="cpu")
    assert trainer.method.beta == 2.0
    assert trainer.rebalancer.momentum == 0.5


# ---- schedules -------------------------------------------------------------------------------


def test_a_step_schedule_reaches_the_trainer_and_is_restored_from_the_config():
    made = Experiment.from_mapping({**SMALL, "schedule": "step", "milestones": [1, 2]})
    assert made.config()["milestones"] == [1, 2]
    assert Experiment.from_config(json.loads(json.dumps(made.config()))) == made
    assert build_trainer(made, draw_problem(made, coloured_images()), device="cpu").milestones == (
        1,
        2,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schedule": "step", "milestones": [2, 1]},
            r"milestones is \[2, 1\]: they must be increasing",
        ),
        ({"schedule": "step", "milestones": [-1]}, "at least 1 and below 3"),
        ({"schedule": "step", "milestones": [3]}, "at least 1 and below 3"),
        (
            {"schedule": "step", "milestones": "1"},
            "milestones is '1': it must be a whole number",
        ),
        ({"schedule": "step", "milestones": [True]}, "it must be a whole number"),
        ({"schedule": "step"}, "The schedule step and `milestones`"),
        (
            {"milestones": [1]},
            "need each other: set both, or neither",
        ),
        ({"schedule": "steps"}, "schedule is 'steps': it must be cosine or step."),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused_with_one_sentence(change, message):
    with pytest.raises(InputError, match=message):
        Experiment.from_mapping({**SMALL, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "steps"}, "schedule is 'steps'"),
        ({"schedule": "step", "milestones": (800,)}, "at least 1 and below 800"),
        ({"milestones": (700,)}, "need each other"),
        ({"draw": "author"}, "draw is 'author': it must be seeded or authors"),
        ({"edition": 4}, "edition is 4: it must be a whole number between 1 and 3"),
    ],
)
def test_an_experiment_that_is_constructed_directly_is_checked_too(change, message):
    with pytest.raises(InputError, match=message):
        Experiment("cifar10", **change)


# ---- the authors' draw -----------------------------------------------------------------------


def complete_cifar(n_classes=10):
    """An image set with as many labels as CIFAR, and images of one pixel that is their number."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(n_classes), 50_000 // n_classes))
    x = np.stack([np.arange(50_000) // 256, np.arange(50_000) % 256, np.zeros(50_000)], 1).astype(
        np.uint8
    )[:, None, None]
    return ImageSet("cifar10", x, y, x[:10], y[:10], tuple(map(str, range(n_classes))))


def test_the_authors_draw_is_the_same_for_every_seed_and_the_training_is_not():
    settings = {"data": "cifar10", "ambiguity": 0.5, "draw": "authors"}
    one, other = (
        draw_problem(Experiment.from_mapping({**settings, "seed": seed}), complete_cifar())
        for seed in (0, 1)
    )
    assert np.bincount(one.y).tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.candidates.labels, other.candidates.labels)
    assert one.seeds["training"] != other.seeds["training"]
    rows, candidates = authors_draw(complete_cifar().y_train, 100, 0.5)
    numbers = one.x[:, 0, 0, 0].long() * 256 + one.x[:, 1, 0, 0]
    assert numbers.tolist() == rows.tolist()
    assert torch.equal(one.candidates.labels, candidates.labels)
    assert "draw" not in Experiment("cifar10").config()


@pytest.mark.parametrize(
    ("images", "change", "message"),
    [
        (
            coloured_images(),
            {},
            "needs all 50,000 training images of cifar10, equally many of each class, and this set "
            "has 96 images",
        ),
        (coloured_images(), {"superclass": True}, "no superclasses"),
        (
            coloured_images(),
            {"draw": "author"},
            "draw is 'author': it must be seeded or authors",
        ),
    ],
)
def test_the_authors_draw_is_refused_where_it_is_not_defined(images, change, message):
    with pytest.raises(InputError, match=re.escape(message)):
        draw_problem(Experiment.from_mapping({**SMALL, "draw": "authors", **change}), images)


def test_an_image_set_with_its_own_candidates_ignores_the_draw():
    images = coloured_images(candidates=Candidates.of([[0, 1]] * 96))
    problem = draw_problem(Experiment.from_mapping({**SMALL, "draw": "authors"}), images)
    assert len(problem.y) == 96
    assert torch.equal(problem.candidates.labels, images.candidates.labels)


# ---- runs of earlier versions ----------------------------------------------------------------


def test_the_edition_is_part_of_a_new_runs_config_and_absent_from_those_of_the_first():
    new, old = Experiment("cifar10"), Experiment("cifar10", edition=1)
    assert new.config() == {**old.config(), "edition": 3}
    assert "edition" not in old.config()
    assert (Experiment.from_config(new.config()), Experiment.from_config(old.config())) == (
        new,
        old,
    )


def test_a_run_of_an_earlier_edition_is_neither_resumed_nor_changed(root, tmp_path):
    made = call(root, "--epochs", "2", "--method", "proden", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = next(path.parent for path in tmp_path.rglob("done"))
    config = json.loads((folder / "config.json").read_text())
    old = experiment_run(folder.parent, replace(Experiment.from_config(config), edition=2))
    folder.rename(old.folder)  # as if an earlier version had written it and had been interrupted
    (old.folder / "config.json").write_text(json.dumps(old.config))
    (old.folder / "done").unlink()
    before = {path.name: path.read_bytes() for path in old.folder.iterdir()}
    with pytest.raises(
        InputError,
        match="is of edition 2, and this version of ltpll trains edition 3: finish it",
    ):
        train(old, coloured_images(), device="cpu")
    again = call(root, "--epochs", "2", "--method", "proden", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_bytes() for path in old.folder.iterdir()} == before
    assert (folder / "done").exists()


@pytest.mark.parametrize("folder", ["images", "beyond"])
def test_the_records_of_earlier_versions_are_found_by_the_same_hash(folder):
    """A run's folder is named by its config's hash: new settings must not change old configs."""
    paths = sorted((Path(__file__).parents[2] / "results" / folder).glob("*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text())
        config = {
            key: value for key, value in record["config"].items() if key != "code"
        }  # of versions compared on purpose
        assert Experiment.from_config(config).config() == config
        assert Run(path.parent, record["config"]).key == record["key"]
        assert path.stem.startswith(record["key"])


# ---- recipes ---------------------------------------------------------------------------------


def test_the_recipe_paper_is_the_defaults():
    assert from_recipe("paper", data="cifar10", seed=1) == Experiment("cifar10", seed=1)


def test_the_recipe_best_anchors_with_mixup_and_a_balanced_head_for_200_epochs():
    made = from_recipe("best", data="cifar10", imbalance=4, seed=1)
    assert (made.views, made.lr, made.epochs, made.extras, made.rebalancer) == (
        "flip-crop",
        0.03,
        200,
        ("mixup", "balanced-head"),
        "anchor",
    )
    assert (made.seed, made.batch_size, made.method) == (1, 256, "corr")
    trainer = build_trainer(made, draw_problem(made, coloured_images()), device="cpu")
    assert (trainer.rebalancer.bounds, trainer.rebalancer.warmup) == ("point", 0.5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_makes_an_experiment_that_is_restored_from_its_config(recipe):
    made = from_recipe(recipe, data="cifar10")
    assert Experiment.from_config(made.config()) == made


def test_settings_override_a_recipe_and_options_of_parts_do_so_one_by_one():
    settings = {
        "data": "cifar10",
        "lr": 0.1,
        "extras": [],
        "options": {"anchor": {"warmup": 0.3}, "mixup": {"alpha": 2}},
    }
    made = Experiment.from_mapping(with_recipe("best", settings))
    assert (made.lr, made.extras, made.views) == (0.1, (), "flip-crop")
    assert made.options["anchor"] == {"bounds": "point", "warmup": 0.3, "lift": "records"}
    assert made.config()["options"] == {
        "anchor": {"bounds": "point", "warmup": 0.3, "lift": "records"}
    }
    assert RECIPES["best"]["options"] == {
        "anchor": {"bounds": "point", "warmup": 0.5, "lift": "records"}
    }


def test_options_of_parts_that_are_not_used_do_not_make_another_run(tmp_path):
    by_recipe = from_recipe("best", data="cifar10", rebalancer="records")
    by_hand = Experiment(
        "cifar10",
        rebalancer="records",
        extras=("mixup", "balanced-head"),
        views="flip-crop",
        epochs=200,
        lr=0.03,
    )
    assert experiment_run(tmp_path, by_recipe).key == experiment_run(tmp_path, by_hand).key
    assert (
        experiment_run(tmp_path, by_recipe).key
        != experiment_run(tmp_path, from_recipe("best", data="cifar10")).key
    )


@pytest.mark.parametrize(
    "wrong", [{"options": []}, {"options": {"anchor": 3}}, {"recipe": "best"}, {3: 4}]
)
def test_a_wrong_setting_is_refused_under_a_recipe_too(wrong):
    with pytest.raises(InputError, match=r"it must be|There is no setting"):
        Experiment.from_mapping(with_recipe("best", {"data": "cifar10", **wrong}))


@pytest.mark.parametrize(
    ("rebalancer", "corrections"),
    [("none", ["mean-target", "oracle-la-posthoc"]), ("records", ["mean-target"]), ("anchor", [])],
)
def test_a_run_writes_its_record_with_the_corrections_that_need_no_other_training(
    tmp_path, rebalancer, corrections
):
    experiment = Experiment.from_mapping({**SMALL, "rebalancer": rebalancer, "extras": ["mixup"]})
    run = experiment_run(tmp_path, experiment)
    train(run, coloured_images(), device="cpu", measure_every=2)
    result = run.result()
    assert result["curves"]["epoch"] == [2, 3]
    assert result["posthoc"] == corrections
    assert result["class_counts"] == [24, 15, 9, 6]
    assert result["engine"] == "eager"
    assert result["views_per_second"] > 0


def test_the_best_epoch_is_the_best_of_all_and_only_some_epochs_keep_the_figures_of_each_class(
    tmp_path,
):
    run = experiment_run(
        tmp_path,
        Experiment.from_mapping({**SMALL, "epochs": 23, "rebalancer": "none", "method": "proden"}),
    )
    train(run, coloured_images(), device="cpu")
    logged, result = run.records(), run.result()
    rows = ["test", *result["posthoc"]]
    accuracy = {row: [record[row]["balanced_accuracy"] for record in logged] for row in rows}
    for row in rows:
        best = result["best"][row]
        assert (best["epoch"], best[row]["balanced_accuracy"]) == (
            1 + accuracy[row].index(max(accuracy[row])),
            pytest.approx(max(accuracy[row]), abs=1e-6),
        )
        assert len(best[row]["per_class"]) == 4
    for k, record in enumerate(logged):
        detailed = k + 1 in (10, 20, 23) or any(
            accuracy[row][k] > max(accuracy[row][:k], default=-1) for row in rows
        )
        assert ("per_class" in record["test"]) == ("mean_target" in record) == detailed
    assert not all("mean_target" in record for record in logged)


def test_training_images_learns(tmp_path):
    experiment = Experiment.from_mapping(
        {**SMALL, "width": 4, "epochs": 8, "views": "flip-crop", "method": "proden", "lr": 0.1}
    )
    run = experiment_run(tmp_path, experiment)
    train(run, coloured_images(), device="cpu", measure_every=8)
    assert run.result()["last"]["target_recovery"] > 0.8


# ---- the command -----------------------------------------------------------------------------


def call(root, *arguments, cwd):
    options = [
        "--imbalance",
        "4",
        "--ambiguity",
        "0.2",
        "--set",
        "width=2 batch_size=16 lr=0.05",
        "--device",
        "cpu",
    ]
    return research("benchmark", "cifar10", *options, "--data-root", root, *arguments, cwd=cwd)


def test_the_benchmark_command_trains_reads_a_config_and_knows_a_finished_run(root, tmp_path):
    (tmp_path / "config.toml").write_text("method = 'proden'\nepochs = 2\nrebalancer = 'none'\n")
    first = call(root, "--config", "config.toml", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "float32, eager steps" in first.stdout
    assert "oracle-la-posthoc" in first.stdout
    assert "best epoch" in first.stdout
    again = call(root, "--method", "proden", "--epochs", "2", "--rebalancer", "none", cwd=tmp_path)
    assert "finished earlier" in again.stdout


def test_the_command_line_overrides_the_config_and_the_config_overrides_the_recipe(root, tmp_path):
    (tmp_path / "config.toml").write_text("method = 'proden'\nepochs = 4\nextras = []\n")
    result = call(
        root, "--recipe", "best", "--config", "config.toml", "--epochs", "1", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    made = json.loads(next(tmp_path.rglob("result.json")).read_text())["config"]
    assert (made["method"], made["epochs"], made["extras"]) == ("proden", 1, [])
    assert (made["views"], made["rebalancer"], made["options"]) == (
        "flip-crop",
        "anchor",
        RECIPES["best"]["options"],
    )


def test_another_schedule_on_the_command_line_replaces_the_milestones_of_a_config_file(
    root, tmp_path
):
    (tmp_path / "config.toml").write_text(
        "schedule = 'step'\nmilestones = [1]\nmethod = 'proden'\nepochs = 2\n"
    )
    result = call(root, "--config", "config.toml", "--set", "schedule=cosine", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    made = json.loads(next(tmp_path.rglob("result.json")).read_text())["config"]
    assert not {"schedule", "milestones"} & made.keys()


def test_the_benchmark_command_takes_several_milestones(root, tmp_path):
    steps = ["--epochs", "3", "--set", "schedule=step milestones=1,2", "--method", "proden"]
    result = call(root, *steps, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    logged = [
        json.loads(line) for line in next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines()
    ]
    assert [record["lr"] for record in logged] == pytest.approx([0.05, 0.005, 0.0005])
    (tmp_path / "config.toml").write_text(
        "schedule = 'step'\nmilestones = [1, 2]\nmethod = 'proden'\nepochs = 3\n"
    )
    assert "finished earlier" in call(root, "--config", "config.toml", cwd=tmp_path).stdout


def test_tensorboard_events_hold_the_losses_and_the_accuracy_of_every_epoch(root, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = call(
        root,
        "--epochs",
        "2",
        "--measure-every",
        "1",
        "--method",
        "proden",
        "--tensorboard",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    folder = next(path.parent for path in tmp_path.rglob("events.out.*"))
    events = EventAccumulator(str(folder)).Reload()
    logged = [
        json.loads(line) for line in (folder.parent / "metrics.jsonl").read_text().splitlines()
    ]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(
        [record["loss"] for record in logged]
    )
    accuracies = [record["test"]["balanced_accuracy"] for record in logged]
    assert [event.value for event in events.Scalars("test/balanced_accuracy")] == pytest.approx(
        accuracies
    )


def test_tensorboard_shows_an_epoch_that_was_trained_again_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Run(tmp_path, {"seed": 0})
    run.start()
    for epochs in (
        (1, 2, 3),
        (3, 4),
    ):  # a process that is killed before its third epoch is in a checkpoint, and the next
        events = TensorBoardEvents(run)
        for epoch in epochs:
            record = {"epoch": epoch, "loss": 10.0 * len(epochs) + epoch, "lr": 0.1}
            events.on_epoch_end(SimpleNamespace(epoch=epoch), record)
        if epochs[-1] < 4:
            time.sleep(1.1)  # the names of the two event files contain the time in seconds
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (1, 31.0),
        (2, 32.0),
        (3, 23.0),
        (4, 24.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "prodem"], "Did you mean 'proden'"),
        (["--config", "missing.toml"], "There is no file missing.toml"),
        (["--set", "views=wild"], "wild"),
        (
            ["--recipe", "bset"],
            "There is no recipe 'bset'. Did you mean 'best'? Available: best, paper.",
        ),
        (["--engine", "captured"], "needs a CUDA device"),
        (
            ["--set", "draw=authors"],
            "The authors' draw needs all 50,000 training images of cifar10",
        ),
        (
            ["--epochs", "3", "--set", "milestones=1,2"],
            "need each other: set both, or neither",
        ),
        (
            ["--epochs", "3", "--set", "schedule=step milestones=2,1"],
            "milestones is [2, 1]: they must be increasing",
        ),
    ],
)
def test_a_bad_setting_exits_with_2_and_one_sentence(root, tmp_path, arguments, message):
    result = call(root, *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_image_set_that_is_not_prepared_names_the_command_that_prepares_it(tmp_path):
    result = call(tmp_path / "nothing", cwd=tmp_path)
    assert result.returncode == 2
    assert "ltpll-research data prepare cifar10" in result.stderr


def test_labels_are_removed_from_sets_as_asked_and_experiments_without_keep_their_runs():
    plain, lacking = (
        Experiment.from_mapping({**SMALL, **more})
        for more in ({}, {"lacking": 0.4, "truth_missing": 0.3})
    )
    assert not {"lacking", "truth_missing"} & plain.config().keys()
    assert Experiment.from_config(lacking.config()) == lacking
    images = coloured_images()
    before, after = draw_problem(plain, images), draw_problem(lacking, images)
    assert np.array_equal(before.y, after.y)
    assert bool(before.candidates.contains(torch.from_numpy(before.y)).all())
    assert 0.2 < float((~after.candidates.contains(torch.from_numpy(after.y))).float().mean()) < 0.6
    assert build_trainer(lacking, after, device="cpu").truth_missing == 0.3


def test_held_out_sets_choose_an_epoch_without_true_labels_and_are_not_trained_on(tmp_path):
    images = coloured_images()
    plain, held_out = (
        Experiment.from_mapping({**SMALL, **more}) for more in ({}, {"held_out": 0.25})
    )
    assert "held_out" not in plain.config()
    whole, problem = draw_problem(plain, images), draw_problem(held_out, images)
    assert whole.held_out is None
    x, sets = problem.held_out
    assert len(x) == len(sets) == round(0.25 * len(whole.y))
    rows = [image.numpy().tobytes() for image in [*problem.x, *x]]
    assert sorted(rows) == sorted(image.numpy().tobytes() for image in whole.x)
    run = experiment_run(tmp_path, held_out)
    train(run, images, device="cpu")
    history = [json.loads(line) for line in (run.folder / "metrics.jsonl").open()]
    best = max(history, key=lambda record: record["set_information"])
    assert run.result()["chosen"]["epoch"] == best["epoch"]
    assert run.result()["chosen"]["test"]["balanced_accuracy"] == pytest.approx(
        best["test"]["balanced_accuracy"], abs=1e-5
    )


# ---- own image sets, other origins of sets, and grids ----------------------------------------


def own_images(**more):
    return coloured_images(name="mine", superclass=np.asarray([0, 0, 1, 1]), **more)


def test_an_image_set_of_ones_own_is_part_of_the_config_by_its_content(tmp_path):
    made = Experiment.from_mapping({**SMALL, "data": "mine", "content": "abc"})
    assert made.config()["content"] == "abc"
    assert "content" not in Experiment.from_mapping(SMALL).config()
    images = own_images()._replace(content="def")
    with pytest.raises(InputError, match="not the one that this run was made with"):
        draw_problem(made, images)


def test_natural_classes_are_taken_whole():
    images = own_images()
    rows = np.flatnonzero((images.y_train > 0) | (np.arange(96) < 5))
    images = images._replace(x_train=images.x_train[rows], y_train=images.y_train[rows])
    drawn = draw_problem(Experiment.from_mapping({**SMALL, "imbalance": "natural"}), images)
    assert np.bincount(drawn.y).tolist() == [5, 24, 24, 24]


def test_own_sets_are_kept_on_a_long_tailed_subset():
    own = Candidates.of([[c, (c + 1) % 4] for c in coloured_images().y_train])
    made = Experiment.from_mapping({**SMALL, "sets": "own"})
    drawn = draw_problem(made, coloured_images(candidates=own))
    assert np.bincount(drawn.y).tolist() == [24, 15, 9, 6]
    assert [sorted(drawn.candidates.row(i)) for i in range(54)] == [
        sorted({c, (c + 1) % 4}) for c in drawn.y.tolist()
    ]
    with pytest.raises(InputError, match="no candidate sets of its own"):
        draw_problem(made, coloured_images())


def test_labels_of_the_superclass_alone_join_within_it():
    made = Experiment.from_mapping(
        {**SMALL, "within_superclass": True, "ambiguity": 0.5, "imbalance": 1}
    )
    dense = draw_problem(made, own_images()).candidates.dense().numpy()
    y = draw_problem(made, own_images()).y
    assert not dense[np.arange(96), (y + 2) % 4].any()
    assert 0.3 < dense[np.arange(96), y ^ 1].mean() < 0.7


def test_labels_that_a_network_finds_likely_join_instance_by_instance(tmp_path, monkeypatch):
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path))
    monkeypatch.setattr("ltpll_research.likely_labels.STEPS", 20)
    monkeypatch.setattr("ltpll_research.likely_labels.EPOCHS", 2)
    images = own_images(side=8)
    made = Experiment.from_mapping({**SMALL, "sets": "instance", "ambiguity": 0.25})
    drawn = draw_problem(made, images, "cpu")
    (kept,) = (tmp_path / "likely-labels").iterdir()
    p = np.load(kept)
    assert p.shape == (96, 4)
    assert p.sum(1) == pytest.approx(1, abs=1e-5)
    assert bool(drawn.candidates.contains(torch.from_numpy(drawn.y)).all())
    np.save(kept, np.eye(4, dtype=np.float32)[(images.y_train + 1) % 4])
    again = draw_problem(made, images, "cpu")  # from what was kept, now without doubt
    assert [sorted(again.candidates.row(i)) for i in range(54)] == [
        sorted({c, (c + 1) % 4}) for c in again.y.tolist()
    ]
    assert len(list((tmp_path / "likely-labels").iterdir())) == 1
    draw_problem(made, images._replace(x_train=images.x_train // 2), "cpu")
    assert len(list((tmp_path / "likely-labels").iterdir())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"superclass": True, "within_superclass": True},
        {"superclass": True, "sets": "instance"},
        {"sets": "other"},
        {"imbalance": "wild"},
    ],
)
def test_settings_of_sets_that_exclude_each_other_are_refused(change):
    with pytest.raises(InputError):
        Experiment.from_mapping({**SMALL, **change})


def test_a_folder_and_several_values_train_every_combination_and_compare_them(root, tmp_path):
    write_image_set(own_images(side=8), tmp_path / "sets")
    grid = ["--method", "proden", "--rebalancer", "none,records", "--seeds", "0-1"]
    small = ["--imbalance", "natural", "--epochs", "1", "--device", "cpu"]
    settings = ["--set", "width=2 batch_size=16 lr=0.05"]
    folder = tmp_path / "sets" / "mine"
    result = research("benchmark", folder, *grid, *small, *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "0 of 4 runs done" in result.stdout
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert sorted((one["config"]["rebalancer"], one["config"]["seed"]) for one in records) == [
        ("none", 0),
        ("none", 1),
        ("records", 0),
        ("records", 1),
    ]
    assert {one["config"]["data"] for one in records} == {"mine"}
    assert re.search(r"proden \+ records +\d+\.\d ± ", result.stdout)
    again = research("benchmark", folder, *grid, *small, *settings, cwd=tmp_path)
    assert "4 of 4 runs done" in again.stdout


def test_another_papers_protocol_trains_any_image_set_and_is_shortened_as_a_whole(root, tmp_path):
    small = [
        "--imbalance",
        "4",
        "--epochs",
        "8",
        "--set",
        "width=2 batch_size=16",
        "--device",
        "cpu",
    ]
    words = ["--recipe", "htc", "--method", "proden", *small, "--data-root", root]
    result = research("benchmark", "cifar10", *words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    made = json.loads(next(tmp_path.rglob("result.json")).read_text())["config"]
    assert (made["milestones"], made["schedule"], made["views"]) == ([7], "step", "flip-crop")
