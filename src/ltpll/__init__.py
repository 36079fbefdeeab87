"""Long-tailed partial label learning: classifiers from candidate labels of imbalanced classes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ltpll.backbones import Backbone as Backbone
    from ltpll.backbones import Embedder as Embedder
    from ltpll.candidates import Candidates as Candidates
    from ltpll.candidates.votes import candidates_from_votes as candidates_from_votes
    from ltpll.cleaner import LabelCleaner as LabelCleaner
    from ltpll.columns import ColumnEncoder as ColumnEncoder
    from ltpll.columns import PiecewiseLinear as PiecewiseLinear
    from ltpll.committee import Committee as Committee
    from ltpll.errors import InputError as InputError
    from ltpll.errors import InputWarning as InputWarning
    from ltpll.errors import NotFiniteError as NotFiniteError
    from ltpll.estimator import PartialLabelClassifier as PartialLabelClassifier
    from ltpll.evaluation.during_training import Evaluate as Evaluate
    from ltpll.evaluation.during_training import best_epoch as best_epoch
    from ltpll.evaluation.metrics import Shots as Shots
    from ltpll.evaluation.scorers import covering_rate as covering_rate
    from ltpll.evaluation.set_information import information_of_sets as information_of_sets
    from ltpll.evaluation.set_information import set_information as set_information
    from ltpll.evaluation.stopping import KeepBestEpoch as KeepBestEpoch
    from ltpll.extras import EXTRAS as EXTRAS
    from ltpll.folds import CandidateKFold as CandidateKFold
    from ltpll.interfaces import Batch as Batch
    from ltpll.interfaces import Extra as Extra
    from ltpll.interfaces import Method as Method
    from ltpll.interfaces import Outputs as Outputs
    from ltpll.interfaces import Rebalancer as Rebalancer
    from ltpll.interfaces import Step as Step
    from ltpll.methods import METHODS as METHODS
    from ltpll.models import MODELS as MODELS
    from ltpll.models import Classifier as Classifier
    from ltpll.models import build_model as build_model
    from ltpll.models import split_head as split_head
    from ltpll.models.finetune import FineTune as FineTune
    from ltpll.priors import PriorEstimate as PriorEstimate
    from ltpll.priors import estimate_prior as estimate_prior
    from ltpll.rebalancers import REBALANCERS as REBALANCERS
    from ltpll.runs.run import Run as Run
    from ltpll.targets import initial_targets as initial_targets
    from ltpll.training.callbacks import Callback as Callback
    from ltpll.training.callbacks import Checkpoint as Checkpoint
    from ltpll.training.callbacks import Progress as Progress
    from ltpll.training.trainer import PartialLabelTrainer as PartialLabelTrainer
    from ltpll.views import Views as Views

    __version__: str

# Imported on first use: torch takes seconds to load, and reports, `--help` and error messages do
# not need it.
_NAMES = {
    "backbones": "Backbone Embedder",
    "candidates": "Candidates",
    "cleaner": "LabelCleaner",
    "columns": "ColumnEncoder PiecewiseLinear",
    "committee": "Committee",
    "errors": "InputError InputWarning NotFiniteError",
    "estimator": "PartialLabelClassifier",
    "evaluation.during_training": "Evaluate best_epoch",
    "evaluation.metrics": "Shots",
    "evaluation.scorers": "covering_rate",
    "evaluation.set_information": "information_of_sets set_information",
    "evaluation.stopping": "KeepBestEpoch",
    "extras": "EXTRAS",
    "folds": "CandidateKFold",
    "interfaces": "Batch Extra Method Outputs Rebalancer Step",
    "methods": "METHODS",
    "models": "Classifier MODELS build_model split_head",
    "models.finetune": "FineTune",
    "priors": "PriorEstimate estimate_prior",
    "rebalancers": "REBALANCERS",
    "runs.run": "Run",
    "candidates.votes": "candidates_from_votes",
    "targets": "initial_targets",
    "training.callbacks": "Callback Checkpoint Progress",
    "training.trainer": "PartialLabelTrainer",
    "views": "Views",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":  # from the git tag when the package was installed; see setup.py
        from importlib import metadata

        try:
            return metadata.version("ltpll")
        except metadata.PackageNotFoundError:  # a source tree on the path
            return "0+unknown"
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
