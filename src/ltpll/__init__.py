"""Long-tailed partial label learning: classifiers from sets of candidate labels when classes are imbalanced."""

from __future__ import annotations

from ltpll.candidates import Candidates
from ltpll.contract import Batch, Extra, Method, Outputs, Rebalancer
from ltpll.errors import InputError, InputWarning, NotFiniteError
from ltpll.evaluate import Shots, Truth, best_epoch, evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import MODELS, Classifier, build_model, split_head
from ltpll.rebalancers import REBALANCERS
from ltpll.targets import initial_targets
from ltpll.trainer import PartialLabelTrainer
from ltpll.views import Views

__version__ = "0.1.0"

__all__ = [
    "EXTRAS",
    "METHODS",
    "MODELS",
    "REBALANCERS",
    "Batch",
    "Candidates",
    "Classifier",
    "Extra",
    "InputError",
    "InputWarning",
    "Method",
    "NotFiniteError",
    "Outputs",
    "PartialLabelTrainer",
    "Rebalancer",
    "Shots",
    "Truth",
    "Views",
    "best_epoch",
    "build_model",
    "evaluate",
    "initial_targets",
    "split_head",
]
