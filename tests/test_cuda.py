"""Training on a GPU: the same results as on a CPU, CUDA graphs, precision, and runs that are
killed; `make gpu` runs these tests."""

import gc
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from ltpll import PartialLabelClassifier
from ltpll.candidates import Candidates
from ltpll.errors import InputError, NotFiniteError
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import Classifier, FineTune, build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.targets import CandidateTargets
from ltpll.training.batches import BatchSampler
from ltpll.training.callbacks import Checkpoint, OnEpoch
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs
from ltpll.views import ImageViews, Jitter, Views
from ltpll.views.images import Draws
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import noise_images
from ltpll_research.set_origins import remove_labels
from ltpll_research.studies.digit_views import Cutout, Shift
from support.interrupted_runs import outcome
from support.processes import environment_of_tests
from support.tiny_backbones import PREPROCESSING, coloured_pictures, tiny_backbone

pytestmark = pytest.mark.gpu


def train(
    method,
    rebalancer,
    device,
    *,
    extras=(),
    views=None,
    epochs=4,
    batch_size=10_000,
    engine="auto",
    precision="float32",
    double=False,
    callbacks=(),
):
    x, y = four_squares([20, 40, 80, 160], seed=0)
    x_test, y_test = four_squares([50] * 4, seed=1)
    candidates = uniform_candidates(y, 4, 0.5, seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(16,))
    if double:
        model.double()
    context = {"n_features": 16, "n_classes": 4, "class_frequencies": np.bincount(y)}
    trainer = PartialLabelTrainer(
        model,
        METHODS[method]() if isinstance(method, str) else method.fresh(),
        REBALANCERS.create(rebalancer, context),
        extras,
        views=views or Views(weak=(Jitter(0.0),)),
        epochs=epochs,
        batch_size=batch_size,
        lr=0.2,
        device=device,
        engine=engine,
        precision=precision,
    )
    posthoc = {"oracle-la-posthoc": REBALANCERS["oracle-la-posthoc"](np.bincount(y))}
    return trainer.fit(x, candidates, [Evaluate(x_test, y_test, y, posthoc=posthoc), *callbacks])


@pytest.mark.parametrize(
    ("method", "rebalancer"),
    [
        (name, each)
        for name in METHODS
        for each in REBALANCERS
        if each == "none" or not METHODS[name].why_no_rebalancer
    ],
)
def test_whole_batches_train_to_the_same_targets_as_on_the_cpu(method, rebalancer, monkeypatch):
    """With the rows in one order, since a GPU would draw another one, and PiCo's prototypes follow
    one row after the other; and with the same blends for ALIM, whose labels jump."""
    monkeypatch.setattr(
        BatchSampler,
        "_draw_order",
        lambda batches: torch.arange(batches.rows, device=batches.generator.device),
    )
    if method == "alim":
        monkeypatch.setattr(
            "ltpll.methods.alim.mixup_weights",
            lambda alpha, generator: torch.full((), 0.75, device=generator.device),
        )
        monkeypatch.setattr(
            "ltpll.methods.alim.torch.randperm",
            lambda n, generator, device: torch.arange(n - 1, -1, -1, device=device),
        )
    cpu, cuda = (train(method, rebalancer, device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(cuda.targets.values.cpu(), cpu.targets.values, atol=1e-3, rtol=1e-2)
    ours, theirs = cuda.history[-1], cpu.history[-1]
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    assert ours["test"]["mean_prediction"] == pytest.approx(
        theirs["test"]["mean_prediction"], abs=1e-3
    )
    assert ours["mean_target"] == pytest.approx(theirs["mean_target"], abs=1e-3)


# Steps that add in another order differ by rounding, which training makes larger with every step:
# in double precision it stays small.
EXACTLY = {
    "double": True,
    "views": Views(weak=(Jitter(0.1),), strong=(Jitter(0.2),)),
    "batch_size": 32,
}
SMALL = {"atol": 1e-7, "rtol": 1e-6}


@pytest.mark.parametrize("engine", ["captured", "compiled"])
def test_a_replayed_step_trains_like_an_eager_one(engine):
    """With the same draws: epoch by epoch the same losses and in the end the same targets, mixup's
    draws inside the step included."""
    eager, replayed = (
        train(
            "corr", "records", "cuda", extras=[EXTRAS["mixup"]()], engine=each, epochs=6, **EXACTLY
        )
        for each in ("eager", engine)
    )
    assert {key[:2] for key in replayed._runner.graphed_step.recordings} == {
        ((False, False, False), (32,)),
        ((True, False, True), (32,)),
    }
    assert [r["loss"] for r in replayed.history] == pytest.approx(
        [r["loss"] for r in eager.history], rel=1e-6
    )
    torch.testing.assert_close(replayed.targets.values, eager.targets.values, **SMALL)
    torch.testing.assert_close(
        replayed.rebalancer.mean_feature, eager.rebalancer.mean_feature, **SMALL
    )


@pytest.mark.parametrize("extra", list(EXTRAS))
def test_every_extra_can_be_replayed(extra):
    eager, replayed = (
        train("corr", "records", "cuda", extras=[EXTRAS[extra]()], engine=engine, **EXACTLY)
        for engine in ("eager", "captured")
    )
    assert [r["loss"] for r in replayed.history] == pytest.approx(
        [r["loss"] for r in eager.history], rel=1e-6
    )


@pytest.mark.parametrize(
    "method",
    [*METHODS, pytest.param(METHODS["deacon"](contrast_from=(1, 3)), id="deacon with contrasts")],
)
def test_every_method_can_be_replayed(method):
    eager, replayed = (
        train(method, "none", "cuda", engine=engine, epochs=6, **EXACTLY)
        for engine in ("eager", "captured")
    )
    assert [r["loss"] for r in replayed.history] == pytest.approx(
        [r["loss"] for r in eager.history], rel=1e-6
    )
    torch.testing.assert_close(replayed.targets.values, eager.targets.values, **SMALL)


@pytest.mark.parametrize(
    ("method", "extras"),
    [
        *(("solar", ()), ("pico", ()), ("htc", ()), ("deacon", ())),
        *(("corr", ("bcl",)), ("corr", ("paco",))),
    ],
)
def test_systems_train_images_in_bfloat16_and_replayed(method, extras):
    """Passes beyond the first go through the same low weights; the losses are those of exact
    steps, as far as that precision goes."""
    rebalancer = "none" if METHODS[method].why_no_rebalancer else "records"
    experiment = Experiment(
        "noise",
        imbalance=10,
        batch_size=64,
        width=32,
        epochs=6,
        method=method,
        rebalancer=rebalancer,
        extras=extras,
    )
    problem = draw_problem(experiment, noise_images(40, 10, 50))
    losses = []
    for precision, engine in (("float32", "eager"), ("bfloat16", "captured")):
        trainer = build_trainer(
            replace(experiment, precision=precision), problem, device="cuda", engine=engine
        )
        trainer.fit(problem.x, problem.candidates)
        losses.append([record["loss"] for record in trainer.history])
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_a_resumed_training_ends_like_an_undisturbed_one_and_the_callers_random_state_is_left_alone(
    tmp_path,
):
    views = Views(weak=(Jitter(0.1),), strong=(Jitter(0.2, 0.1),))
    options = {"views": views, "batch_size": 64}
    before = torch.cuda.get_rng_state()
    whole = train("corr", "records", "cuda", extras=[EXTRAS["mixup"]()], **options)
    first = tmp_path / "checkpoint"

    class StopError(Exception):
        pass

    def stop(record):
        if record["epoch"] == 2:
            raise StopError

    with pytest.raises(StopError):
        train(
            "corr",
            "records",
            "cuda",
            extras=[EXTRAS["mixup"]()],
            callbacks=[OnEpoch(stop), Checkpoint(first)],
            **options,
        )
    again = train(
        "corr",
        "records",
        "cuda",
        extras=[EXTRAS["mixup"]()],
        callbacks=[Checkpoint(first)],
        **options,
    )
    torch.testing.assert_close(again.targets.values, whole.targets.values, atol=1e-4, rtol=1e-3)
    assert torch.equal(before, torch.cuda.get_rng_state())


def points_trainer(method, rebalancer, extras, engine, *, encoder=None, on_nan="stop"):
    """Six steps an epoch, views drawn for two at once; made anew, with the same weights."""
    x, y = four_squares([20, 40, 80, 160], seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(16,))
    if encoder is not None:
        model.encoder = encoder
    made = PartialLabelTrainer(
        model,
        METHODS[method](),
        REBALANCERS.create(
            rebalancer, {"n_features": 16, "n_classes": 4, "class_frequencies": np.bincount(y)}
        ),
        [EXTRAS[name]() for name in extras],
        views=Views(weak=(Jitter(0.1),), strong=(Jitter(0.2, 0.1),)),
        epochs=6,
        batch_size=50,
        lr=0.1,
        chunk=100,
        device="cuda",
        engine=engine,
        on_nan=on_nan,
    )
    return made, x, uniform_candidates(y, 4, 0.5, seed=0)


# In double precision, since rounding that differs from run to run would be as large as the losses
# after a few epochs.
KILLED = {"epochs": 15, "device": "cuda", "double": True}


def run_in_a_process(root, *, killed_once=None):
    """A run of support/interrupted_runs.py in a process of its own, killed as soon as
    `killed_once` says so."""
    code = (
        f"from support.interrupted_runs import images_run; images_run({str(root)!r}, **{KILLED!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=environment_of_tests())
    while process.poll() is None:
        if killed_once and killed_once():
            process.kill()
        time.sleep(0.01)
    return process.returncode


def test_a_run_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path):
    def logged():
        return sum(
            path.read_bytes().count(b"\n") for path in (tmp_path / "killed").rglob("metrics.jsonl")
        )

    assert run_in_a_process(tmp_path / "whole") == 0
    for behind in (2, 6, 11):
        assert (
            run_in_a_process(tmp_path / "killed", killed_once=lambda n=behind: logged() >= n)
            == -signal.SIGKILL
        )
        assert not list((tmp_path / "killed").rglob("done"))
    assert run_in_a_process(tmp_path / "killed") == 0
    whole, killed = (outcome(tmp_path / name) for name in ("whole", "killed"))
    assert [one["epoch"] for one in killed["log"]] == list(range(1, KILLED["epochs"] + 1))
    np.testing.assert_allclose(
        [one["loss"] for one in killed["log"]], [one["loss"] for one in whole["log"]], rtol=1e-3
    )


# What resuming on a GPU promises: sums whose order the device chooses, and nothing else, may
# differ.
WITHIN = {"atol": 1e-4, "rtol": 1e-3}


@pytest.mark.parametrize("engine", ["captured", "eager"])
@pytest.mark.parametrize(
    ("method", "rebalancer", "extras"),
    [
        ("corr", "records", ("mixup",)),
        ("pico", "records", ()),
        ("solar", "none", ()),
        ("htc", "none", ()),
        ("deacon", "none", ()),
        ("proden", "none", ("bcl", "paco")),
    ],
)
@pytest.mark.parametrize("steps", [13, 18], ids=["in an epoch", "between epochs"])
def test_a_training_that_was_stopped_after_any_step_ends_like_an_undisturbed_one(
    tmp_path, method, rebalancer, extras, engine, steps
):
    """Stopped after a recording has replaced the first calls, and taken up by a trainer that has
    recorded nothing yet."""
    whole, x, candidates = points_trainer(method, rebalancer, extras, engine)
    whole.fit(x, candidates)
    first, *_ = points_trainer(method, rebalancer, extras, engine)
    first.prepare(x, candidates)
    taken = 0

    def pause():
        nonlocal taken
        taken += 1
        return taken == steps

    while taken < steps:
        record = first.train_epoch(pause)
        first.history.extend([record] if record else [])
    first.save(tmp_path / "checkpoint")
    second, *_ = points_trainer(method, rebalancer, extras, engine)
    second.fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    while first.epoch < first.epochs:  # the same trainer can go on, too
        first.history.append(first.train_epoch())
    for other in (second, first):
        assert [r["loss"] for r in other.history] == pytest.approx(
            [r["loss"] for r in whole.history], rel=1e-3
        )
        torch.testing.assert_close(other.targets.values, whole.targets.values, **WITHIN)
        torch.testing.assert_close(other.model.state_dict(), whole.model.state_dict(), **WITHIN)


class Squares(torch.nn.Module):
    """What is 1e25 away has no finite square."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(2, 16, generator=g))
        self.norm = torch.nn.BatchNorm1d(16)

    def forward(self, x):
        return self.norm(torch.square(x) @ self.weight)


def far_away(x, row=7):
    x = x.copy()
    x[row] = 1e25
    return x


@pytest.mark.parametrize(
    ("method", "rebalancer", "extras"),
    [
        ("proden", "records", ()),
        ("corr", "epoch-records", ("bcl", "paco")),
        ("pico", "none", ()),
        ("solar", "none", ()),
    ],
)
def test_a_replayed_step_drops_a_batch_as_an_eager_one_does(method, rebalancer, extras):
    """One batch of every epoch holds a row without finite outputs; were anything of it kept, all
    would be spoilt."""
    trained = []
    for engine in ("eager", "captured"):
        one, x, candidates = points_trainer(
            method, rebalancer, extras, engine, encoder=Squares(), on_nan="skip"
        )
        trained.append(one.fit(far_away(x), candidates))
    eager, replayed = trained
    assert (
        [r["skipped"] for r in replayed.history] == [r["skipped"] for r in eager.history] == [1] * 6
    )
    assert [r["loss"] for r in replayed.history] == pytest.approx(
        [r["loss"] for r in eager.history], rel=1e-3
    )
    for name, tensor in replayed.state.tensors().items():
        if not name.startswith(("random", "generator")) and tensor.is_floating_point():
            assert not torch.isnan(tensor).any(), name
    torch.testing.assert_close(replayed.targets.values, eager.targets.values, atol=2e-3, rtol=1e-2)
    sets = replayed.candidates[torch.tensor([7], device=replayed.device)].float()
    torch.testing.assert_close(
        replayed.targets[torch.tensor([7], device=replayed.device)], sets / sets.sum()
    )  # as in the beginning


@pytest.mark.parametrize("engine", ["captured", "eager"])
def test_numbers_that_are_not_finite_stop_training_after_the_epoch_and_the_last_checkpoint_is_kept(
    tmp_path, engine
):
    one, x, candidates = points_trainer("proden", "records", (), engine, encoder=Squares())
    with pytest.raises(
        NotFiniteError,
        match=r"not finite in epoch 1, step \d, for rows .*: lower the learning rate",
    ) as error:
        one.fit(far_away(x), candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert 7 in error.value.rows
    assert len(error.value.rows) <= 50  # those of one step
    assert not (tmp_path / "checkpoint").exists()


def test_a_model_that_waits_for_the_device_is_told_to_run_eagerly_and_then_trains():
    class Waits(torch.nn.Module):
        def forward(self, x):
            return x * float(x.sum().item() > -1e9)

    x, y = four_squares([40] * 4, seed=0)
    candidates = uniform_candidates(y, 4, 0.5, seed=0)

    def trainer(engine):
        model = Classifier(Waits(), torch.nn.Linear(2, 4))
        return PartialLabelTrainer(
            model, METHODS["proden"](), epochs=3, batch_size=32, device="cuda", engine=engine
        )

    with pytest.raises(InputError, match="engine='eager'"):
        trainer("captured").fit(x, candidates)
    assert trainer("eager").fit(x, candidates).epoch == 3


def test_garbage_of_an_earlier_training_does_not_end_a_recording():
    """Trainers are part of circles, so that their graphs are dropped whenever Python comes around
    to it."""

    class Careless(torch.nn.Module):
        def forward(self, x):
            if gc.isenabled():  # as it may happen at any moment
                gc.collect()
            return x

    x, y = four_squares([40] * 4, seed=0)
    candidates = uniform_candidates(y, 4, 0.5, seed=0)
    for _ in range(3):
        model = Classifier(Careless(), torch.nn.Linear(2, 4))
        trained = PartialLabelTrainer(
            model, METHODS["proden"](), epochs=3, batch_size=32, device="cuda", engine="captured"
        )
        assert trained.fit(x, candidates)._runner.graphed_step.recordings
        del trained
    assert gc.isenabled()


def test_a_resnet_learns_real_digits_with_image_views_and_mixup():
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = ((digits.images[:, None] / 16 - 0.3) / 0.37).astype(np.float32)
    y = digits.target.astype(np.int64)
    candidates = uniform_candidates(y[:1400], 10, 0.2, seed=0)
    model = build_model("resnet18", 0, n_classes=10, n_channels=1, width=16)
    trainer = PartialLabelTrainer(
        model,
        METHODS["corr"](),
        REBALANCERS["records"](),
        [EXTRAS["mixup"]()],
        views=Views(weak=(Shift(1),), strong=(Shift(1), Jitter(0.2), Cutout(2))),
        epochs=15,
        batch_size=128,
        lr=0.05,
        device="cuda",
    )
    trainer.fit(x[:1400], candidates, [Evaluate(x[1400:], y[1400:], y[:1400])])
    assert trainer.history[-1]["test"]["accuracy"] > 0.9


@pytest.fixture
def exact(monkeypatch):
    """Convolutions in float32, not in the shorter format that torch allows for them."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("training", [True, False])
def test_a_resnet_with_our_kernels_is_one_without(training, exact, monkeypatch):
    model = (
        build_model("resnet18", 0, n_classes=10, width=32)
        .to("cuda", memory_format=torch.channels_last)
        .train(training)
    )
    x = torch.randn(16, 3, 32, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    x = x.contiguous(memory_format=torch.channels_last)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    results = []
    for kernels in (True, False):
        if not kernels:
            for module in ("norm", "resnet"):
                monkeypatch.setattr(f"ltpll.models.{module}.runs_kernels", lambda x: False)
        model.load_state_dict(state)
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(training):
            logits, features = model(x)
        if training:
            (logits.sin().sum() + features.square().sum()).backward()
        gradients = {
            f"gradient of {name}": parameter.grad
            for name, parameter in model.named_parameters()
            if training
        }
        kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        results.append(
            {"logits": logits.detach(), "features": features.detach(), **gradients, **kept}
        )
    for name, ours in results[0].items():
        theirs = results[1][name]
        # As lengths, since a value that rounding takes across a ReLU's edge changes some gradients
        # by themselves.
        assert float((ours - theirs).float().norm()) <= 5e-3 * float(theirs.float().norm()), name


@pytest.mark.parametrize("engine", ["captured", "compiled"])
def test_bfloat16_steps_on_a_fixed_batch_lose_as_float32_ones_do(engine):
    experiment = Experiment("noise", imbalance=10, batch_size=64, lr=0.003, width=32)
    problem = draw_problem(experiment, noise_images(20, 10, 10))
    losses = []
    for precision, how in (("float32", "eager"), ("bfloat16", engine)):
        trainer = build_trainer(
            replace(experiment, precision=precision), problem, device="cuda", engine=how
        )
        trainer.prepare(problem.x, problem.candidates)
        rows = torch.arange(64, device="cuda")
        views = trainer.views.draw(
            trainer.x[rows], trainer.method.views, torch.Generator("cuda").manual_seed(0)
        )
        trainer.state.epoch = 1  # with targets refined
        losses.append([float(trainer._runner.step(rows, views)) for _ in range(12)])
    assert losses[0][-1] < 0.7 * losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


def test_a_replayed_image_training_is_an_eager_one_with_the_same_draws():
    """In float32: views, steps and the learning rate of every epoch, with kernels of ours in
    both."""
    experiment = Experiment("noise", imbalance=10, batch_size=64, width=16, epochs=6)
    problem = draw_problem(experiment, noise_images(40, 10, 50))
    losses = []
    for engine in ("eager", "captured"):
        trainer = build_trainer(experiment, problem, device="cuda", engine=engine)
        trainer.fit(problem.x, problem.candidates)
        losses.append([record["loss"] for record in trainer.history])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_candidates_and_targets_live_where_they_are_put():
    candidates = Candidates.of([{0, 2}, {1}, {0, 1, 2}]).to("cuda")
    index = torch.tensor([2, 0, -2], device="cuda")
    assert candidates[index].tolist() == [
        [True, True, True],
        [True, False, True],
        [False, True, False],
    ]
    assert candidates.select([1, 0]).device.type == "cuda"


@pytest.mark.parametrize(
    "sets", [[{0, 2}, {1, 2}, {0, 1}], [{0, 2}, {1}, {0, 1, 2}]], ids=["even", "uneven"]
)
def test_targets_are_read_and_written_as_on_the_cpu(sets):
    cpu, cuda = (
        CandidateTargets(Candidates.of(sets, n_classes=3).to(device)) for device in ("cpu", "cuda")
    )
    rows = torch.rand(3, 3, generator=torch.Generator().manual_seed(0))
    for index in (torch.tensor([2, 0, 1]), torch.tensor([-1, 0, 1], dtype=torch.int32)):
        for targets in (cpu, cuda):
            targets[index.to(targets.values.device)] = rows.to(targets.values.device)
        assert torch.equal(cuda[index.cuda()].cpu(), cpu[index])
        assert cuda.labels().tolist() == cpu.labels().tolist()


@pytest.mark.parametrize("kind", ["features", "floats", "bytes"])
def test_a_classifier_on_a_gpu_learns_like_one_on_a_cpu(kind):
    """The defaults: steps and views are replayed CUDA graphs."""
    x, y = four_squares([50, 100, 200, 400], seed=0)
    candidates = uniform_candidates(y, 4, 0.3, seed=0)
    if kind != "features":
        digits = load_digits()
        kept = digits.target < 4
        x, y = np.kron(digits.images[kept], np.ones((2, 2)))[:, None], digits.target[kept]
        x, candidates = (
            x.astype(np.float32) if kind == "floats" else (15 * x).astype(np.uint8),
            uniform_candidates(y, 4, 0.3, seed=0),
        )
    scores = [
        PartialLabelClassifier(epochs=10, device=device).fit(x, candidates).score(x, y)
        for device in ("cpu", "cuda")
    ]
    assert min(scores) > 0.85
    assert scores[1] == pytest.approx(scores[0], abs=0.08)


# ---- backbones, and pictures that do not fit -----------------------------------------------------


def test_a_backbone_is_fine_tuned_in_bfloat16_with_channels_last():
    x, _, candidates = coloured_pictures(200)
    x_test, y_test, _ = coloured_pictures(100, seed=1)
    scores = []
    for device in ("cpu", "cuda"):
        model = FineTune(tiny_backbone())
        classifier = PartialLabelClassifier(
            "proden", "none", model=model, epochs=10, views="crop", device=device
        )
        fitting = classifier.prepare_training(x, candidates)
        trainer = fitting.trainer
        before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
        classifier.run_training(fitting)
        trained = {
            name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad
        }
        changed = {
            name
            for name, tensor in trainer.model.state_dict().items()
            if not torch.equal(tensor, before[name])
        }
        assert {"head.weight", "head.bias"} < changed <= trained
        scores.append(classifier.score(x_test, y_test))
    assert trainer.forward_pass.autocast
    assert trainer._runner.graphed_step.recordings
    assert trainer.model.encoder.encoder[0][0].weight.is_contiguous(
        memory_format=torch.channels_last
    )
    assert trainer.views == ImageViews(
        "crop", PREPROCESSING.mean, PREPROCESSING.std, torch.bfloat16, channels_last=True
    )
    assert scores[1] == pytest.approx(scores[0], abs=0.1)


def test_a_replayed_step_with_two_learning_rates_trains_like_an_eager_one(exact):
    x, _, candidates = coloured_pictures(100)
    pictures = torch.from_numpy(x).permute(0, 3, 1, 2)
    weights = []
    for engine in ("eager", "captured"):
        torch.manual_seed(0)
        model = FineTune(tiny_backbone(), lr_factor=0.1)((3, 16, 16), 4)
        views = ImageViews("flip-crop", PREPROCESSING.mean, PREPROCESSING.std)
        trainer = PartialLabelTrainer(
            model,
            METHODS["proden"](),
            views=views,
            epochs=6,
            batch_size=20,
            lr=0.1,
            device="cuda",
            engine=engine,
        )
        trainer.fit(pictures, candidates)
        rates = [float(group["lr"]) for group in trainer.optimizer.param_groups]
        assert rates[0] == pytest.approx(0.1 * rates[1], rel=1e-5)
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    for ours, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=2e-2)


@pytest.mark.parametrize("engine", ["eager", "captured"])
def test_streamed_pictures_train_like_pictures_on_the_device(engine, tmp_path, monkeypatch, exact):
    x, _, candidates = coloured_pictures(150)
    np.save(tmp_path / "pictures.npy", x)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    results = []
    for streams in (False, True):
        monkeypatch.setattr(
            "ltpll.training.inputs.fits", lambda x, device, streams=streams: not streams
        )
        model = build_model("small-cnn", 0, n_classes=4, n_channels=3, width=16)
        views = ImageViews("photo", PREPROCESSING.mean, PREPROCESSING.std)
        trainer = PartialLabelTrainer(
            model,
            METHODS["proden"](),
            views=views,
            epochs=6,
            batch_size=10,
            chunk=40,
            lr=0.05,
            device="cuda",
            engine=engine,
        )
        given = as_inputs(np.load(tmp_path / "pictures.npy", mmap_mode="r"), "training").permute(
            0, 3, 1, 2
        )
        trainer.fit(given, candidates)
        assert trainer.inputs.streamed == streams
        results.append(
            (trainer.targets.values.clone(), [record["loss"] for record in trainer.history])
        )
    assert results[1][1] == pytest.approx(results[0][1], rel=1e-3)
    torch.testing.assert_close(results[1][0], results[0][0], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_views_of_large_photographs_are_those_of_a_cpu(kind):
    """Above 128 × 128 pixels, where the kernels do not run."""
    x = torch.randint(
        0, 256, (6, 3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    views = ImageViews("photo", PREPROCESSING.mean, PREPROCESSING.std)
    draws = views.parameters(
        kind, 6, (224, 224), torch.device("cpu"), torch.Generator().manual_seed(1)
    )
    on_gpu = Draws(
        *(None if part is None else type(part)(*(each.cuda() for each in part)) for part in draws)
    )
    cpu, gpu = views.apply(x, draws), views.apply(x.cuda(), on_gpu).cpu()
    assert float(((cpu - gpu).abs() > 0.05).float().mean()) < 0.01  # where rounding decides


@pytest.mark.parametrize("method", ["corr", "cc", "lw", "solar"])
def test_labels_leave_open_sets_alike_in_eager_and_replayed_steps(method):
    x, y = four_squares([80] * 4, seed=0)
    sets = remove_labels(uniform_candidates(y, 4, 0.2, seed=0), y, 0.3, seed=0)
    found = {}
    for engine in ("eager", "captured"):
        model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(16,))
        how = {
            "epochs": 30,
            "batch_size": 64,
            "lr": 0.05,
            "device": "cuda",
            "truth_missing": [0.3, 0.4, 0.3, 0.2, 0.1],
        }
        trainer = PartialLabelTrainer(
            model, METHODS[method](), views=Views(weak=(Jitter(0.0),)), engine=engine, **how
        ).fit(x, sets)
        found[engine] = trainer.targets.labels().cpu()
    lost = ~sets.contains(torch.from_numpy(y))
    assert (found["captured"][lost] == torch.from_numpy(y)[lost]).float().mean() > 0.2
    assert (found["captured"] == found["eager"]).float().mean() > 0.95
