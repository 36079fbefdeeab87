"""The progress of a job on the command line: one bar on a terminal, lines in a log file."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from ltpll.cli import progress as module
from ltpll.cli import reading
from ltpll.cli.progress import ProgressBar
from ltpll.training.job import Part, Stage

RECORD = {
    "epoch": 3,
    "loss": 0.25,
    "test": {"accuracy": 0.714, "balanced_accuracy": 0.369},
    "target_recovery": 0.8,
}


def printed(monkeypatch, *, terminal):
    """What is printed about a job of two trainings on a terminal of 80 columns, or elsewhere."""
    now, text = [0.0], io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80, highlight=False)
    monkeypatch.setattr(module, "console", console)
    monkeypatch.setattr(sys.modules["ltpll.cli.console"], "console", console)
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: now[0])
    parts = [Part("training", 4, 100.0), Part("fold 1 of 1", 4, 100.0)]
    progress = ProgressBar()
    progress.plan_stages([Stage(parts[:1]), Stage(parts[1:])])
    for part in parts:
        progress.start_part(part)
        for quarter in range(1, 17):
            now[0] += 1.0
            trainer = SimpleNamespace(
                epoch=quarter // 4,
                epochs=4,
                epochs_done=quarter / 4,
                step_of_epoch=quarter % 4,
                steps_per_epoch=4,
            )
            trainer.threads = SimpleNamespace(number=1)
            if quarter % 4:
                progress.on_step_end(trainer)
            else:
                progress.on_epoch_end(trainer, RECORD if part is parts[0] else {"loss": 1.0})
    with progress:
        pass
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())


def test_a_log_file_gets_whole_lines_of_the_whole_job_and_at_its_end_the_time_of_the_whole_command(
    monkeypatch,
):
    lines = printed(monkeypatch, terminal=False).splitlines()
    figures = "loss 0.250 · accuracy 71.4% · balanced accuracy 36.9% · recovery 80.0%"
    assert lines == [
        "3% · training: epoch 0.2/4",
        f"18% · 26 s left · training: epoch 1.5/4 · {figures}",
        f"34% · 21 s left · training: epoch 2.7/4 · {figures}",
        f"50% · 16 s left · training: epoch 4/4 · {figures}",
        "65% · 11 s left · fold 1 of 1: epoch 1.2/4 · loss 1.000",
        "81% · 6 s left · fold 1 of 1: epoch 2.5/4 · loss 1.000",
        "96% · 1 s left · fold 1 of 1: epoch 3.7/4 · loss 1.000",
        "100% · finished in 32 s · fold 1 of 1: epoch 4/4 · loss 1.000",
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        r"training: epoch 2.7/4 ━\S* 34% · 21 s left",
        "accuracy 71.4% · balanced accuracy 36.9% · recovery 80.0%",
        "100% · finished in 32 s",
    ],
)
def test_a_terminal_gets_a_bar_with_the_time_left_and_figures_that_fit(monkeypatch, wanted):
    monkeypatch.setattr(
        module.rich_progress.Progress, "update", refreshed(module.rich_progress.Progress.update)
    )
    assert re.search(wanted, printed(monkeypatch, terminal=True))


def refreshed(update):
    def updating(self, *args, **fields):
        update(self, *args, **fields)
        self.refresh()

    return updating


def test_reading_and_embedding_say_the_time_left_in_a_log_file(monkeypatch):
    text = io.StringIO()
    console = Console(file=text, force_terminal=False, width=80, highlight=False)
    monkeypatch.setattr(reading, "console", console)
    monkeypatch.setattr(sys.modules["ltpll.cli.console"], "console", console)
    now = [0.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    with reading.reading_progress() as on_progress:
        for done in range(101):
            on_progress("pictures", done, 100)
            now[0] += 0.5
    assert text.getvalue().splitlines() == [
        "reading pictures: 20% · 40 s left",
        "reading pictures: 40% · 30 s left",
        "reading pictures: 60% · 20 s left",
        "reading pictures: 80% · 10 s left",
    ]
