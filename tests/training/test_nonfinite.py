import math

import pytest
import torch
from torch import nn

from ltpll.errors import NotFiniteError
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.methods.proden import PRODEN
from ltpll.rebalancers import REBALANCERS
from ltpll.training.callbacks import Checkpoint
from ltpll.training.checkpoint import read_checkpoint
from ltpll.training.nonfinite import (
    SkipNonFinite,
    StopOnNonFinite,
    all_finite,
    marks_of_rows,
)
from support.refusals import refusal
from support.toy_training import assert_same, classifier, everything, toy, trainer

BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", [*BAD, 3e38])
@pytest.mark.parametrize("part", [0, 1])
def test_rows_with_a_number_that_is_not_finite_are_found_and_large_ones_are_not(value, part):
    parts = [torch.full((5, 3), 3e38), torch.full((5, 4), -3e38)]
    parts[part][2, 1] = value
    copies = [each.clone() for each in parts]
    expected = [
        not all(math.isfinite(v) for part in parts for v in part[row].tolist()) for row in range(5)
    ]
    assert marks_of_rows(parts)[:, 0].isnan().tolist() == expected
    for each, copy in zip(parts, copies, strict=True):
        torch.testing.assert_close(
            each, copy, equal_nan=True, rtol=0, atol=0
        )  # they are only looked at


@pytest.mark.parametrize("value", BAD)
def test_tensors_are_finite_only_if_every_number_is(value):
    good = [
        torch.ones(3),
        torch.tensor(2.0),
        torch.zeros(0),
        torch.arange(3),
        torch.full((2, 2), 3e38),
    ]
    assert all_finite(good)
    assert all_finite([])
    assert not all_finite([*good, torch.tensor([0.0, value])])


def test_a_watch_names_the_rows_of_a_step_or_of_a_loss_that_is_not_finite():
    watch = StopOnNonFinite(0.25, torch.device("cpu"))
    good, index = [torch.ones(2, 3)], torch.tensor([4, 1])
    watch.reset(6)
    watch.start_epoch(6)
    watch.observe(index, good, torch.tensor(1.0))
    watch.check(3)
    watch.observe(index, good, torch.tensor(math.nan))
    with pytest.raises(
        NotFiniteError,
        match=r"or the loss are not finite in epoch 3, step 8, for rows 1, 4: "
        r"lower the learning rate \(now 0.25\)",
    ) as error:
        watch.check(3)
    assert (error.value.epoch, error.value.step, error.value.rows) == (3, 8, (1, 4))


@pytest.mark.parametrize("start", [0, 3])
def test_a_watch_remembers_the_first_bad_step_and_its_rows(start):
    watch = StopOnNonFinite(0.25, torch.device("cpu"))
    watch.reset(6)
    watch.start_epoch(start)
    for index, rows in (([0, 1], [False, False]), ([2, 3], [False, True]), ([4, 5], [True, True])):
        watch.observe(
            torch.tensor(index),
            [torch.where(torch.tensor(rows), math.nan, 1.0)[:, None]],
            torch.tensor(math.nan if any(rows) else 1.0),
        )
    with pytest.raises(NotFiniteError) as error:
        watch.check(2)
    assert (error.value.epoch, error.value.step, error.value.rows) == (2, start + 2, (3,))


@pytest.mark.parametrize("resumed", [False, True])
def test_a_training_that_is_not_looked_at_after_every_step_names_the_first_bad_one_all_the_same(
    resumed, tmp_path
):
    x, _, candidates = toy()
    expected = refusal(lambda: breaking(call=7).fit(x, candidates), NotFiniteError)
    one = breaking(call=7)
    one.prepare(x, candidates)
    one.train_epoch()
    if resumed:
        one.train_epoch(interrupted=lambda: True)
        one.save(tmp_path / "checkpoint")
        one = breaking(call=2)  # its second step is the third of the epoch
        one.prepare(x, candidates)
        one.load(tmp_path / "checkpoint")
    check, one._nonfinite.check = one._nonfinite.check, lambda epoch: None
    one.train_epoch()
    assert refusal(lambda: check(one.epoch), NotFiniteError) == expected
    assert ", step 3, " in expected


class Parts(nn.Module):
    """A weight that is trained, one that follows it, and a buffer."""

    def __init__(self):
        super().__init__()
        self.trained = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.follows = nn.Parameter(torch.tensor([1.0, 2.0]), requires_grad=False)
        self.register_buffer("count", torch.tensor(3))
        self.targets = torch.tensor([[0.5], [0.25]])

    def forward(self, factor):
        with torch.no_grad():
            self.follows += self.trained
            self.count += 1
        return (self.trained * factor).sum()


def guarded_step(parts, optimizer, guard, factor, rows=None, loss=None):
    """Run one guarded step, which also changes a target, and return whether it counted."""
    skipped_before = int(guard.n_skipped)

    def step(index, views):
        result = parts(factor)
        parts.targets[index] = parts.targets[index] + 1
        outputs = torch.where(
            torch.zeros(2, dtype=torch.bool) if rows is None else rows, math.inf, 0.0
        )[:, None]
        guard.observe(index, [outputs], result if loss is None else loss)
        optimizer.zero_grad()
        result.backward()
        optimizer.step()
        return result.detach()

    guard.guard(step, parts.targets)(torch.tensor([1]), ())
    return int(guard.n_skipped) == skipped_before


def guarded(fused):
    parts = Parts()
    optimizer = torch.optim.SGD(
        [parts.trained], lr=0.1, momentum=0.9, weight_decay=0.01, fused=fused
    )
    return parts, optimizer, SkipNonFinite([parts], optimizer, torch.device("cpu"))


def state_of(parts, optimizer):
    state = {
        **parts.state_dict(),
        "targets": parts.targets,
        **{str(key): value for state in optimizer.state.values() for key, value in state.items()},
    }
    return {name: value.clone() for name, value in state.items() if value is not None}


@pytest.mark.parametrize(
    "bad",
    [
        {"factor": torch.tensor([1.0, math.inf])},  # loss and gradients
        {"factor": torch.ones(2), "loss": torch.tensor(math.nan)},
        {"factor": torch.ones(2), "rows": torch.tensor([False, True])},
        {"factor": torch.tensor([1.0, math.nan]), "loss": torch.tensor(1.0)},  # gradients alone
    ],
    ids=["all", "loss", "rows", "gradients"],
)
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_with_something_not_finite_changes_neither_weights_momenta_buffers_nor_what_follows(
    bad, fused
):
    parts, optimizer, guard = guarded(fused)
    assert guarded_step(parts, optimizer, guard, torch.ones(2))
    before = state_of(parts, optimizer)
    assert not guarded_step(parts, optimizer, guard, **bad)
    after = state_of(parts, optimizer)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert int(guard.n_skipped) == 1


@pytest.mark.parametrize("fused", [False, True])
def test_a_finite_step_is_the_same_with_a_guard_and_without(fused):
    parts, optimizer, guard = guarded(fused)
    plain = Parts()
    plain_optimizer = torch.optim.SGD(
        [plain.trained], lr=0.1, momentum=0.9, weight_decay=0.01, fused=fused
    )
    for factor in (torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])):
        guarded_step(parts, optimizer, guard, factor)
        plain.targets[1] += 1
        plain_optimizer.zero_grad()
        plain(factor).backward()
        plain_optimizer.step()
    ours, theirs = state_of(parts, optimizer), state_of(plain, plain_optimizer)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert int(guard.n_skipped) == 0


# ---- in a training -------------------------------------------------------------------------------


class Breaks(nn.Module):
    """A layer that says what is not finite of one row in its `call`-th forward pass, or leaves
    such gradients there."""

    def __init__(self, call, value=math.nan, gradients=False):
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 8), nn.BatchNorm1d(8)
        self.call, self.value, self.gradients = call, value, gradients
        self.calls = 0

    def forward(self, x):
        out = self.norm(self.linear(x))
        if not torch.is_grad_enabled():  # a network that follows, or a look at the training set
            return out
        self.calls += 1
        if self.calls == self.call:
            out = out.clone()
            if self.gradients:
                out.register_hook(lambda gradient: gradient * self.value)
            else:
                out[5] = self.value
        return out


def breaking(method="proden", *parts, call=6, how=None, **options):
    """Four steps an epoch, one forward pass each: by default the second step of the second epoch
    breaks."""
    return trainer(method, *parts, model=classifier(Breaks(call, **(how or {}))), **options)


def test_logits_that_are_not_finite_stop_training_with_epoch_step_and_rows(tmp_path):
    x, _, candidates = toy()
    where = (
        r"epoch 2, step 2, for row \d+: lower the learning rate \(now 0.1\), "
        r"look for extreme values in these rows, or .*\.$"
    )
    with pytest.raises(NotFiniteError, match=where) as error:
        breaking().fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert (error.value.epoch, error.value.step, len(error.value.rows)) == (2, 2, 1)
    good = breaking()
    good.prepare(x, candidates)
    good.load(tmp_path / "checkpoint")  # the last good state was kept
    assert good.epoch == 1
    assert all_finite(everything(good).values())


def test_a_loss_that_is_not_finite_stops_training_though_all_logits_are(tmp_path):
    class Sour(PRODEN):
        steps = 0

        def loss(self, *arguments):
            self.steps += 1
            return super().loss(*arguments) * (math.inf if self.steps == 7 else 1)

    x, _, candidates = toy()
    with pytest.raises(
        NotFiniteError, match=r"the loss are not finite in epoch 2, step 3, for rows (\d+, ){5}…: "
    ) as error:
        trainer(Sour()).fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert len(error.value.rows) == 32
    assert read_checkpoint(tmp_path / "checkpoint")[1]["epoch"] == 1


def test_targets_that_are_not_finite_stop_training_though_logits_and_loss_are():
    class Confused(PRODEN):
        def disambiguate(self, outputs, targets, candidates):
            refined = super().disambiguate(outputs, targets, candidates)
            refined[7] = math.nan
            return refined

    x, _, candidates = toy()
    with pytest.raises(
        NotFiniteError,
        match=r"the targets or the loss are not finite in epoch 2, step 1, for row \d+: ",
    ) as error:
        trainer(Confused()).fit(x, candidates)
    assert len(error.value.rows) == 1


@pytest.mark.parametrize("checkpointed", [True, False])
def test_weights_that_the_last_step_of_an_epoch_spoils_are_neither_written_nor_handed_out(
    tmp_path, checkpointed
):
    """Loss and logits of that step are finite; only its gradients are not."""
    x, _, candidates = toy()
    path = tmp_path / "checkpoint"
    one = breaking(call=12, how={"gradients": True, "value": math.inf})
    with pytest.raises(NotFiniteError, match=r"^The weights.* are not finite in epoch 3: "):
        one.fit(x, candidates, [Checkpoint(path)] if checkpointed else [])
    if checkpointed:
        assert read_checkpoint(path)[1]["epoch"] == 2


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_predictions_that_are_not_finite_stop_training_though_all_weights_are(on_nan):
    """One step an epoch, finite in itself, that leaves weights of 1e30."""
    x, y, candidates = toy()
    one = trainer(lr=1e30, batch_size=200, on_nan=on_nan)
    with pytest.raises(
        NotFiniteError,
        match=r"^The network's predictions of test examples are not finite in epoch 1: ",
    ) as error:
        one.fit(x, candidates, [Evaluate(x, y, y)])
    assert error.value.epoch == 1
    assert all_finite(one.model.parameters())


def test_an_unknown_way_to_treat_what_is_not_finite_is_refused():
    assert (
        refusal(lambda: trainer(on_nan="ignore")) == "on_nan is 'ignore': choose 'stop' or 'skip'."
    )


@pytest.mark.parametrize(("method", "rebalancer", "extras"), [
    *((method, "none", ()) for method in METHODS),
    ("corr", "records", ("mixup", "paco", "bcl")),
    ("proden", "epoch-records", ("sfn", "ldd")),
])  # fmt: skip
@pytest.mark.parametrize(
    "how", [{}, {"value": math.inf}, {"gradients": True}], ids=["nan", "infinity", "gradients"]
)
def test_a_skipped_batch_changes_nothing_and_is_counted(method, rebalancer, extras, how):
    """Networks, momenta, targets, batch norm, F, queues, prototypes and networks that follow,
    compared around the third step."""
    x, _, candidates = toy()
    part = REBALANCERS.create(rebalancer, {"n_features": 8, "n_classes": 4})
    one = breaking(
        method, part, [EXTRAS[name]() for name in extras], call=0, how=how, on_nan="skip", epochs=4
    )
    one.prepare(x, candidates)
    for _ in range(2):  # SoLar starts anew after the first
        one.train_epoch()
    layer = next(module for module in one.model.modules() if isinstance(module, Breaks))
    seen = []

    def look():
        seen.append((int(one.state.n_skipped), everything(one)))
        if len(seen) == 2:
            layer.call = layer.calls + 1
        return False

    record = one.train_epoch(look)
    assert record["skipped"] == 1
    assert [dropped for dropped, _ in seen] == [0, 0, 1, 1]
    (_, before), (_, after), (_, later) = seen[1:]
    assert_same(after, before)
    changed = {
        name.split(".")[0]
        for name, tensor in before.items()
        if not torch.equal(later[name], tensor)
    }
    assert {"model", "optimizer", "targets"} <= changed
    assert math.isfinite(record["loss"])
    assert one.train_epoch()["skipped"] == 0


def test_skipping_changes_nothing_where_everything_is_finite():
    x, _, candidates = toy()
    stops, skips = (
        trainer("corr", REBALANCERS["records"](), [EXTRAS["mixup"]()], on_nan=on_nan).fit(
            x, candidates
        )
        for on_nan in ("stop", "skip")
    )
    assert [record.pop("skipped") for record in skips.history] == [0, 0, 0]
    assert skips.history == stops.history
    assert_same(everything(skips), everything(stops))


def test_the_loss_of_an_epoch_is_the_mean_over_the_batches_that_were_not_dropped():
    losses = []

    class Told(PRODEN):
        def loss(self, *arguments):
            losses.append(super().loss(*arguments))
            return losses[-1]

    x, _, candidates = toy()
    one = breaking(Told(), call=3, on_nan="skip", epochs=1).fit(x, candidates)
    kept = [float(loss.detach()) for number, loss in enumerate(losses) if number != 2]
    assert one.history[0]["loss"] == pytest.approx(sum(kept) / 3)


def test_what_was_dropped_before_a_pause_is_counted_behind_it(tmp_path):
    x, _, candidates = toy()
    whole = breaking(call=2, on_nan="skip").fit(x, candidates)
    first = breaking(call=2, on_nan="skip")
    first.prepare(x, candidates)
    while first.state.batches.step < 3:
        first.train_epoch(interrupted=lambda: True)
    first.save(tmp_path / "checkpoint")
    second = breaking(call=0, on_nan="skip").fit(
        x, candidates, [Checkpoint(tmp_path / "checkpoint")]
    )
    assert [record["skipped"] for record in second.history] == [1, 0, 0]
    assert second.history == whole.history
    breaking(call=0, on_nan="stop").fit(
        x, candidates, [Checkpoint(tmp_path / "checkpoint")]
    )  # the choice may change on the way


def test_dropping_every_batch_of_an_epoch_stops_training_all_the_same():
    x, _, candidates = toy()
    with pytest.raises(
        NotFiniteError,
        match=r"^In all 4 batches .* not finite in epoch \d+: "
        r"lower the learning rate \(now 1e\+30\)",
    ):
        trainer(lr=1e30, on_nan="skip", epochs=5).fit(x, candidates)
