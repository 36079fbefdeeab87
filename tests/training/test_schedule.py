"""The learning rate of every epoch."""

import pytest
import torch

from ltpll.errors import InputError
from ltpll.methods import METHODS
from ltpll.training.callbacks import Callback, Checkpoint
from ltpll.training.trainer import check_milestones, step_rate
from support.toy_training import assert_same, everything, toy, trainer


def multi_step_rates(milestones, n_epochs, start):
    """The rates of torch's own schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=start)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=0.1)
    rates = []
    for _ in range(n_epochs):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("milestones", [(700, 800, 900), (700,), (1, 2, 3)])
def test_steps_are_those_of_torchs_multi_step_schedule(milestones):
    ours = [step_rate(epoch, milestones, 0.01) for epoch in range(1000)]
    assert ours == pytest.approx(multi_step_rates(milestones, 1000, 0.01))


def test_a_training_with_milestones_follows_them_and_records_its_rates():
    x, _, candidates = toy()
    tested = trainer(epochs=5, lr=0.2, milestones=[2, 4]).fit(x, candidates)
    assert [record["lr"] for record in tested.history] == pytest.approx(
        multi_step_rates([2, 4], 5, 0.2)
    )
    assert [group["lr"] for group in tested.optimizer.param_groups] == pytest.approx([0.2 * 0.01])


def test_milestones_count_from_the_restart_of_a_method():
    x, _, candidates = toy()
    tested = trainer(METHODS["solar"](estimation_epochs=3), epochs=7, lr=0.1, milestones=[2]).fit(
        x, candidates
    )
    rates = [record["lr"] for record in tested.history]
    assert rates == pytest.approx([0.1, 0.1, 0.01, *multi_step_rates([2], 4, 0.1)])


def test_a_training_resumes_between_two_milestones(tmp_path):
    class Interrupt(Callback):
        def on_epoch_end(self, trainer, record):
            if trainer.epoch == 3:
                raise KeyboardInterrupt

    x, _, candidates = toy()
    settings = {"epochs": 5, "milestones": [1, 4]}
    whole, resumed = (trainer(**settings) for _ in range(2))
    whole.fit(x, candidates)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        trainer(**settings).fit(x, candidates, [Checkpoint(path), Interrupt()])
    resumed.fit(x, candidates, [Checkpoint(path)])
    assert [record["lr"] for record in resumed.history] == [
        record["lr"] for record in whole.history
    ]
    assert_same(everything(resumed), everything(whole))


@pytest.mark.parametrize(
    "milestones", [(800, 700), (700, 700), (0, 5), (-1,), (1000,), (1.5,), (True,), ("7",)]
)
def test_milestones_that_do_not_increase_within_the_epochs_are_refused(milestones):
    with pytest.raises(
        InputError, match="must be increasing numbers of epochs, at least 1 and below 1000"
    ):
        check_milestones(milestones, 1000)


def test_a_milestone_after_the_last_stage_of_a_method_is_refused():
    with pytest.raises(InputError, match="below 4"):
        trainer(METHODS["solar"](estimation_epochs=3), epochs=7, milestones=[4])
