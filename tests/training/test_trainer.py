import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError, InputWarning
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.interfaces import Method
from ltpll.methods import METHODS
from ltpll.methods.proden import PRODEN
from ltpll.models import Classifier, build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.callbacks import Checkpoint, OnEpoch
from ltpll.training.trainer import PartialLabelTrainer, cosine_rate
from ltpll.views import Jitter, Views
from support.toy_training import assert_same, classifier, everything, toy, trainer

# ---- what a step does ----------------------------------------------------------------------------


class Separately(PRODEN):
    name = "separately"
    views = ("weak", "strong")
    separate_views = True


def norm_classifier():
    return classifier(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU()))


@pytest.mark.parametrize("method", [Separately, METHODS["solar"], METHODS["htc"]])
@pytest.mark.parametrize("extras", [(), ("mixup",)])
def test_separate_views_pass_one_after_the_other_with_statistics_of_their_own(method, extras):
    """Outputs and running statistics are those of a loop over the views, then those of extras."""
    x, _, candidates = toy()
    tested = trainer(method(), extras=[EXTRAS[name]() for name in extras], model=norm_classifier())
    alone, forward, passes = norm_classifier().train(), tested.forward_pass.outputs, []

    def compared(groups, network=None, **how):
        found = forward(groups, network, **how)
        alone.load_state_dict(before)
        for group, outputs in zip(groups, found, strict=True):
            for view, logits, features in zip(group, *outputs, strict=True):
                torch.testing.assert_close((logits, features), alone(view), rtol=0, atol=1e-6)
                passes.append(len(view))
        for name, value in tested.model.state_dict().items():
            torch.testing.assert_close(value, alone.state_dict()[name], rtol=0, atol=1e-6)
            before[name] = value.clone()
        return found

    step = tested.step

    def watched_step(index, views):
        before.update({name: value.clone() for name, value in tested.model.state_dict().items()})
        return step(index, views)

    before = {}
    tested.forward_pass.outputs, tested.step = compared, watched_step
    tested.fit(x, candidates)
    blends = {"separately": 0, "solar": 2, "htc": 4}[tested.method.name]  # in two of three epochs
    assert passes == [32] * 4 * (2 * 3 + blends + 4 * len(extras))


def test_views_of_other_methods_pass_together():
    x, _, candidates = toy()
    tested = trainer("corr", model=norm_classifier(), epochs=1)
    tested.prepare(x, candidates)
    views, alone = tested.draw(torch.arange(32)), norm_classifier().train()
    together, _ = alone(torch.cat(views))
    found = tested._forward([views])[0].logits
    assert torch.equal(torch.cat(found), together)
    assert not torch.allclose(found[0], alone(views[0])[0], atol=1e-3)


def test_a_step_equals_the_algorithm_of_the_paper_written_out():
    """Output, F, loss on the old targets, debiased output, new targets, SGD: recomputed by hand
    for three epochs of whole batches."""
    x, _, candidates = toy()
    n = len(x)
    records = REBALANCERS["records"]()
    # One batch that holds everything: the order within it does not matter, so no knowledge of the
    # trainer's draws is needed.
    tested = trainer("proden", records, batch_size=n, weight_decay=0.01, final_lr_factor=1.0).fit(
        x, candidates
    )

    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,)).double()
    inputs, allowed = torch.from_numpy(x).double(), candidates.dense()
    targets = allowed.double() / allowed.sum(1, keepdim=True)
    mean_feature = torch.zeros(8, dtype=torch.float64)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for epoch in range(3):
        logits, features = model(inputs)
        mean_feature = 0.9 * mean_feature + 0.1 * features.detach().mean(0)
        loss = -(targets * torch.log_softmax(logits, 1)).sum(1).mean()
        model.zero_grad()
        loss.backward()
        if epoch >= 1:
            with torch.no_grad():
                log_prior = torch.log(torch.softmax(model.head(mean_feature), 0) + 1e-9)
                unnormalised = torch.exp(logits - log_prior) * allowed
                targets = unnormalised / unnormalised.sum(1, keepdim=True)
        with torch.no_grad():
            for p, v in zip(model.parameters(), velocity, strict=True):
                v.mul_(0.9).add_(p.grad + 0.01 * p)
                p -= 0.1 * v
    torch.testing.assert_close(
        tested.targets[torch.arange(n)].double(), targets, atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(records.mean_feature.double(), mean_feature, atol=1e-6, rtol=1e-5)
    for got, expected in zip(tested.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.double(), expected, atol=1e-5, rtol=1e-4)


def test_the_weights_of_candidates_act_in_every_refinement():
    """PRODEN with weights, recomputed by hand: targets are the softmax times the weights, and
    start from the weights."""
    x, _, candidates = toy()
    weights = np.random.default_rng(0).random(len(candidates.labels)) + 0.05
    weighted = candidates.with_weights(weights)
    tested = trainer(batch_size=len(x), weight_decay=0.0, final_lr_factor=1.0, momentum=0.0).fit(
        x, weighted
    )

    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,)).double()
    known = torch.zeros(len(x), 4, dtype=torch.float64)
    flat = iter(weights)
    for i in range(len(x)):
        for label in candidates.row(i):
            known[i, label] = next(flat)
    targets = known / known.sum(1, keepdim=True)
    for epoch in range(3):
        logits = model(torch.from_numpy(x).double())[0]
        loss = -(targets * torch.log_softmax(logits, 1)).sum(1).mean()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            if epoch >= 1:
                targets = torch.exp(logits) * known
                targets = targets / targets.sum(1, keepdim=True)
            for p in model.parameters():
                p -= 0.1 * p.grad
    torch.testing.assert_close(
        tested.targets[torch.arange(len(x))].double(), targets, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("method", METHODS)
def test_no_method_forgets_what_was_known_about_the_candidates(method):
    """The features say nothing, so the weights decide, and equal weights change nothing."""
    _, y, candidates = toy()
    x = np.random.default_rng(0).normal(0, 1e-3, (len(y), 2)).astype(np.float32)
    flat = candidates.labels.long()
    owners = torch.arange(len(y)).repeat_interleave(candidates.sizes.long())
    favoured = torch.where(flat == torch.from_numpy(y)[owners], 20.0, 1.0)
    options = {"epochs": 15, "lr": 0.02}
    labels = (
        trainer(method, **options)
        .fit(x, candidates.with_weights(favoured))
        .targets.labels()
        .numpy()
    )
    ambiguous = candidates.sizes.numpy() > 1
    assert (labels == y)[ambiguous].mean() > 0.95
    plain, equal = (
        trainer(method).fit(x, sets).targets.values
        for sets in (candidates, candidates.with_weights(torch.ones(len(flat))))
    )
    torch.testing.assert_close(plain, equal, atol=1e-5, rtol=1e-4)


def test_targets_stay_uniform_during_the_warm_up_epoch():
    x, _, candidates = toy()
    allowed = candidates.dense().float()
    one = trainer(rebalancer=REBALANCERS["records"](), epochs=1).fit(x, candidates)
    torch.testing.assert_close(
        one.targets[torch.arange(len(x))], allowed / allowed.sum(1, keepdim=True)
    )
    assert one.rebalancer.mean_feature.any()  # F is fed from the first step on all the same
    two = trainer(epochs=1, warmup_epochs=0).fit(x, candidates)
    assert not torch.allclose(
        two.targets[torch.arange(len(x))], allowed / allowed.sum(1, keepdim=True)
    )


@pytest.mark.parametrize("method", ["solar", "htc", "pico", "corr"])
def test_solar_and_htc_refine_targets_from_the_first_epoch_on_and_others_do_not(method):
    x, _, candidates = toy()
    allowed = candidates.dense().float()
    tested = trainer(method, epochs=1).fit(x, candidates)
    moved = (
        tested.targets[torch.arange(len(x))] - allowed / allowed.sum(1, keepdim=True)
    ).abs().amax(1) > 1e-6
    ambiguous = candidates.sizes > 1
    rows = torch.zeros(len(x), dtype=torch.bool).index_fill_(
        0, rows_of_the_epoch(method, x, candidates), True
    )
    assert torch.equal(moved, ambiguous & rows & (method in ("solar", "htc")))


@pytest.mark.parametrize("method", ["pico", "proden"])
def test_the_loss_is_on_refined_targets_for_methods_that_learn_them_and_on_old_ones_for_others(
    method,
):
    x, _, candidates = toy()
    tested = trainer(method, warmup_epochs=0, drop_last=False)
    seen, made = [], []
    loss, refined = tested.method.step_loss, tested.method.refined_targets
    tested.method.step_loss = lambda step: [seen.append(step.batch.targets), loss(step)][1]
    tested.method.refined_targets = lambda step: (
        made.append((step.batch.targets, refined(step))) or made[-1][1]
    )
    tested.fit(x, candidates)
    assert len(seen) == len(made) == 3 * math.ceil(len(x) / 32)
    for used, (before, after) in zip(seen, made, strict=True):
        assert not torch.equal(before, after)
        torch.testing.assert_close(used, after if method == "pico" else before, rtol=0, atol=0)


def rows_of_the_epoch(method, x, candidates):
    """The rows that the first epoch trains on; the last partial batch is dropped."""
    same = trainer(method, epochs=1)
    same.prepare(x, candidates)
    return torch.cat([index for index, _ in same.state.batches.batches(same.draw)])


def test_a_method_that_restarts_refines_targets_in_the_first_epoch_of_each_stage():
    x, _, candidates = toy()
    tested = trainer(METHODS["solar"](estimation_epochs=1), epochs=2).fit(x, candidates)
    allowed = candidates.dense().float()
    assert not torch.allclose(
        tested.targets[torch.arange(len(x))], allowed / allowed.sum(1, keepdim=True)
    )


def test_the_last_partial_batch_is_dropped_or_kept_as_asked():
    x, _, candidates = toy()
    for drop_last, sizes in ((True, [64, 64]), (False, [64, 64, 22])):
        one = trainer(batch_size=64, drop_last=drop_last)
        one.prepare(x, candidates)
        batches = [index for index, _ in one.state.batches.batches(one.draw)]
        assert [len(batch) for batch in batches] == sizes
        assert len(torch.cat(batches).unique()) == sum(sizes)


def test_fewer_rows_than_a_batch_make_one_batch_of_all():
    x, _, candidates = toy()
    one = trainer(batch_size=10_000)
    one.prepare(x, candidates)
    assert [len(index) for index, _ in one.state.batches.batches(one.draw)] == [len(x)]


def test_views_of_the_batch_and_of_an_extra_go_through_the_network_in_one_forward():
    calls = []

    class Counting(nn.Module):
        def forward(self, x):
            calls.append(len(x))
            return x

    x, _, candidates = toy()
    model = Classifier(Counting(), nn.Linear(2, 4))
    one = trainer("corr", None, [EXTRAS["mixup"]()], model=model, batch_size=len(x), epochs=2).fit(
        x, candidates
    )
    assert calls == [2 * len(x), 4 * len(x)]  # mixup starts in the second epoch
    assert one.epoch == 2


@pytest.mark.parametrize(("method", "extra", "drawn", "seen"), [
    ("proden", "bcl", ("weak", "strong"), 2),
    ("proden", "paco", ("weak", "strong"), 1),
    ("corr", "bcl", ("weak", "strong"), 2),
    ("pico", "sfn", ("weak", "strong"), 1),
    ("pico", "bcl", ("weak", "strong"), 2),
    ("proden", "sfn", ("weak",), 1),
])  # fmt: skip
def test_views_beyond_the_methods_are_drawn_for_an_extra_and_shown_to_the_network_only_if_it_asks(
    method, extra, drawn, seen
):
    asked, calls = [], []

    class Asked(Views):
        def draw(self, x, kinds, generator):
            asked.append(tuple(kinds))
            return super().draw(x, kinds, generator)

    class Counting(nn.Module):
        def forward(self, x):
            if torch.is_grad_enabled():  # not a network that follows
                calls.append(len(x))
            return x

    x, _, candidates = toy()
    model = Classifier(Counting(), nn.Linear(2, 4))
    views = Asked(strong=(Jitter(0.05),))
    one = trainer(
        method, None, [EXTRAS[extra]()], model=model, batch_size=len(x), epochs=2, views=views
    ).fit(x, candidates)
    assert set(asked) == {drawn}
    assert calls[-1] == seen * len(x)
    assert one.views_per_epoch == METHODS[method]().n_forward_views * len(x)


def test_records_is_fed_by_the_methods_views_and_not_by_those_that_an_extra_adds():
    x, _, candidates = toy()
    model = Classifier(nn.Identity(), nn.Linear(2, 4))
    records = REBALANCERS["records"](momentum=0.0)
    views = Views(strong=(Jitter(5.0),))
    trainer(
        "proden", records, [EXTRAS["bcl"]()], model=model, batch_size=len(x), epochs=2, views=views
    ).fit(x, candidates)
    np.testing.assert_allclose(records.mean_feature.numpy(), x.mean(0), atol=1e-6)


def test_what_parts_draw_when_they_are_attached_comes_from_the_seed():
    def projector(seed):
        extra = EXTRAS["bcl"]()
        trainer(extras=[extra], seed=seed)
        return extra.centres.detach().clone()

    before = torch.get_rng_state()
    assert torch.equal(projector(3), projector(3))
    assert not torch.equal(projector(3), projector(4))
    assert torch.equal(before, torch.get_rng_state())


def test_what_an_extra_brings_is_no_part_of_the_model():
    x, _, candidates = toy()
    names = list(build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,)).state_dict())
    one = trainer("pico", None, [EXTRAS["bcl"](), EXTRAS["paco"](queue=32)]).fit(x, candidates)
    assert list(one.model.state_dict()) == names


def test_records_is_fed_by_the_unmixed_views_only():
    x, _, candidates = toy()
    model = Classifier(nn.Identity(), nn.Linear(2, 4))
    records = REBALANCERS["records"](momentum=0.0)
    trainer("proden", records, [EXTRAS["mixup"]()], model=model, batch_size=len(x), epochs=2).fit(
        x, candidates
    )
    np.testing.assert_allclose(records.mean_feature.numpy(), x.mean(0), atol=1e-6)


def test_the_learning_rate_falls_along_half_a_cosine_and_epochs_record_it():
    assert cosine_rate(0, 800, 0.01, 1e-5) == pytest.approx(0.01)
    assert cosine_rate(400, 800, 0.01, 1e-5) == pytest.approx((0.01 + 1e-5) / 2)
    assert cosine_rate(800, 800, 0.01, 1e-5) == pytest.approx(1e-5)
    x, _, candidates = toy()
    rates = [record["lr"] for record in trainer(epochs=4, lr=0.2).fit(x, candidates).history]
    assert rates == pytest.approx([cosine_rate(epoch, 4, 0.2, 2e-4) for epoch in range(4)])


def test_method_and_rebalancer_are_told_of_every_epoch_in_order():
    told = []

    class Told(PRODEN):
        name = "told"

        def start_epoch(self, epoch, n_epochs):
            told.append(("method starts", epoch, n_epochs))

        def loss(self, *arguments):
            told.append("step")
            return super().loss(*arguments)

        def end_epoch(self, training):
            told.append(
                ("method ends", [len(candidates) for _, candidates in training.plain_outputs()])
            )

    class Hears(REBALANCERS["none"]):
        def start_epoch(self, epoch, n_epochs):
            told.append(("rebalancer starts", epoch, n_epochs))

        def end_epoch(self, training):
            told.append("rebalancer ends")

    x, _, candidates = toy()
    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    PartialLabelTrainer(model, Told(), Hears(), epochs=2, batch_size=100, device="cpu").fit(
        x, candidates
    )
    expected = []
    for epoch in range(2):
        expected += [
            ("method starts", epoch, 2),
            ("rebalancer starts", epoch, 2),
            "step",
            "rebalancer ends",
            ("method ends", [150]),
        ]
    assert told == expected


def test_layers_train_while_training_and_rest_while_predicting():
    modes = []

    class Mode(nn.Module):
        def forward(self, x):
            modes.append(self.training)
            return x

    x, y, candidates = toy()
    model = Classifier(Mode(), nn.Linear(2, 4))
    trainer(model=model, batch_size=100, epochs=2).fit(x, candidates, [Evaluate(x, y, y)])
    assert modes == [True, False, True, False]


def test_views_are_drawn_for_a_chunk_of_whole_batches_at_once():
    drawn = []

    class Counting(Views):
        def draw(self, x, kinds, generator):
            drawn.append(len(x))
            return super().draw(x, kinds, generator)

    x, _, candidates = toy()
    for chunk, sizes in ((1, [32] * 4), (64, [64, 64]), (100, [96, 32]), (4096, [128])):
        drawn.clear()
        one = trainer(views=Counting(), chunk=chunk, epochs=1).fit(x, candidates)
        assert drawn == sizes
        assert one.epoch == 1


def test_images_of_bytes_train_without_image_views_as_the_same_numbers_in_floats_do():
    x, _, candidates = toy()
    pixels = np.random.default_rng(0).integers(0, 256, (len(x), 1, 8, 8)).astype(np.uint8)
    histories = []
    for images in (pixels, pixels.astype(np.float32)):
        model = build_model("small-cnn", 0, n_classes=4, width=4)
        histories.append(trainer("corr", model=model, epochs=2).fit(images, candidates).history)
    assert histories[0] == histories[1]


def test_low_precision_passes_stay_close_to_full_ones_and_give_full_precision_outputs():
    x, _, candidates = toy()
    full, low = (
        trainer(precision=precision, epochs=3).fit(x, candidates)
        for precision in ("float32", "bfloat16")
    )
    assert low.outputs(x).logits[0].dtype == low.outputs(x).features[0].dtype == torch.float32
    assert low.targets.values.dtype == torch.float32
    assert [r["loss"] for r in low.history] == pytest.approx(
        [r["loss"] for r in full.history], rel=0.02
    )
    assert not torch.equal(low.outputs(x).logits[0], full.outputs(x).logits[0])


def test_an_unknown_precision_is_refused():
    with pytest.raises(InputError, match="Unknown precision 'half'"):
        trainer(precision="half")


@pytest.mark.parametrize(
    ("engine", "message"),
    [("captured", "CUDA"), ("compiled", "CUDA"), ("turbo", "Unknown engine 'turbo'")],
)
def test_an_engine_that_cannot_run_here_is_refused(engine, message):
    with pytest.raises(InputError, match=message):
        trainer(engine=engine)


# ---- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_learns_the_squares_when_classes_are_balanced(method):
    x, y = four_squares([100] * 4, seed=0)
    x_test, y_test = four_squares([100] * 4, seed=1)
    candidates = uniform_candidates(y, 4, 0.3, seed=0)
    options = {"lw": {"lr": 2.0, "epochs": 40}}.get(method, {"lr": 0.5, "epochs": 15})
    one = trainer(method, batch_size=64, weight_decay=0.0, **options)
    one.fit(x, candidates, [Evaluate(x_test, y_test, y, every=options["epochs"])])
    assert one.history[-1]["test"]["balanced_accuracy"] > 0.9
    assert one.history[-1]["target_recovery"] > 0.9
    assert (one.predict(x_test) == y_test).mean() == pytest.approx(
        one.history[-1]["test"]["accuracy"]
    )


def test_same_seed_same_records_and_another_seed_others():
    x, y, candidates = toy()

    def history(seed):
        one = trainer("corr", REBALANCERS["records"](), [EXTRAS["mixup"]()], seed=seed)
        return one.fit(x, candidates, [Evaluate(x, y, y)]).history

    assert history(0) == history(0)
    assert history(0) != history(1)


def test_training_neither_uses_nor_changes_the_global_random_state():
    x, _, candidates = toy()
    model = lambda: Classifier(nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5)), nn.Linear(8, 4))  # noqa: E731

    def run(seed_outside):
        torch.manual_seed(0)
        built = model()
        torch.manual_seed(seed_outside)
        before = torch.get_rng_state()
        history = trainer(model=built).fit(x, candidates).history
        assert torch.equal(before, torch.get_rng_state())
        return history

    assert run(1) == run(2)


def test_prediction_subtracts_the_prior_that_training_estimated():
    x, _, candidates = toy()
    records = REBALANCERS["records"]()
    one = trainer(rebalancer=records).fit(x, candidates)
    raw = one.outputs(x).logits[0]
    torch.testing.assert_close(one.logits(x), raw - records.log_prior(one.head))
    assert one.predict(x).tolist() == (raw - records.log_prior(one.head)).argmax(1).tolist()


def test_posthoc_training_is_that_of_none():
    x, y, candidates = toy()
    plain = trainer().fit(x, candidates)
    posthoc = trainer(rebalancer=REBALANCERS["oracle-la-posthoc"](np.bincount(y))).fit(
        x, candidates
    )
    assert torch.equal(plain.targets.values, posthoc.targets.values)
    assert torch.equal(plain.outputs(x).logits[0], posthoc.outputs(x).logits[0])


def test_parameters_of_an_extra_are_trained_too():
    class Weighted(EXTRAS["mixup"]):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def loss(self, *arguments):
            return self.scale * super().loss(*arguments)

    x, _, candidates = toy()
    extra = Weighted()
    trainer(extras=[extra]).fit(x, candidates)
    assert float(extra.scale.detach()) != 1.0


# ---- refusing what makes no sense ----------------------------------------------------------------


def test_a_method_with_its_own_rebalancing_refuses_a_rebalancer_and_says_why():
    class Own(PRODEN):
        name = "own"
        why_no_rebalancer = "it estimates the prior itself."

    model = build_model("mlp", 0, n_inputs=2, n_classes=4)
    with pytest.raises(
        InputError, match=r"'own' cannot be combined with the rebalancer 'records': it estimates"
    ):
        PartialLabelTrainer(model, Own(), REBALANCERS["records"]())
    PartialLabelTrainer(model, Own(), REBALANCERS["none"]())


def test_a_model_without_a_linear_head_is_refused():
    with pytest.raises(InputError, match="split_head"):
        PartialLabelTrainer(nn.Linear(2, 4), METHODS["proden"]())


def of_fixed_size(cls, n_features, n_classes):
    """A rebalancer that ignores the trainer's model."""
    return type(
        "Fixed",
        (cls,),
        {
            "attach": lambda self, model: cls.attach(
                self, Classifier(nn.Identity(), nn.Linear(n_features, n_classes))
            )
        },
    )()


@pytest.mark.parametrize(
    "rebalancer",
    [
        lambda: of_fixed_size(REBALANCERS["records"], 3, 4),
        lambda: REBALANCERS["oracle-la"]([1, 2, 3]),
        lambda: of_fixed_size(REBALANCERS["epoch-records"], 8, 5),
    ],
)
def test_a_rebalancer_made_for_another_model_is_refused(rebalancer):
    with pytest.raises(InputError, match=r"another model or other classes.* has 4 classes"):
        trainer(rebalancer=rebalancer())


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 0), ("batch_size", 0), ("warmup_epochs", -1), ("epochs", 2.5)]
)
def test_an_impossible_setting_is_refused_by_name(name, value):
    with pytest.raises(InputError, match=name):
        trainer(**{name: value})


def test_two_view_methods_without_views_are_warned_of():
    with pytest.warns(InputWarning, match="views"):
        trainer("corr", views=None)


def one_line(error):
    assert "\n" not in str(error.value)
    return True


def broken(x, row, value):
    x = x.copy()
    x[row, 1] = value
    return x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, c: (x[:-1], c), r"149 rows of features but 150 candidate sets"),
        (lambda x, c: (broken(x, 17, np.nan), c), r"Row 17 .*NaN"),
        (lambda x, c: (broken(x, 3, np.inf), c), r"Row 3 .*infinite"),
        (lambda x, c: (np.ones_like(x), c), r"identical"),
        (lambda x, c: (x, [{0, 1}] * len(x)), r"2 classes, but the model's head has 4"),
        (
            lambda x, c: (x, Candidates.of([{0, 1}] * len(x), n_classes=4)),
            r"All 150 rows have the same candidates \(0, 1\)",
        ),
        (lambda x, c: (x[:1], c.select([0])), r"only 1 row"),
        (
            lambda x, c: (x, [set(), *(c.row(i) for i in range(1, len(x)))]),
            r"Row 0 has no candidate",
        ),
    ],
)
def test_training_data_that_cannot_be_used_is_refused_in_one_sentence(change, message):
    x, _, candidates = toy()
    features, sets = change(x, candidates)
    with pytest.raises(InputError, match=message) as error:
        trainer().fit(features, sets)
    assert one_line(error)


def test_a_class_that_is_never_a_candidate_is_warned_of_and_training_goes_on():
    x, _, candidates = toy()
    without_3 = Candidates.of(
        [[label for label in candidates.row(i) if label != 3] or [0] for i in range(len(x))],
        n_classes=4,
    )
    with pytest.warns(InputWarning, match=r"never a candidate \(3\)"):
        done = trainer().fit(x, without_3)
    assert done.epoch == 3
    assert not (done.targets[torch.arange(len(x))][:, 3] > 0).any()


# ---- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "written"), [(0.0, [2, 4, 6, 7]), (3600.0, [2, 7])])
def test_checkpoints_are_written_every_so_many_epochs_and_seconds_and_at_the_end(
    tmp_path, monkeypatch, seconds, written
):
    x, _, candidates = toy()
    one = trainer(epochs=7)
    saved = []
    monkeypatch.setattr(one, "save", lambda path: saved.append(one.epoch))
    one.fit(x, candidates, [Checkpoint(tmp_path / "checkpoint", 2, min_seconds=seconds)])
    assert saved == written


def test_a_finished_checkpoint_trains_no_further(tmp_path):
    x, _, candidates = toy()
    first = trainer().fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    seen = []
    again = trainer().fit(
        x, candidates, [OnEpoch(seen.append), Checkpoint(tmp_path / "checkpoint")]
    )
    assert seen == []
    assert again.history == first.history


def test_a_trainer_that_has_trained_is_not_started_again(tmp_path):
    x, _, candidates = toy()
    one = trainer().fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    kept = one.targets.values.clone()
    with pytest.raises(InputError, match="already trained for 3 epochs"):
        one.fit(x, candidates)
    assert torch.equal(one.targets.values, kept)
    one.fit(
        x, candidates, [Checkpoint(tmp_path / "checkpoint")]
    )  # going on from a checkpoint is no new start
    assert torch.equal(one.targets.values, kept)


def test_measuring_every_k_epochs_always_includes_the_last():
    x, y, candidates = toy()
    history = trainer(epochs=5).fit(x, candidates, [Evaluate(x, y, y, every=2)]).history
    assert [record["epoch"] for record in history if "test" in record] == [2, 4, 5]


def test_a_method_from_outside_the_package_needs_one_class_and_nothing_else():
    class Uniform(Method):
        """Cross-entropy against targets that never move."""

        name = "uniform"

        def loss(self, outputs, targets, candidates):
            return nn.functional.cross_entropy(outputs.logits[0], targets)

        def disambiguate(self, outputs, targets, candidates):
            return targets

    x, _, candidates = toy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = build_model("mlp", 0, n_inputs=2, n_classes=4)
        done = PartialLabelTrainer(model, Uniform(), epochs=2, device="cpu").fit(x, candidates)
    assert done.epoch == 2


# ---- learning rates of single parameters ---------------------------------------------------------


class SlowEncoder(Classifier):
    def lr_factor_of(self, parameter):
        return 1.0 if any(parameter is own for own in self.head.parameters()) else self.factor


def slow(factor):
    plain = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,))
    model = SlowEncoder(plain.encoder, plain.head)
    model.factor = factor
    return model


def test_parameters_with_factor_one_are_trained_as_without_factors():
    x, _, candidates = toy()
    assert_same(
        everything(trainer(model=slow(1.0)).fit(x, candidates)),
        everything(trainer().fit(x, candidates)),
    )


def test_every_group_follows_the_schedule_at_its_own_rate():
    x, _, candidates = toy()
    rates = []
    tested = trainer(model=slow(0.1))
    tested.fit(
        x,
        candidates,
        [
            OnEpoch(
                lambda record: rates.append(
                    [group["lr"] for group in tested.optimizer.param_groups]
                )
            )
        ],
    )
    for epoch, (encoder, head) in enumerate(rates):
        assert head == cosine_rate(epoch, 3, 0.1, 0.1 * 1e-3)
        assert encoder == pytest.approx(0.1 * head)


def test_a_training_with_several_learning_rates_resumes_within_an_epoch(tmp_path):
    x, _, candidates = toy()
    whole = trainer(model=slow(0.2)).fit(x, candidates)
    first = trainer(model=slow(0.2))
    first.prepare(x, candidates)
    first.state.add_record(first.train_epoch())
    assert first.train_epoch(lambda: first.step_of_epoch == 2) is None
    first.save(tmp_path / "checkpoint")
    second = trainer(model=slow(0.2)).fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert_same(everything(second), everything(whole))


# ---- sets that lack the true label ---------------------------------------------------------------


def lacking(seed=0, share=0.3, n=80):
    """Balanced squares, the true label of some of which is not a candidate, and which these are."""
    x, y = four_squares((n,) * 4, seed=seed)
    rng = np.random.default_rng(seed)
    sets = rng.random((len(y), 4)) < 0.2
    lacks = rng.random(len(y)) < share
    sets[np.arange(len(y)), y] = ~lacks
    empty = ~sets.any(1)
    sets[empty, (y[empty] + rng.integers(1, 4, int(empty.sum()))) % 4] = True
    return x, torch.from_numpy(y), Candidates.from_matrix(sets), torch.from_numpy(lacks)


def open_trainer(method, **options):
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(32,))
    return trainer(method, model=model, **{"epochs": 30, "batch_size": 32, "lr": 0.05, **options})


@pytest.mark.parametrize("method", METHODS)
def test_with_every_method_labels_leave_sets_that_lack_the_true_label(method):
    # Averaged targets, and labels in which every candidate counts, take longer to leave a set.
    x, y, sets, lacks = lacking(n=80 if method in ("alim", "dirk", "pico") else 40)
    how = {"epochs": {"papi": 60, "dirk": 120}.get(method, 30)}
    closed = open_trainer(method, **how).fit(x, sets).targets.labels()
    found = open_trainer(method, truth_missing=0.3, **how).fit(x, sets)
    labels = found.targets.labels()
    assert bool(sets.contains(closed).all())
    assert (closed[lacks] == y[lacks]).float().mean() == 0
    assert (labels[lacks] == y[lacks]).float().mean() > 0.3
    assert (labels == y).float().mean() > (closed == y).float().mean()
    torch.testing.assert_close(found.targets.mean().sum(), torch.tensor(1.0))


@pytest.mark.parametrize("method", METHODS)
def test_no_label_leaves_its_set_in_the_first_epoch_however_few_there_are(method):
    x, _, sets, _ = lacking()
    made = open_trainer(method, epochs=3, truth_missing=0.3)
    made.prepare(x, sets)
    assert not made._opens
    made.train_epoch()
    assert bool(sets.contains(made.targets.labels()).all())


@pytest.mark.parametrize("rebalancer", ["records", "anchor", "auto", "mean-target"])
def test_open_sets_work_with_rebalancers_and_extras(rebalancer):
    x, y, sets, lacks = lacking(n=40)
    made = open_trainer(
        "corr",
        rebalancer=REBALANCERS[rebalancer](),
        extras=[EXTRAS["mixup"](), EXTRAS["balanced-head"]()],
        truth_missing=0.3,
    )
    labels = made.fit(x, sets).targets.labels()
    assert (labels[lacks] == y[lacks]).float().mean() > 0.3


@pytest.mark.parametrize("method", ["corr", "lw", "htc"])
def test_a_training_with_open_sets_resumes_bit_for_bit(method, tmp_path):
    x, _, sets, _ = lacking()

    def made():
        return open_trainer(method, epochs=6, truth_missing=[0.3, 0.3, 0.2, 0.1, 0.0])

    whole = made().fit(x, sets)

    def stop(record):
        if record["epoch"] == 5:
            raise KeyboardInterrupt  # the checkpoint of the fourth epoch is there

    with pytest.raises(KeyboardInterrupt):
        made().fit(x, sets, [Checkpoint(tmp_path / "c"), OnEpoch(stop)])
    rest = made().fit(x, sets, [Checkpoint(tmp_path / "c")])
    assert_same(everything(rest), everything(whole))


def test_without_missing_labels_nothing_changes():
    x, _, sets = toy()
    assert_same(
        everything(trainer("corr", truth_missing=[0.0] * 5).fit(x, sets)),
        everything(trainer("corr").fit(x, sets)),
    )
