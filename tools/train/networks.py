"""Networks that give the logits of actions, the scores of options, or the value of an observation."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Flat(nn.Module):
    """DL2's network: the observation as one row, hidden layers with ReLU, one linear layer of outputs."""

    def __init__(self, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (256, 256)) -> None:
        """Make layers of these widths."""
        super().__init__()
        widths = (int(torch.Size(shape).numel()), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for inside, outside in pairwise(widths):
            layers += [nn.Linear(inside, outside), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def forward(self, observation: Tensor) -> Tensor:
        """Return the outputs `(n, outputs)`, logits without softmax."""
        outputs: Tensor = self.layers(observation)
        return outputs


class SharedEncoder(nn.Module):
    """One encoder for all jobs, which also see the mean and the greatest code of the window: our design.

    A row of zeros is an empty place and does not enter the mean. With `per_job` actions of each job in a row and `stop`
    last the outputs are the logits; with `per_job` 0 the only output is the value of the window.
    """

    def __init__(self, shape: Sequence[int], per_job: int, hidden: int = 64) -> None:
        """Make layers of this width."""
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(shape[-1], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.context = nn.Sequential(nn.Linear(2 * hidden + 1, hidden), nn.ReLU())
        self.scores = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, max(per_job, 1)))
        self.whole = nn.Linear(hidden, 1)
        self.per_job = per_job

    def forward(self, observation: Tensor) -> Tensor:
        """Return the logits `(n, window * per_job + 1)`, or the value `(n, 1)`."""
        there = (observation != 0.0).any(dim=2, keepdim=True).to(observation.dtype)  # (n, window, 1)
        codes = self.encoder(observation) * there
        share = there.mean(dim=1)
        pooled = torch.cat([codes.mean(dim=1), codes.amax(dim=1), share], dim=1)
        context = self.context(pooled)
        whole: Tensor = self.whole(context)
        if not self.per_job:
            return whole
        beside = context[:, None, :].expand(-1, codes.shape[1], -1)
        scores = self.scores(torch.cat([codes, beside], dim=2)).flatten(1)
        return torch.cat([scores, whole], dim=1)


HIDDEN = 64


class PerOption(nn.Module):
    """One encoder for all options, which also see the mean code of the options of their decision.

    The columns are normalised by `mean` and `scale`, `(n_columns,)` each, which are stored and not trained.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, columns: int, hidden: int = HIDDEN) -> None:
        """Make layers of this width for options with this number of columns."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))
        self.encode = nn.Linear(columns, hidden)
        # Together one layer over the code of an option and the mean code; apart, so that no code is repeated.
        self.own = nn.Linear(hidden, hidden)
        self.pooled = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, options: Tensor, is_there: Tensor | None = None) -> Tensor:
        """Return the scores `(..., n_options)` of options `(..., n_options, n_columns)`.

        `is_there` `(..., n_options)` marks the options of decisions that were filled up to a common length; the scores
        of the others mean nothing.
        """
        codes = torch.relu(self.encode((options - self.mean) / self.scale))
        if is_there is None:
            mean = codes.mean(dim=-2, keepdim=True)
        else:
            there = is_there.unsqueeze(-1).to(codes.dtype)
            mean = (codes * there).sum(dim=-2, keepdim=True) / there.sum(dim=-2, keepdim=True).clamp(min=1.0)
        scores: Tensor = self.score(torch.relu(self.own(codes) + self.pooled(mean))).squeeze(-1)
        return scores


class Choosing(nn.Module):
    """The logits of the options of a window, and of stop, from their scores; a row of zeros is no option."""

    def __init__(self, scorer: PerOption) -> None:
        """Take the network that scores the options."""
        super().__init__()
        self.scorer = scorer

    def forward(self, observation: Tensor) -> Tensor:
        """Return the logits `(n, n_options + 1)` for options `(n, n_options, n_columns)`."""
        is_there = (observation != 0.0).any(dim=2)
        scores = self.scorer(observation, is_there)
        return torch.cat([scores, torch.zeros_like(scores[:, :1])], dim=1)
