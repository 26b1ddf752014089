"""Adaptive softmax (Grave et al. 2016): for very many classes, of which few are frequent.

Frequent classes stand in the head, with one more entry for each cluster of rare ones. A cluster is looked into only for samples that
belong to it, and projects them to fewer features first: P(class) = P(cluster in the head) P(class in the cluster).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.nn import functional as F
from flambeau.nn.modules.container import ModuleList, Sequential
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log probability of each target, and the mean loss.

    cutoffs    the first classes of the clusters: [10, 100] with n_classes = 1000 puts 0 to 9 into the head, 10 to 99 and 100 to 999 into clusters
    div_value  the cluster i projects to in_features / div_value^(i + 1) features

    Shape: input (N, in_features) or (in_features), target (N) or () -> output like the target, loss ()
    """

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of at least one class number")
        if cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "cutoffs should be a sequence of unique, growing class numbers, each larger than the one before it and at most "
                f"n_classes-1, found {cutoffs} with n_classes = {n_classes}"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*cutoffs, n_classes]
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner, size = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, bias=False, device=device, dtype=dtype),
                    Linear(inner, size, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        _check(input_, target_)
        single = not target_.dim()
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        outside = target.lt(0) | target.ge(self.n_classes)
        if outside.any():
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but they reach from {target.min().item()} to {target.max().item()}: "
                f"the first one outside is {target[outside][0].item()}"
            )
        head = F.log_softmax(self.head(input), 1)
        entry = target  # where in the head: the class itself, or its cluster's entry
        parts = []
        for i, cluster in enumerate(self.tail):
            rows = (target.ge(self.cutoffs[i]) & target.lt(self.cutoffs[i + 1])).nonzero().squeeze(1)
            if rows.numel():
                entry = entry.index_fill(0, rows, self.shortlist_size + i)
                inside = F.log_softmax(cluster(input.index_select(0, rows)), 1)
                parts.append((rows, inside.gather(1, (target.index_select(0, rows) - self.cutoffs[i]).unsqueeze(1)).squeeze(1)))
        output = head.gather(1, entry.unsqueeze(1)).squeeze(1)
        for rows, inside in parts:
            output = output.index_add(0, rows, inside)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """The logarithms of all probabilities, given the head's scores. (N, in_features), (N, head_size) -> (N, n_classes)."""
        head = F.log_softmax(head_output, 1)
        out = head.new_empty((head_output.size(0), self.n_classes))
        out[:, : self.shortlist_size] = head[:, : self.shortlist_size]
        for i, cluster in enumerate(self.tail):
            inside = F.log_softmax(cluster(input), 1)
            out[:, self.cutoffs[i] : self.cutoffs[i + 1]] = inside + head[:, self.shortlist_size + i].unsqueeze(1)
        return out

    def log_prob(self, input: Tensor) -> Tensor:
        """The logarithms of the probabilities of all classes. (N, in_features) -> (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class, looking into clusters only where the head names one. (N, in_features) -> (N)."""
        head_output = self.head(input)
        output = head_output.argmax(1)
        rare = output >= self.shortlist_size
        if not rare.any():
            return output
        if rare.all():
            return self._get_full_log_prob(input, head_output).argmax(1)
        output[rare] = self._get_full_log_prob(input[rare], head_output[rare]).argmax(1)
        return output


def _check(input: Tensor, target: Tensor) -> None:
    """That there is one target for each sample."""
    if target.dim() == 1:
        if input.size(0) != target.size(0):
            raise RuntimeError(
                f"Input and target should have the same size, that of the batch: found {tuple(input.shape)} and {tuple(target.shape)}."
            )
        if input.dim() != 2:
            raise RuntimeError(f"1D target tensor expects 2D input tensors, (batch, features), found {tuple(input.shape)}")
    elif target.dim() == 0:
        if input.dim() != 1:
            raise RuntimeError(f"0D target tensor expects 1D input tensors, (features,), found {tuple(input.shape)}")
    else:
        raise RuntimeError(f"0D or 1D target tensor expected, one class for each sample, found {tuple(target.shape)}")
