"""Committee job: what `CleaningJob` does with one classifier, with a committee."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from ltpll.cleaning.cleaning_job import Cleaned, TrainedRows, cleaned_by, decide_once
from ltpll.cleaning.dataset import Examples
from ltpll.committee import Committee
from ltpll.evaluation.set_information import set_information_by_class
from ltpll.evaluation.set_predictions import SetPredictions, predict_sets
from ltpll.interfaces import Goal
from ltpll.missing_share import AUTO, missing_parts
from ltpll.priors import estimate_prior
from ltpll.runs.environment import environment
from ltpll.runs.recording import round_floats
from ltpll.runs.run import Record, Run
from ltpll.training.callbacks import Callback, Progress
from ltpll.training.job import Stage
from ltpll.validation import chosen_device


class CommitteeJob:
    """All that is computed to clean labels with a committee.

    Its cross-validation weighs the members and predicts every row out of fold.

    Args:
        committee: A committee that is not fitted, which `run` fits and calibrates.
        examples: The examples, with features.
        workers: How many networks are trained in parallel on a CPU; None decides by the amount of
            work and the machine.
        progress: Reports the progress of all training runs.

    Raises:
        InputError: The examples cannot be trained on.
    """

    def __init__(
        self,
        committee: Committee,
        examples: Examples,
        *,
        workers: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.committee, self.examples = committee, examples
        self.trained = TrainedRows.of(examples)
        sets = self.trained.sets
        self.training = committee.prepare_training(self.trained.x, sets)
        goal: Any = committee.goal
        self.evaluation = self.trained.evaluation(examples, goal)
        self._progress = progress or Progress(write=lambda line: None)
        asks = committee.truth_missing == AUTO
        missing = missing_parts(committee.base_classifier(), sets) if asks else []
        self._stages = {"missing": Stage(missing), "members": self.training.stage(workers)}

    def run(
        self,
        folder: Path,
        *,
        run: Run | None = None,
        callbacks: Sequence[Callback] = (),
        on_choice: Callable[[str], None] = lambda sentence: None,
    ) -> Cleaned:
        """Train all members, predict every row, and judge labels and sets.

        Args:
            folder: Where finished runs of members are kept, so that an interrupted job is resumed.
            run: The run of that folder, if it has one, whose log gets a record of each member.
            callbacks: Ignored: they are for a single training run.
            on_choice: Called with each sentence about what was chosen.
        """
        committee, examples, trained = self.committee, self.examples, self.trained
        began, progress = time.monotonic(), self._progress
        progress.plan_stages(list(self._stages.values()))
        parts = {name: stage.parts for name, stage in self._stages.items()}
        decide = partial(decide_once, folder, trained.sets, parts, progress, on_choice)
        committee.decide_missing(self.training, decide)
        stage = self._stages["members"]
        committee.take_over(self.training.run(folder, stage, progress), self.training)
        on_choice(committee.choice_)
        if run is not None:
            for name, weight in committee.weights_.items():
                run.log({"member": name, "weight": weight})
        self._seconds = time.monotonic() - began
        sets, goal = examples.candidates, committee.goal
        committee.set_params(goal="accuracy")
        predictions = predict_sets(committee.predict_proba, examples.x, sets)
        own = predictions.select(trained.rows)
        seen = SetPredictions.of(torch.from_numpy(committee.out_of_fold_), trained.sets)
        predictions.store_rows(trained.rows, seen)
        held_out, by_goal = examples.x[trained.held_out], {}
        for one in get_args(Goal) if len(held_out) else ():
            found = committee.set_params(goal=one).predict_proba(held_out)
            by_goal[one] = torch.from_numpy(found)
        committee.set_params(goal=goal)
        facts: Record = {
            "prior": round_floats(estimate_prior(trained.sets).as_record()),
            "choice": committee.choice_,
            "committee": round_floats(committee.weights_),
            "information": round_floats(committee.information_._asdict()),
            "information_by_class": [
                None if np.isnan(one) else round(one, 6)
                for one in set_information_by_class(committee.out_of_fold_, trained.sets).tolist()
            ],
            "curves": {},
        }
        cleaned = cleaned_by(committee, examples, trained, predictions, own, facts)
        labels = torch.from_numpy(cleaned.labels.label[trained.rows])
        cleaned.facts["last"] = round_floats(self.evaluation.figures(by_goal, labels))
        return cleaned

    def conditions(self, run: Run) -> Record:
        """The hardware, the software and the time of the training, for the record of the run."""
        device = str(chosen_device(self.committee.device))
        workers = self._stages["members"].workers
        about = environment(device) | {"threads": workers}
        return {"environment": about, "seconds": round(self._seconds, 3), "processes": 1}
