"""All other losses, as functions and as modules: values, derivatives, warnings, mistakes, state and repr."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from loss_oracle import check, check_error, labels, mine, sample
from oracle import assert_same, torch

import flambeau

F, T = flambeau.nn.functional, torch.nn.functional
nn = flambeau.nn
REDUCTIONS = ["mean", "sum", "none"]
P = sample(4, 3, seed=2).sigmoid()
SIGNS = torch.tensor([[1.0, -1, 1], [-1, -1, 1], [1, 1, -1], [-1, 1, 1]], dtype=torch.float64)
WEIGHT = sample(4, 3, seed=4).abs()
X, Y, Z = sample(4, 3), sample(4, 3, seed=1), sample(4, 3, seed=2)
CASES = [
    ("mse_loss", (X, Y), {}), ("mse_loss", (X, Y), {"weight": WEIGHT}), ("l1_loss", (X, Y), {}), ("l1_loss", (X, Y), {"weight": WEIGHT}),
    ("smooth_l1_loss", (X, Y), {}), ("smooth_l1_loss", (X, Y), {"beta": 0.4}), ("smooth_l1_loss", (X, Y), {"beta": 0}),
    ("huber_loss", (X, Y), {}), ("huber_loss", (X, Y), {"delta": 0.3, "weight": WEIGHT}),
    ("binary_cross_entropy", (P, P.roll(1, 0)), {}), ("binary_cross_entropy", (P, P.roll(1, 0)), {"weight": WEIGHT[0]}),
    ("binary_cross_entropy_with_logits", (X, P), {}),
    ("binary_cross_entropy_with_logits", (X, P), {"weight": WEIGHT, "pos_weight": WEIGHT[1]}),
    ("kl_div", (X, P), {}), ("kl_div", (X, Y), {"log_target": True}), ("poisson_nll_loss", (X, P * 5), {}),
    ("poisson_nll_loss", (P, P * 5), {"log_input": False, "full": True}), ("gaussian_nll_loss", (X, Y, WEIGHT), {}),
    ("gaussian_nll_loss", (X, Y, WEIGHT[:, 0]), {"full": True}), ("soft_margin_loss", (X, SIGNS), {}),
    ("hinge_embedding_loss", (X, SIGNS.long()), {}), ("hinge_embedding_loss", (X, SIGNS.long()), {"margin": 0.3}),
    ("margin_ranking_loss", (X, Y, SIGNS.long()), {"margin": 0.2}), ("multi_margin_loss", (X, labels(3, 4)), {}),
    ("multi_margin_loss", (X, labels(3, 4)), {"p": 2, "margin": 0.5, "weight": WEIGHT[0]}),
    ("multilabel_margin_loss", (X, torch.tensor([[0, 2, -1], [1, -1, 0], [-1, 0, 1], [2, 1, 0]])), {}),
    ("multilabel_margin_loss", (X[0], torch.tensor([1, -1, 0])), {}), ("multilabel_soft_margin_loss", (X, P.round()), {}),
    ("multilabel_soft_margin_loss", (X, P.round()), {"weight": WEIGHT[0]}), ("cosine_embedding_loss", (X, Y, SIGNS[:, 0].long()), {"margin": 0.1}),
    ("cosine_embedding_loss", (X[0], Y[0], torch.tensor(-1)), {}), ("triplet_margin_loss", (X, Y, Z), {}),
    ("triplet_margin_loss", (X, Y, Z), {"p": 1, "swap": True, "margin": 2.0}), ("triplet_margin_with_distance_loss", (X, Y, Z), {"swap": True}),
]  # fmt: skip
ONCE = {"multi_margin_loss", "multilabel_margin_loss"}  # PyTorch has no second derivative of these


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("name", "operands", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_as_in_pytorch(name, operands, options, reduction):
    """The loss, its gradients and its second derivatives are PyTorch's, in every reduction."""
    constant = (1,) if name == "soft_margin_loss" else ()  # PyTorch has no derivative by its target
    check(name, *operands, reduction=reduction, second=name not in ONCE, constant=constant, **options)
    single = [a.float() if a.is_floating_point() else a for a in operands]
    check(
        name,
        *single,
        reduction=reduction,
        constant=constant,
        **{k: v.float() if isinstance(v, torch.Tensor) else v for k, v in options.items()},
    )


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, dtype):
    """Half precision keeps its dtype and PyTorch's digits."""
    check(name, X.to(dtype), P.to(dtype), reduction="none")


def test_batchmean():
    """batchmean divides by the first dimension only; mean warns that it does not."""
    check("kl_div", X, P, reduction="batchmean")
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(mine(X), mine(P))


def test_cosine_similarity():
    """Along any dimension, broadcasting; a vector of zeros has similarity 0 and a gradient."""
    for dim in (0, 1, -1):
        check("cosine_similarity", X, Y, dim=dim, second=True)
    check("cosine_similarity", X, Y[:1], dim=1)
    check("cosine_similarity", torch.zeros(2, 3, dtype=torch.float64), X[:2])
    check_error("cosine_similarity", torch.ones(3).long(), torch.ones(3).long(), dim=0, match="floating point")


def test_broadcasting_warns():
    """A target that would broadcast is pointed out: (N) against (N, 1) makes N x N differences."""
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        with pytest.warns(UserWarning, match=r"Using a target size .* that is different to the input size"):
            found = getattr(F, name)(mine(X[:, :1]), mine(Y[:, 0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_same(found, getattr(T, name)(X[:, :1], Y[:, 0]), tolerance=1e-12)


@pytest.mark.parametrize(
    ("name", "operands", "options", "words"),
    [
        ("mse_loss", (X, Y[:, :2]), {}, "size"), ("mse_loss", (X.long(), Y.long()), {}, "mse_loss"),
        ("mse_loss", (X, Y), {"weight": WEIGHT[0]}, "same size"), ("mse_loss", (X, Y), {"reduction": "max"}, "max"),
        ("smooth_l1_loss", (X, Y), {"beta": -1.0}, "negative"), ("huber_loss", (X, Y), {"delta": 0.0}, "delta"),
        ("binary_cross_entropy", (X, P), {}, r"between 0 and 1, found .* at position \(0, \d\).*with_logits"),
        ("binary_cross_entropy", (P, P * 3), {}, "elements of target should be between 0 and 1"),
        ("binary_cross_entropy", (P, P.long()), {}, "dtype"), ("binary_cross_entropy", (P, P[:, 0]), {}, "same"),
        ("binary_cross_entropy", (P[:, :1], P[:, 0]), {}, "view_as"), ("binary_cross_entropy_with_logits", (X, P[:, 0]), {}, "same"),
        ("binary_cross_entropy_with_logits", (X, P.long()), {}, r"target\.float\(\)"), ("kl_div", (X.long(), P.long()), {"reduction": "sum"}, "Integral"),
        ("gaussian_nll_loss", (X, Y, -WEIGHT), {}, "negative"), ("gaussian_nll_loss", (X, Y, WEIGHT[:, :2]), {}, "incorrect size"),
        ("margin_ranking_loss", (X, Y, SIGNS[0]), {}, "same dimension"), ("soft_margin_loss", (X[:, :1], SIGNS[:, 0]), {}, "broadcast"),
        ("multi_margin_loss", (X, labels(3, 3)), {}, r"Expected target size \[4\]"), ("multi_margin_loss", (X, labels(3, 4) + 5), {}, "out of range"),
        ("multi_margin_loss", (X, labels(3, 4)), {"p": 3}, "p == 1"), ("multilabel_margin_loss", (X, labels(3, 4, 3) + 7), {}, "out of range"),
        ("multilabel_margin_loss", (X, labels(3, 4)), {}, "inconsistent"), ("cosine_embedding_loss", (X, Y, SIGNS), {}, "multi-target"),
        ("triplet_margin_loss", (X, Y, Z[0]), {}, "same number of dimensions"), ("triplet_margin_loss", (X, Y, Z), {"margin": -1.0}, "margin"),
    ],
)  # fmt: skip
def test_mistakes(name, operands, options, words):
    """What people get wrong is answered in their terms, with PyTorch's exception."""
    check_error(name, *operands, match=words, **options)


MODULES = [
    ("L1Loss", {}), ("MSELoss", {}), ("NLLLoss", {}), ("PoissonNLLLoss", {"full": True}), ("GaussianNLLLoss", {"eps": 1e-3}), ("KLDivLoss", {}),
    ("BCELoss", {}), ("BCEWithLogitsLoss", {}), ("HingeEmbeddingLoss", {"margin": 2.0}), ("MultiLabelMarginLoss", {}), ("SmoothL1Loss", {"beta": 2.0}),
    ("HuberLoss", {"delta": 2.0}), ("SoftMarginLoss", {}), ("CrossEntropyLoss", {"label_smoothing": 0.1}), ("MultiLabelSoftMarginLoss", {}),
    ("CosineEmbeddingLoss", {"margin": 0.5}), ("MarginRankingLoss", {"margin": 0.5}), ("MultiMarginLoss", {"p": 2}), ("TripletMarginLoss", {"swap": True}),
    ("TripletMarginWithDistanceLoss", {}), ("CTCLoss", {"blank": 1}), ("PairwiseDistance", {}), ("CosineSimilarity", {}),
    ("LinearCrossEntropyLoss", {"in_features": 3, "num_classes": 4, "bias": True}),
    ("AdaptiveLogSoftmaxWithLoss", {"in_features": 16, "n_classes": 20, "cutoffs": [4, 10]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), MODULES, ids=[n for n, _ in MODULES])
def test_modules(name, options):
    """Every loss of torch.nn has PyTorch's repr, constants and state, and survives deepcopy and pickle."""
    theirs, ours = getattr(torch.nn, name)(**options), getattr(nn, name)(**options)
    assert repr(ours) == repr(theirs)
    assert getattr(ours, "__constants__", None) == getattr(theirs, "__constants__", None)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert repr(again) == repr(ours)


@pytest.mark.parametrize(
    "name", ["NLLLoss", "BCELoss", "CrossEntropyLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "BCEWithLogitsLoss"]
)
def test_weights_are_buffers(name):
    """A weight is part of the state, under PyTorch's name."""
    loss = getattr(nn, name)(weight=flambeau.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    assert loss.double().weight.dtype is flambeau.float64
    assert list(nn.BCEWithLogitsLoss(pos_weight=flambeau.ones(3)).state_dict()) == ["pos_weight"]


def test_modules_call_the_functions():
    """Modules compute what the functions compute, with the options they remember."""
    x, t = mine(X), mine(labels(3, 4))
    assert nn.CrossEntropyLoss()(x, t) == F.cross_entropy(x, t)
    assert nn.CrossEntropyLoss(ignore_index=0, reduction="sum")(x, t) == F.cross_entropy(x, t, ignore_index=0, reduction="sum")
    assert nn.MSELoss(reduction="sum")(x, mine(Y)) == F.mse_loss(x, mine(Y), reduction="sum")
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        assert nn.NLLLoss2d()(x, t) == F.nll_loss(x, t)
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.L1Loss(size_average=False).reduction == "sum"


def test_adaptive_softmax():
    """AdaptiveLogSoftmaxWithLoss: outputs, loss, gradients, all probabilities and predictions, with PyTorch's weights."""
    options = {"in_features": 16, "n_classes": 20, "cutoffs": [4, 10, 15], "div_value": 2.0}
    theirs, ours = torch.nn.AdaptiveLogSoftmaxWithLoss(**options, head_bias=True), nn.AdaptiveLogSoftmaxWithLoss(**options, head_bias=True)
    ours.load_state_dict({k: mine(v) for k, v in theirs.state_dict().items()})
    x, t = sample(12, 16, dtype=torch.float32), labels(20, 12)
    found, expected = ours(mine(x), mine(t)), theirs(x, t)
    assert_same(tuple(found), tuple(expected), tolerance=1e-5)
    found.loss.backward()
    expected.loss.backward()
    for mine_, theirs_ in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(mine_.grad.numpy(), theirs_.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert_same(ours.log_prob(mine(x)), theirs.log_prob(x), tolerance=1e-5)
    assert ours.predict(mine(x)).tolist() == theirs.predict(x).tolist()
    assert_same(ours(mine(x[0]), mine(t[0])).output, theirs(x[0], t[0]).output, tolerance=1e-5)
    with pytest.raises(RuntimeError, match="Target values should be in"):
        ours(mine(x), mine(t + 15))
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5, 3])


BY_NUMBER = {
    "binary_cross_entropy_with_logits": lambda t, x, y: (x, y, None, None),
    "cosine_embedding_loss": lambda t, x, y: (x, y, t.tensor([1, -1, 1]), 0.1),
    "ctc_loss": lambda t, x, y: (x.log_softmax(1), t.tensor([1, 2]), t.tensor([3]), t.tensor([2]), 0),
    "hinge_embedding_loss": lambda t, x, y: (x, y.round() * 2 - 1, 0.5),
    "kl_div": lambda t, x, y: (x.log_softmax(1), y),
    "margin_ranking_loss": lambda t, x, y: (x, y, y.round() * 2 - 1, 0.2),
    "poisson_nll_loss": lambda t, x, y: (x, y, True, False, 1e-8),
    "triplet_margin_loss": lambda t, x, y: (x, y, x * y, 1.0, 2, 1e-6, False),
}


@pytest.mark.parametrize("name", BY_NUMBER)
def test_losses_by_number(name):
    """torch.kl_div and its like, with a number for the reduction, are PyTorch's."""
    for reduction in range(3):
        found = []
        for lib in (flambeau, torch):
            x, y = (lib.tensor(np.abs(np.sin(np.arange(1.0, 13) * k)).reshape(3, 4)) for k in (1, 3))
            found.append(getattr(lib, name)(*BY_NUMBER[name](lib, x, y), reduction).numpy())
        np.testing.assert_allclose(*found)
    with pytest.raises(ValueError, match="reduction"):
        getattr(flambeau, name)(*BY_NUMBER[name](flambeau, flambeau.ones(3, 4), flambeau.ones(3, 4)), 7)
