"""L-BFGS: Newton's direction from the last few gradients, and a line search along it."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.modes import enable_grad, no_grad
from flambeau.ops import OPS
from flambeau.optim.optimizer import Optimizer, _to_scalar, one_element
from flambeau.tensor import Tensor

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Limited-memory BFGS. All parameters are one long vector x with gradient g.

    The direction is d = -H g, where H is built from the last `history_size` pairs y = change of g, s = change of x. `step` takes up to
    max_iter iterations, each of which calls the closure: it has to clear the gradients, compute the loss, call backward and return the loss.
    line_search_fn: None (steps of lr) or "strong_wolfe". Nocedal and Wright, Numerical Optimization, chapters 3 and 7.
    """

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None
    ):
        one_element(lr)
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        defaults = dict(
            lr=lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval, tolerance_grad=tolerance_grad,
            tolerance_change=tolerance_change, history_size=history_size, line_search_fn=line_search_fn,
        )  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS moves all parameters as one, and doesn't support parameter groups")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    @no_grad()
    def step(self, closure: Callable):  # type: ignore[override]
        """Up to max_iter iterations. Returns the loss before the first of them."""
        evaluate = enable_grad()(closure)
        group, state = self.param_groups[0], self.state[self._params[0]]
        lr, change = _to_scalar(group["lr"]), group["tolerance_change"]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = evaluate()
        loss, flat_grad, evals = _number(first_loss), self._flat_grad(), 1
        state["func_evals"] += 1
        if _largest(flat_grad) <= group["tolerance_grad"]:
            return first_loss
        d, t, previous = state.get("d"), state.get("t"), state.get("prev_flat_grad")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, group["history_size"], flat_grad, previous, d, t)
            if previous is None:
                previous = flat_grad.clone()
            else:
                previous.copy_(flat_grad)
            state["prev_loss"] = loss
            t = min(1.0, 1.0 / flat_grad.abs().sum()) * lr if state["n_iter"] == 1 else lr
            slope = flat_grad.dot(d)
            if slope > -change:  # downhill no more
                break
            used = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError(f"only 'strong_wolfe' is supported, found line_search_fn={group['line_search_fn']!r}")
                here = [p.clone() for p in self._params]
                loss, flat_grad, t, used = _strong_wolfe(
                    lambda t, here=here, d=d: self._evaluate_at(evaluate, here, t, d),
                    t,
                    d,
                    loss,
                    flat_grad,
                    slope,
                    group["max_eval"] - evals,
                )
                self._walk(t, d)
            else:
                self._walk(t, d)
                if iteration != group["max_iter"]:  # the last loss would be for nobody
                    loss, flat_grad, used = _number(evaluate()), self._flat_grad(), 1
            evals += used
            state["func_evals"] += used
            if iteration == group["max_iter"] or evals >= group["max_eval"] or _largest(flat_grad) <= group["tolerance_grad"]:
                break
            if _largest(d * t) <= change or abs(loss - state["prev_loss"]) < change:
                break
        history = {name: state.pop(name) for name in ("old_dirs", "old_stps", "ro", "H_diag")}  # in PyTorch's order, for whoever prints it
        state.pop("prev_flat_grad", None)
        state |= {"d": d, "t": t, **history, "prev_flat_grad": previous, "prev_loss": state.pop("prev_loss")}
        return first_loss

    @staticmethod
    def _direction(state, history_size, flat_grad, previous, d, t):
        """-H g by the two-loop recursion, after taking the latest pair (y, s) into the history."""
        if state["n_iter"] == 1:
            state |= {"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1}
            return flat_grad.neg()
        ys, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = flat_grad - previous, d * t
        curvature = y.dot(s)
        if curvature > 1e-10:
            if len(ys) == history_size:
                for history in (ys, steps, ro):
                    history.pop(0)
            ys.append(y)
            steps.append(s)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)
        al = state.setdefault("al", [None] * history_size)
        q = flat_grad.neg()
        for i in reversed(range(len(ys))):
            al[i] = steps[i].dot(q) * ro[i]
            q.add_(ys[i], alpha=-al[i].item())
        r = q * state["H_diag"]
        for i in range(len(ys)):
            r.add_(steps[i], alpha=(al[i] - ys[i].dot(r) * ro[i]).item())
        return r

    def _flat_grad(self):
        """All gradients as one vector; complex ones as pairs of numbers."""
        parts = [p.new_zeros(p.numel()) if p.grad is None else p.grad.to_dense().reshape(-1) for p in self._params]
        return OPS["cat"]([part.view_as_real().reshape(-1) if part.is_complex() else part for part in parts])

    def _walk(self, t, d) -> None:
        """x <- x + t d."""
        offset = 0
        for p in self._params:
            p = p.view_as_real() if p.is_complex() else p
            p.add_(d[offset : offset + p.numel()].view_as(p), alpha=float(t))
            offset += p.numel()

    def _evaluate_at(self, evaluate, here, t, d):
        """(loss, gradient) at x + t d; x itself is not changed."""
        self._walk(t, d)
        loss, flat_grad = _number(evaluate()), self._flat_grad()
        for p, before in zip(self._params, here, strict=True):
            p.copy_(before)
        return loss, flat_grad


def _number(loss) -> float:
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _largest(x):
    return x.abs().max()


def _strong_wolfe(evaluate, t, d, f, g, slope, max_steps, c1=1e-4, c2=0.9, tolerance=1e-9):
    """A step t along d with a sufficient decrease (c1) and a slope that is flat enough (c2), from loss f, gradient g and slope g d at 0.

    First the step grows until such points lie between two known ones; then cubics through these narrow them down.
    Returns (loss, gradient, t, number of evaluations). A point is (t, loss, gradient, slope).
    """
    length = _largest(d)
    start = last = (0, f, g.clone(), slope)

    def at(t):
        loss, grad = evaluate(t)
        return t, loss, grad, grad.dot(d)

    new, evals, steps = at(t), 1, 0
    while steps < max_steps:
        t, f_new, _, slope_new = new
        if f_new > f + c1 * t * slope or (steps > 1 and f_new >= last[1]) or (slope_new >= 0 and abs(slope_new) > -c2 * slope):
            bracket = [last, new]
            break
        if abs(slope_new) <= -c2 * slope:
            return f_new, new[2], t, evals
        following = _cubic_minimum(last, new, (t + 0.01 * (t - last[0]), t * 10))
        last, new = new, at(following)
        evals, steps = evals + 1, steps + 1
    else:
        bracket = [start, new]

    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while steps < max_steps:
        ends = [point[0] for point in bracket]
        if abs(ends[1] - ends[0]) * length < tolerance:
            break
        t, margin = _cubic_minimum(*bracket), 0.1 * (max(ends) - min(ends))
        if min(max(ends) - t, t - min(ends)) < margin:  # too near to an end to learn much, twice in a row: go inside
            if stuck or t >= max(ends) or t <= min(ends):
                t = max(ends) - margin if abs(t - max(ends)) < abs(t - min(ends)) else min(ends) + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = at(t)
        evals, steps = evals + 1, steps + 1
        if new[1] > f + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
            continue
        done = abs(new[3]) <= -c2 * slope
        if not done and new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
        if done:
            break
    t, loss, grad, _ = bracket[low]
    return loss, grad, t, evals


def _cubic_minimum(a, b, bounds=None):
    """Where the cubic through two points with these slopes is least, within bounds; the middle of them if it has no minimum."""
    (x1, f1, _, g1), (x2, f2, _, g2) = (a, b) if a[0] <= b[0] else (b, a)
    low, high = bounds or (x1, x2)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    return min(max(x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)), low), high)
