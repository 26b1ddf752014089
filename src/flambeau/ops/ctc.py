"""Connectionist temporal classification (Graves et al. 2006): the surprise at a text where a model gave each moment a distribution over letters.

The text may be spelled over the T moments in many ways: letters may last, and blanks may stand between them (and must, between equal ones).
With l the text with a blank before, between and after its letters, the probability of all spellings together is found moment by moment:

    alpha[t, s]   of the moments up to t, ending in state s of l       beta[t, s]   of the moments from t on, beginning in state s
    gamma[t, s] = alpha beta / (p[t, l[s]] P)                          that the moment t belongs to state s

All are kept as logarithms and computed for all samples and states at once. Samples may be of different lengths.
"""

from __future__ import annotations

from math import inf

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.reductions.reduce import dense
from flambeau.ops.declare import composite, no_derivative, on_arrays
from flambeau.ops.loss_reduction import chosen, reduced
from flambeau.ops.results import Kept
from flambeau.ops.scattering import check_tensor


@on_arrays(public=False, method=False, grad_name="CtcLossBackward0")
def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, kept):
    """-log(P) of every sample. log_probs (T, N, C), targets (N, S), lengths: tuples of N -> (N). Fills `kept` with what backward needs."""
    xp = arrays.module_of(log_probs)
    states = _states(xp, targets, blank)  # (N, 2 S + 1)
    skips = xp.zeros(states.shape, bool)  # whether a state may follow the one before the last: not from letter to the same letter
    skips[:, 2:] = states[:, 2:] != states[:, :-2]
    spoken = _spoken(xp, log_probs, states)
    times, ends = xp.asarray(input_lengths), 2 * xp.asarray(target_lengths)
    alpha = xp.full(spoken.shape, -inf, spoken.dtype)
    samples = xp.arange(len(input_lengths))
    with np.errstate(all="ignore"):
        alpha[:1, :, 0] = spoken[:1, :, 0]
        if spoken.shape[2] > 1:
            alpha[:1, :, 1] = xp.where(ends > 0, spoken[:1, :, 1], -inf)
        for t in range(1, spoken.shape[0]):
            alpha[t] = spoken[t] + _arriving(xp, alpha[t - 1], skips)
        last = alpha[xp.maximum(times - 1, 0), samples]  # (N, 2 S + 1)
        total = _log_add(xp, last[samples, ends], xp.where(ends > 0, last[samples, xp.maximum(ends - 1, 0)], -inf))
        loss = xp.where(times > 0, -total, xp.where(ends > 0, inf, 0.0))
    kept.update(alpha=alpha, loss=loss, states=states, skips=skips)
    return dense(xp.where(loss == inf, 0.0, loss) if zero_infinity else loss, log_probs.dtype, log_probs)


def _states(xp, targets, blank: int):
    """The texts with blanks before, between and after the letters. (N, S) -> (N, 2 S + 1)."""
    states = xp.full((targets.shape[0], 2 * targets.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = targets
    return states


def _spoken(xp, log_probs, states):
    """The logarithm of the probability of every state at every moment. (T, N, 2 S + 1)."""
    return log_probs[:, xp.arange(states.shape[0])[:, None], states]


def _arriving(xp, before, skips):
    """log of what reaches each state from itself, from the one before and, where it may be skipped to, from the one before that."""
    one, two = xp.full(before.shape, -inf, before.dtype), xp.full(before.shape, -inf, before.dtype)
    one[:, 1:] = before[:, :-1]
    two[:, 2:] = xp.where(skips[:, 2:], before[:, :-2], -inf)
    return _log_add(xp, before, one, two)


def _log_add(xp, *terms):
    """log(sum(exp(terms))), shifted by the largest, unless that is -inf itself."""
    high = terms[0]
    for term in terms[1:]:
        high = xp.maximum(high, term)
    shift = xp.where(xp.isneginf(high), 0.0, high)
    return xp.log(sum(xp.exp(term - shift) for term in terms)) + shift


@_ctc_loss.meta
def _(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, kept):
    return (log_probs.shape[1],), log_probs.dtype


_ctc_loss.derivative(
    log_probs=lambda grad, log_probs, input_lengths, target_lengths, zero_infinity, kept: _ctc_loss_backward(
        grad, log_probs, input_lengths, target_lengths, zero_infinity, kept
    )
)


@on_arrays(public=False, method=False)
def _ctc_loss_backward(sent, log_probs, input_lengths, target_lengths, zero_infinity, kept):
    """sent * (p[t, c] - the sum of gamma[t, s] over the states of letter c): what a log_softmax before makes of the gradient. (N) -> (T, N, C)."""
    xp = arrays.module_of(log_probs)
    alpha, loss, states, skips = kept["alpha"], kept["loss"], kept["states"], kept["skips"]
    spoken = _spoken(xp, log_probs, states)
    times, ends = xp.asarray(input_lengths), 2 * xp.asarray(target_lengths)
    n_times, n, c = log_probs.shape
    last = (xp.arange(states.shape[1]) >= (ends - 1)[:, None]) & (xp.arange(states.shape[1]) <= ends[:, None])
    gamma = xp.zeros(spoken.shape)
    beta = xp.full(states.shape, -inf, spoken.dtype)
    with np.errstate(all="ignore"):
        for t in range(n_times - 1, -1, -1):
            leaving = _arriving(xp, beta[:, ::-1], _reversed(xp, skips))[:, ::-1]
            now = xp.where((times - 1 == t)[:, None], xp.where(last, spoken.dtype.type(0), spoken.dtype.type(-inf)), leaving)
            beta = now + spoken[t]
            gamma[t] = xp.where(xp.isneginf(spoken[t]), 0, xp.exp(alpha[t] + beta + loss[:, None] - spoken[t]))
        found = xp.exp(log_probs)
        place = (xp.arange(n_times)[:, None, None] * n + xp.arange(n)[:, None]) * c + states
        found -= xp.bincount(place.reshape(-1), gamma.reshape(-1), n_times * n * c).reshape(n_times, n, c)
        found *= sent[:, None]
    unused = xp.arange(n_times)[:, None] >= times
    if zero_infinity:
        unused = unused | (loss == inf)
    found[unused] = 0
    return dense(found, log_probs.dtype, log_probs)


def _reversed(xp, skips):
    """The same leaps seen from the end: state s may be left for s + 2 if s + 2 may be reached from s."""
    out = xp.zeros(skips.shape, bool)
    out[:, 2:] = skips[:, :1:-1]
    return out


# Nobody has written these, PyTorch included; forward and first derivative do not need them.
_ctc_loss_backward.derivative(
    sent=lambda grad: no_derivative("ctc_loss_backward", "grad"), log_probs=lambda grad: no_derivative("ctc_loss_backward", "log_probs")
)
_ctc_loss_backward.meta(lambda sent, log_probs, **_: (log_probs.shape, log_probs.dtype))


# -- the public function -----------------------------------------------------------------------------------------------------


def _last_step(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False) -> str | None:
    """The name of the last step in the history: PyTorch replaces infinities after it has computed the losses."""
    return "WhereBackward0" if zero_infinity and reduction == "none" and log_probs.dim() == 3 else None


@composite(name="nn.functional.ctc_loss", method=False, grad_name=_last_step, autocast="cpu float32")
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """-log of the probability that the moments spell the target. log_probs (T, N, C) or (T, C): logarithms of probabilities, as of log_softmax.

    targets         class numbers, never `blank`: (N, S), or all texts one after another (sum of target_lengths)
    input_lengths   how many of the T moments each sample has: a tensor, tuple or list of N numbers
    target_lengths  how long each text is, likewise
    reduction       "mean" divides each loss by the length of its text first
    zero_infinity   a text that does not fit into its moments has an infinite loss: 0 instead, and no gradient
    """
    reduction = chosen(reduction)
    check_tensor("ctc_loss", "log_probs", log_probs)
    check_tensor("ctc_loss", "targets", targets)
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    times, lengths = _lengths("input_lengths", input_lengths), _lengths("target_lengths", target_lengths)
    _check(log_probs, targets, times, lengths, blank)
    loss = _ctc_loss(log_probs, _texts(targets, lengths, log_probs.shape[2]), times, lengths, int(blank), bool(zero_infinity), Kept())
    if reduction == "mean":
        return (loss / loss.new_tensor(lengths).clamp_min(1)).mean()
    return loss.squeeze(0) if single and reduction == "none" else reduced(loss, reduction)


def _lengths(name: str, given) -> tuple[int, ...]:
    if hasattr(given, "_array"):
        if given.dtype.category not in (dtypes.INTEGER, dtypes.BOOL):
            raise RuntimeError(f"ctc_loss: {name} must be integral, found {given.dtype.name}. Try {name}.long()")
        return tuple(given.reshape(-1).tolist())
    return tuple(int(n) for n in (given if isinstance(given, (tuple, list)) else (given,)))


def _check(log_probs, targets, times: tuple[int, ...], lengths: tuple[int, ...], blank: int) -> None:
    if log_probs.dim() != 3:
        raise RuntimeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C), found shape {tuple(log_probs.shape)}")
    n_times, n, c = log_probs.shape
    if not log_probs.numel():
        raise RuntimeError(f"log_probs tensor must not be empty, found shape {tuple(log_probs.shape)}")
    if log_probs.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f'"ctc_loss" not implemented for {log_probs.dtype.name}. Try log_probs.float()')
    if not 0 <= blank < c:
        raise RuntimeError(f"blank must be in label range: found {blank} for {c} classes")
    for name, given in (("input_lengths", times), ("target_lengths", lengths)):
        if len(given) != n:
            raise RuntimeError(f"{name} must be of size batch_size: found {len(given)} lengths for a batch of {n}")
        if min(given) < 0:
            raise RuntimeError(f"Expected {name} to have value at least 0, but got value {min(given)}")
    if max(times) > n_times:
        raise RuntimeError(f"Expected input_lengths to have value at most {n_times}, but got value {max(times)}")
    if targets.dim() == 1:
        if targets.shape[0] != sum(lengths):
            raise RuntimeError(
                f"Expected targets of size {sum(lengths)} (the sum of target_lengths, for texts one after another), found {targets.shape[0]}"
            )
    elif targets.dim() != 2 or targets.shape[0] != n or targets.shape[1] < max(lengths):
        raise RuntimeError(
            f"Expected tensor to have size at least {max(lengths)} at dimension 1: targets is (N, S) with N = {n}, or 1-d; found shape "
            f"{tuple(targets.shape)}"
        )


def _texts(targets, lengths: tuple[int, ...], classes: int):
    """The texts as rows of one matrix, what is behind their end filled with 0. -> (N, longest)."""
    longest = max(lengths)
    behind = targets.new_tensor([at >= length for length in lengths for at in range(longest)], dtype=dtypes.bool)
    behind = behind.reshape((len(lengths), longest))
    if targets.dim() == 2:
        rows = targets[:, :longest].to(dtypes.int64).masked_fill(behind, 0)
    else:
        rows = targets.new_zeros((len(lengths), longest), dtype=dtypes.int64).masked_scatter(~behind, targets.to(dtypes.int64))
    if not rows.is_meta and rows.numel() and ((rows < 0) | (rows >= classes)).any():
        wrong = rows[(rows < 0) | (rows >= classes)][0].item()
        raise RuntimeError(f"ctc_loss: target {wrong} is out of bounds: the {classes} classes are 0 to {classes - 1}")
    return rows
