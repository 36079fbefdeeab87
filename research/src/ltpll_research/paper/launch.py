"""Launches the missing runs of a grid one after the other; a failed run does not stop the rest."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ltpll.errors import BusyError, InputError
from ltpll.runs.run import Run
from ltpll.runs.run_files import RunFile
from ltpll.training.callbacks import Callback
from ltpll_research.benchmark import Experiment, experiment_run, train
from ltpll_research.image_sets.prepared import ImageSet, load_image_set


def launch(
    wanted: Sequence[Experiment],
    root: Path,
    *,
    data_root: Path | None,
    on_start: Callable[[int, Experiment, Run], Sequence[Callback]] | None = None,
    **how: Any,
) -> list[tuple[Experiment, str]]:
    """Train every experiment that is neither finished nor being trained by another process.

    If a run fails, the next one starts. `on_start` returns the callbacks of a run, and `how` are
    further arguments of `train`.

    Returns:
        The experiments that failed, with the reason, which is also written to the run's folder.
    """
    failures = []
    images: dict[str, ImageSet] = {}
    for number, experiment in enumerate(wanted):
        run = experiment_run(root, experiment)
        try:
            run.reopen_if_damaged()
        except BusyError:
            continue
        if run.done:
            continue
        callbacks = on_start(number, experiment, run) if on_start else ()
        try:
            if experiment.data not in images:
                # Only one set is kept in memory.
                images = {experiment.data: load_image_set(experiment.data, data_root)}
            train(run, images[experiment.data], callbacks=callbacks, **how)
        except BusyError:
            continue
        except Exception as error:  # no failure of one run may stop the others
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
            failures.append((experiment, f"{kind}{error}"))
            text = f"{kind}{error}\n\n{traceback.format_exc()}"
            # If the disk is full, which is a common reason, the message on the screen has to do.
            with suppress(OSError):
                (run.folder / RunFile.FAILED).write_text(text, encoding="utf-8")
    return failures
