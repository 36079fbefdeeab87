"""State per example: what a method keeps for each row is found, restored and shared like all state,
and labels that it rules out are no candidates any more."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll import PartialLabelClassifier
from ltpll.methods import METHODS
from ltpll.training.callbacks import Checkpoint
from support.purifying import LEAST, Purifying
from support.toy_training import assert_same, everything, toy, trainer


def purifying(**options):
    return trainer(Purifying(), views=None, **options)


def prepared(**options):
    x, _, candidates = toy()
    made = purifying(**options)
    made.prepare(x, candidates)
    return made


def test_a_step_knows_which_rows_of_the_training_data_it_has():
    made, seen = prepared(drop_last=False), []
    step_loss = made.method.step_loss

    def watched(step):
        assert torch.equal(step.batch.views[0], made.x[step.rows])
        seen.extend(step.rows.tolist())
        return step_loss(step)

    made.method.step_loss = watched
    made.train_epoch()
    assert sorted(seen) == list(range(len(made.x)))
    assert made.method.times_seen.tolist() == [1] * len(made.x)


def test_the_state_of_each_row_is_that_of_a_plain_loop():
    """The losses of the last batch are those of the network before its step."""
    made = prepared()
    before, step = {}, made.step

    def noting(index, views):
        before["logits"] = made.model(made.x[index])[0].detach()
        before["targets"] = made.targets[index].clone()
        before["rows"] = index.clone()
        return step(index, views)

    made._runner.step = noting
    made.train_epoch()
    losses = [
        float(cross_entropy(before["logits"][i : i + 1], before["targets"][i : i + 1]))
        for i in range(len(before["rows"]))
    ]
    assert made.method.last_loss[before["rows"]].tolist() == pytest.approx(losses, rel=1e-5)


def test_labels_that_are_ruled_out_never_return():
    made = prepared(epochs=8, lr=0.5)
    rows = torch.arange(len(made.x))
    given = made.candidates[rows]
    remaining, targets = given.clone(), torch.zeros(0)
    step_loss, end_epoch = made.method.step_loss, made.method.end_epoch

    def watched_loss(step):
        assert torch.equal(step.batch.candidates, remaining[step.rows])
        assert not (step.batch.targets * ~step.batch.candidates).any()
        return step_loss(step)

    def watched_end(training):
        nonlocal targets
        targets = training.targets[rows].clone()
        end_epoch(training)

    made.method.step_loss, made.method.end_epoch = watched_loss, watched_end
    for _ in range(8):
        made.train_epoch()
        for i, row in enumerate(targets):
            for j in range(4):
                if row[j] < LEAST * max(row):
                    remaining[i, j] = False
    assert 0 < int((given & ~remaining).sum()) < int(given.sum()) - len(rows)
    shown = torch.cat([candidates for _, candidates in made.plain_outputs()])
    assert torch.equal(shown, remaining)
    final = made.final_targets()[rows]
    assert not (final * ~remaining).any()
    torch.testing.assert_close(final.sum(1), torch.ones(len(rows)))


@pytest.mark.parametrize("steps", [4, 6], ids=["between epochs", "in an epoch"])
def test_a_resumed_training_ends_like_an_undisturbed_one(tmp_path, steps):
    x, _, candidates = toy()
    whole = purifying().fit(x, candidates)
    first, taken = prepared(), 0

    def pause():
        nonlocal taken
        taken += 1
        return taken == steps

    while taken < steps:
        record = first.train_epoch(pause)
        first.history.extend([record] if record else [])
    first.save(tmp_path / "checkpoint")
    second = purifying().fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert_same(everything(second), everything(whole))
    assert not whole.method.remaining.all()
    assert int(whole.method.times_seen.sum()) == 3 * 4 * 32


def test_a_dropped_batch_leaves_the_state_of_its_rows():
    x, _, candidates = toy()
    bad = []

    class Once(Purifying):
        def step_loss(self, step):
            loss = super().step_loss(step)
            if not bad and self.times_seen.sum() == 2 * 32:
                bad.extend(step.rows.tolist())
                loss = loss * torch.inf
            return loss

    made = trainer(Once(), views=None, on_nan="skip", epochs=1).fit(x, candidates)
    assert made.history[0]["skipped"] == 1
    assert len(bad) == 32
    assert not made.method.times_seen[bad].any()
    assert not made.method.last_loss[bad].any()
    assert int(made.method.times_seen.sum()) == 3 * 32


def test_a_saved_classifier_has_no_state_of_training_rows(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS._classes, Purifying.name, Purifying)
    x, _, candidates = toy()
    fitted = PartialLabelClassifier(method="purifying", rebalancer="none", epochs=2)
    fitted.fit(x, candidates)
    fitted.save(tmp_path / "model")
    assert not [name for name in fitted.content()[0] if name.startswith("method.")]
    loaded = PartialLabelClassifier.load(tmp_path / "model")
    assert (loaded.predict(x) == fitted.predict(x)).all()
