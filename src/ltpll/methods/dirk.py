"""DIRK (Wu et al., "Distilling Reliable Knowledge for Instance-Dependent Partial Label Learning",
AAAI 2024): a teacher's labels, where candidates come first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from ltpll.blocks.contrastive import (
    Memory,
    MomentumEncoder,
    Queue,
    contrastive_loss,
    labels_or_own_view,
)
from ltpll.interfaces import Step, Training, linear_head
from ltpll.methods.proden import PRODEN
from ltpll.settings import Count, Fraction, NotNegative, Positive, Whole
from ltpll.targets import restricted_softmax


def rectified(logits: Tensor, candidates: Tensor) -> Tensor:
    """Labels, (batch, classes), in which every candidate is above every other class.

    The order among the candidates, and among the other classes, is that of the logits.
    """
    inside, outside = (
        restricted_softmax(logits, candidates),
        restricted_softmax(logits, ~candidates),
    )
    probabilities = torch.softmax(logits, dim=1)
    lowest = probabilities.masked_fill(~candidates, torch.inf).min(1, keepdim=True).values
    highest = outside.max(1, keepdim=True).values
    share = torch.where(candidates.all(1, keepdim=True), 1.0, highest / (highest + lowest))
    return share * inside + (1 - share) * outside


class DIRK(PRODEN):
    """DIRK (Wu et al., AAAI 2024): the network learns from its own moving average.

    A teacher, the moving average of the network's weights, labels each view: it divides one part of
    the label among the candidates and the rest among the other classes, as it rates them, such that
    the lowest candidate is above the highest other class. With `contrast`, a contrastive loss is
    added (DIRK-REF): examples whose sets overlap and whose labels have the same largest class are
    pulled together, the more the more similar their labels are.

    The targets are what the network itself says about the candidates. The loss does not use them;
    rebalancers, extras and cleaned labels do. A rebalancer affects the targets, the teacher's
    labels and the predictions. Differs from the authors' code: the teacher starts as a copy of the
    network instead of with other random weights, one strong view serves both losses, and empty
    places of the queue are left out, whereas theirs hold random vectors, labels and sets.

    Formula:
        loss    = CE(t, z) + contrast · mean over i of −Σ_{u∈P(i)} c_iu log( exp(q_i·u/T) / Σ_{v∈A(i)}
                  exp(q_i·v/T) ) / Σ_u c_iu
        t       = β · softmax_S(z̃) + (1−β) · softmax_{not S}(z̃);  β = c / (c + min_{j∈S} p̃_j),
                  c = the largest of softmax_{not S}(z̃);  β = 1 if S holds all classes
        z̃, p̃    = the teacher's logits for the same strong view, less what the rebalancer subtracts
                  from ẑ, and their softmax
        teacher ← momentum · teacher + (1 − momentum) · network, after each step
        q, k    = projections of f_strong, and of the teacher's f of a weak view
        A(i)    = all q but q_i, all k, and the queue of earlier k;  only k_i and the queue before
                  first_epoch
        P(i)    = the vectors of A(i) with the same argmax t and a set that overlaps S_i, with weight
                  c_iu = exp(cos(t_i, t_u) / sharpness);  only k_i before first_epoch
        targets = softmax_S(ẑ), from the first epoch on

    References:
        Dong-Dong Wu, Deng-Bao Wang and Min-Ling Zhang: Distilling Reliable Knowledge for
        Instance-Dependent Partial Label Learning, AAAI 2024.
        https://ojs.aaai.org/index.php/AAAI/article/view/29519

    Args:
        contrast: The weight of the contrastive loss: 0 is DIRK, 1 is DIRK-REF.
        momentum: The momentum of the teacher.
        temperature: T, the temperature of the contrastive loss.
        sharpness: The temperature of the similarity of labels.
        width: The dimension of the projections.
        queue: The number of earlier projections to compare with.
        first_epoch: The epoch (from 0) from which on examples with similar labels are positives.

    Examples:
        >>> classifier = PartialLabelClassifier(method=DIRK(contrast=1.0))
    """

    name = "dirk"
    warmup_epochs = 0
    by_label: Tensor

    def __init__(
        self,
        contrast: NotNegative = 0.0,
        momentum: Fraction = 0.99,
        temperature: Positive = 0.07,
        sharpness: Positive = 0.4,
        width: Count = 128,
        queue: Count = 4096,
        first_epoch: Whole = 1,
    ) -> None:
        super().__init__()
        self.contrast, self.momentum, self.temperature = contrast, momentum, temperature
        self.sharpness, self.width, self.queue = sharpness, width, queue
        self.first_epoch = first_epoch
        self.views = ("strong", "weak") if contrast else ("strong",)
        self.register_buffer("by_label", torch.zeros((), dtype=torch.bool))

    @property
    def n_forward_views(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return 5 / 3 if self.contrast else 4 / 3  # the teacher only needs forward passes

    def attach(self, model: nn.Module) -> None:
        if self.contrast:
            self.memory = Memory(model, self.width, self.queue, self.momentum)
            # The labels and sets of the vectors in the queue of `memory`.
            self.described = Queue(self.queue, 2 * linear_head(model).out_features)
        else:
            self.teacher = MomentumEncoder(model, self.momentum)
            self._model = [model]  # in a list, so that the model does not become a submodule

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self.by_label.fill_(epoch >= self.first_epoch)

    def step_loss(self, step: Step) -> Tensor:
        # Following the network before a step is following it after the last one.
        if not self.contrast:
            self.teacher.follow_network(self._model[0])
            labels = self._labels(step, self.teacher)
            return cross_entropy(step.outputs.logits[0], labels)
        key = self.memory.project_second_view(step)
        labels = self._labels(step, self.memory.model_follower)
        plain = cross_entropy(step.outputs.logits[0], labels)
        return plain + self.contrast * self._contrast(step, key, labels)

    @torch.no_grad()
    def _labels(self, step: Step, teacher: MomentumEncoder) -> Tensor:
        outputs = step.forward((step.batch.views[0],), teacher.network)
        adjusted = step.rebalancer.adjust(outputs, "targets", step.head)
        logits = adjusted.weighted(step.batch.log_weights).logits[0]
        return rectified(logits, step.batch.candidates)

    def _contrast(self, step: Step, key: Tensor, labels: Tensor) -> Tensor:
        names, n_classes = labels.argmax(1), labels.shape[1]
        query = self.memory.projector(step.outputs.features[0])
        similarities, same, allowed = self.memory.compare_and_store(
            query, key, names, self.temperature
        )
        own = torch.cat([normalize(labels, dim=1), step.batch.candidates], dim=1)
        others = torch.cat([own, own, self.described.stored_vectors()[0]])
        self.described.replace_oldest(own, names)
        cosines = own[:, :n_classes] @ others[:, :n_classes].T
        overlap = own[:, n_classes:] @ others[:, n_classes:].T > 0
        # Of 1 less the cosine: only ratios of weights count, and these cannot overflow.
        weights = torch.where(same & overlap, ((cosines - 1) / self.sharpness).exp(), 0.0)
        positives, compared = labels_or_own_view(self.by_label, weights, allowed)
        return contrastive_loss(similarities, positives, compared)

    def end_epoch(self, training: Training) -> None:
        if self.contrast:
            for queue in (self.memory.queue, self.described):
                queue.shorten_to(len(training.targets))
