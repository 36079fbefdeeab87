"""Keep your own network and your own training loop.

Methods, rebalancers and targets are plain objects, and you need no trainer to use them. With a few
more lines, a loop that trains a network on labels trains it on candidate sets.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from ltpll import Outputs, initial_targets
from ltpll.methods import PRODEN
from ltpll.rebalancers import RECORDS, NoRebalancing
from ltpll.synthetic import load_digits_split, long_tail_subset, uniform_candidates

# %% Data
# Long-tailed digits, and sets that each wrong digit has joined with a probability of one half.
pool_pictures, pool_labels, test_pictures, test_labels = (
    torch.as_tensor(part) for part in load_digits_split(seed=0)
)
kept = long_tail_subset(pool_labels, imbalance=20, seed=0)
pictures, truth = pool_pictures[kept], pool_labels[kept]
candidates = uniform_candidates(truth, 10, ambiguity=0.5, seed=0)
print(f"{len(candidates)} pictures with {candidates.sizes.float().mean():.1f} candidates each")


# %% The network
# Any network will do that ends in a linear layer `head` and returns the logits together with the
# features that go into this layer. (`ltpll.split_head(network, "fc")` wraps one that returns logits
# only.)
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        convolutions = (
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
        )
        self.encoder = nn.Sequential(*convolutions, nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        features = self.encoder(x)
        return self.head(features), features


# %% The loop
# The method's loss compares the raw logits with the current targets. The rebalancer observes what
# the network returns, and corrects the logits from which the method refines the targets; before
# that, the network learns from uniform targets for one epoch. This loop suits methods such as
# PRODEN, CAVL, CC and LW, and RECORDS; parts with schedules or networks of their own need the hooks
# of the trainer.
def train(method, rebalancer, epochs=30):
    torch.manual_seed(0)
    model = Network()
    rebalancer.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    targets = initial_targets(candidates, method.targets_on)
    recovered = []
    for epoch in range(epochs):
        for rows in torch.randperm(len(pictures)).split(32):
            outputs = Outputs.from_views([model(pictures[rows])])
            loss = method.loss(outputs, targets[rows], candidates[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rebalancer.observe(outputs.detach(), model.head)
            if epoch > 0:
                debiased = rebalancer.adjust(outputs.detach(), "targets", model.head)
                targets[rows] = method.disambiguate(debiased, targets[rows], candidates[rows])
        recovered.append((targets.labels() == truth).float().mean().item())
    with torch.no_grad():
        debiased = rebalancer.adjust(
            Outputs.from_views([model(test_pictures)]), "prediction", model.head
        )
    accuracy = (debiased.logits[0].argmax(1) == test_labels).float().mean().item()
    return recovered, accuracy


# %% With and without rebalancing
# Both training runs start from the same weights. The test set is balanced, so that rare digits
# count as much as frequent ones.
curves = {}
for rebalancer in (NoRebalancing(), RECORDS()):
    curves[rebalancer.name], accuracy = train(PRODEN(), rebalancer)
    print(
        f"{rebalancer.name}: {curves[rebalancer.name][-1]:.1%} of the labels recovered, test "
        f"accuracy {accuracy:.1%}"
    )

# %%
plt.rc("axes.spines", top=False, right=False)
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, curve), style, colour in zip(
    curves.items(), ("--", "-"), ("#666666", "#0072B2"), strict=True
):
    axes.plot(
        range(1, len(curve) + 1),
        [100 * share for share in curve],
        style,
        color=colour,
        lw=2,
        label=f"PRODEN + {name}",
    )
axes.set(xlabel="epoch", ylabel="labels recovered (%)", ylim=(0, 100))
axes.legend(loc="lower right")
figure.savefig("own_network_own_loop.png", dpi=100)
