"""Many runs: what commands share that train several experiments one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltpll.cli.console import print_line

if TYPE_CHECKING:
    from ltpll.runs.run import Run
    from ltpll.training.callbacks import Callback
    from ltpll_research.benchmark import Experiment


def train_missing(
    missing: Sequence[Experiment],
    out: Path,
    data_root: Path | None,
    *,
    tensorboard: bool = False,
    **how: Any,
) -> int:
    """Train experiments, and return how many failed; `how` are arguments of `train`."""
    from ltpll.cli.progress import ProgressBar
    from ltpll.training.job import Part, Stage
    from ltpll_research.paper.launch import launch
    from ltpll_research.recording import TensorBoardEvents

    progress = ProgressBar()
    runs = enumerate(missing, 1)
    parts = [Part(f"run {number} of {len(missing)}", one.epochs) for number, one in runs]

    def watch(number: int, experiment: Experiment, run: Run) -> Sequence[Callback]:
        print_line(f"[{number + 1}/{len(missing)}] {name_of(experiment)}  {run.folder}")
        events = [TensorBoardEvents(run)] if tensorboard else []
        return [progress.start_part(parts[number]), *events]

    with progress:
        progress.plan_stages([Stage(parts)])
        failures = launch(missing, out, data_root=data_root, on_start=watch, **how)
    for experiment, reason in failures:
        print_line(f"failed: {name_of(experiment)}: {reason}")
    return len(failures)


def name_of(experiment: Experiment) -> str:
    """An experiment in words: its problem, its parts, and the settings that are not the usual."""
    from ltpll_research.paper.catalog import column_label, row_label

    setting = {"data": experiment.data, "superclass": experiment.superclass}
    if experiment.data != "voc2007":
        setting |= {"imbalance": experiment.imbalance, "ambiguity": experiment.ambiguity}
    words = row_label(experiment.method, experiment.rebalancer, "", experiment.extras)
    words += "".join(f" {part} {dict(values)}" for part, values in experiment.options.items())
    said = {*setting, "content", "method", "rebalancer", "extras", "options", "precision", "seed"}
    for one in fields(experiment):
        value = getattr(experiment, one.name)
        if one.name not in said | {"milestones"} and value != one.default:
            words += f", {one.name} {value}"
    return f"{column_label(setting)}, {words}, seed {experiment.seed}"
