"""How optimizers move parameters: one rule each, the new parameter and states from the old ones and the gradient.

A rule is written once and read in two ways. On elements (`Expr`) it becomes one fused loop over all parameters of a group, in C, CUDA or
NumPy (`kernels/loops/updates.py`); on tensors it runs as ordinary operations, which can be differentiated. Positional parameters are the tensors,
those with the default None being states that not every optimizer keeps; keyword parameters are the numbers of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from flambeau.kernels.language import expr as e
from flambeau.kernels.loops.updates import Update

RULES: list[Rule] = []


class Rule:
    """A formula (param, grad, *states, *, **options) -> (new param, *new states), and the kernels for the states it is used with."""

    def __init__(self, formula: Callable):
        code = formula.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.formula, self.__doc__ = formula, formula.__doc__
        self.operands, self.options = names[: code.co_argcount], names[code.co_argcount :]
        self.optional = self.operands[code.co_argcount - len(formula.__defaults__ or ()) :]
        self._kernels: dict[tuple[str, ...], Update] = {}
        RULES.append(self)

    def __call__(self, *tensors, **options):
        return self.formula(*tensors, **options)

    def kernel(self, states: tuple[str, ...]) -> Update:
        """The kernel for parameters with these states."""
        found = self._kernels.get(states)
        if found is None:
            present = [name for name in self.optional if name in states]
            operands = [name for name in self.operands if name not in self.optional or name in present]
            name = ".".join([self.formula.__name__, *present])
            found = self._kernels[states] = Update(name, self.formula, operands, self.options)
        return found


def everything() -> list[Update]:
    """Every rule with every choice of its optional states."""
    return [rule.kernel(states) for rule in RULES for n in range(len(rule.optional) + 1) for states in combinations(rule.optional, n)]


# -- words that mean the same for elements, tensors and numbers ----------------------------------------------------------


def choose(condition, a, b):
    """`a` if an option holds, else `b`: the same for all elements."""
    if isinstance(condition, e.Expr):
        return e.where(condition if condition.kind == "bool" else e.ne(condition, 0), a, b)
    return a if condition else b


def where(condition, a, b):
    """`a` where the condition holds for an element, else `b`."""
    if isinstance(condition, e.Expr):
        return e.where(condition, a, b)
    return b.masked_fill(condition, a) if isinstance(a, (int, float)) else condition.where(a, b)


def _word(of_elements: Callable, of_tensors: Callable) -> Callable:
    """A function that is one thing for elements, another for tensors."""
    return lambda x, *rest: (of_elements if isinstance(x, e.Expr) else of_tensors)(x, *rest)


sqrt = _word(e.sqrt, lambda x: x.sqrt())
sign = _word(e.sgn, lambda x: x.sign())
maximum = _word(e.maximum, lambda a, b: a.maximum(b))
clamp = _word(lambda x, low, high: e.minimum(e.maximum(x, low), high), lambda x, low, high: x.clamp(low, high))
not_finite = _word(lambda x: e.isinf(x) | e.isnan(x), lambda x: ~x.isfinite())
without_history = _word(lambda x: x, lambda x: x.detach())


def lerp(start, end, weight):
    """From start to end, in the form that reaches the nearer one exactly: PyTorch's."""
    return choose(weight < 0.5, start + weight * (end - start), end - (end - start) * (1 - weight))


def descent(param, grad, weight_decay, maximize):
    """The direction to descend along: uphill if maximizing, and with the gradient of weight_decay / 2 * param^2."""
    grad = choose(maximize, -grad, grad)
    return choose(weight_decay, grad + weight_decay * param, grad)


def moments(param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, decoupled_weight_decay, maximize) -> tuple:
    """(the parameter with its decay, if that is apart from the gradient's; the direction; the averages of it and of its square) of Adam's family."""
    grad = descent(param, grad, choose(decoupled_weight_decay, 0.0, weight_decay), maximize)
    param = param * choose(decoupled_weight_decay, 1 - lr * weight_decay, 1.0)
    return param, grad, lerp(exp_avg, grad, 1 - beta1), beta2 * exp_avg_sq + (1 - beta2) * grad * grad


# -- the rules -----------------------------------------------------------------------------------------------------------


@Rule
def sgd(param, grad, momentum_buffer=None, *, lr, momentum, dampening, nesterov, weight_decay, maximize, first) -> Any:
    """Stochastic gradient descent; the buffer begins as the first gradient."""
    grad = descent(param, grad, weight_decay, maximize)
    if momentum_buffer is None:
        return (param - lr * grad,)
    buffer = choose(first, without_history(grad), momentum * momentum_buffer + (1 - dampening) * grad)
    return param - lr * choose(nesterov, grad + momentum * buffer, buffer), buffer


@Rule
def adam(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq=None, *, lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize, step
) -> Any:
    """Adam, AdamW (decoupled_weight_decay) and AMSGrad (with the largest second moment so far)."""
    decay = weight_decay, decoupled_weight_decay, maximize
    param, grad, mean, square = moments(param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, *decay)
    largest = square if max_exp_avg_sq is None else maximum(max_exp_avg_sq, square)
    spread = sqrt(largest) * (1 - beta2**step) ** -0.5 + eps
    param = param - lr / (1 - beta1**step) * (mean / spread)
    return (param, mean, square) if max_exp_avg_sq is None else (param, mean, square, largest)


@Rule
def sparse_adam(param, grad, exp_avg, exp_avg_sq, *, lr, beta1, beta2, eps, maximize, step) -> Any:
    """Adam for the rows that a sparse gradient has: eps is added before the second moment is made up for its start."""
    grad = choose(maximize, -grad, grad)
    mean = exp_avg + (1 - beta1) * (grad - exp_avg)
    square = exp_avg_sq + (1 - beta2) * (grad * grad - exp_avg_sq)
    size = lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    return param - size * (mean / (sqrt(square) + eps)), mean, square


@Rule
def adamax(param, grad, exp_avg, exp_inf, *, lr, beta1, beta2, eps, weight_decay, maximize, step) -> Any:
    """Adam with the largest gradient, slowly forgotten, in place of the second moment."""
    grad = descent(param, grad, weight_decay, maximize)
    mean = lerp(exp_avg, grad, 1 - beta1)
    largest = maximum(beta2 * exp_inf, abs(grad) + eps)
    return param - lr / (1 - beta1**step) * (mean / largest), mean, largest


@Rule
def nadam(
    param, grad, exp_avg, exp_avg_sq, *, lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize, step, mu, mu_next, mu_product
) -> Any:  # fmt: skip
    """Adam with Nesterov's momentum, which mu warms up; mu_product is that of all mu so far."""
    decay = weight_decay, decoupled_weight_decay, maximize
    param, grad, mean, square = moments(param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, *decay)
    spread = sqrt(square / (1 - beta2**step)) + eps
    ahead = lr * mu_next / (1 - mu_product * mu_next) * mean
    return param - (lr * (1 - mu) / (1 - mu_product) * grad + ahead) / spread, mean, square


@Rule
def radam(param, grad, exp_avg, exp_avg_sq, *, lr, beta1, beta2, eps, weight_decay, decoupled_weight_decay, maximize, step) -> Any:
    """Adam whose first steps, while the second moment says too little, are those of momentum alone."""
    decay = weight_decay, decoupled_weight_decay, maximize
    param, grad, mean, square = moments(param, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, *decay)
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / (1 - beta2**step)  # of the average, in steps
    scale = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * (1 - beta2**step)
    adaptive = choose(length > 5, scale, 0.0) ** 0.5 / (sqrt(square) + eps)
    return param - lr / (1 - beta1**step) * choose(length > 5, mean * adaptive, mean), mean, square


@Rule
def adagrad(param, grad, sum, *, lr, lr_decay, eps, weight_decay, maximize, step) -> Any:
    """Steps divided by the root of the sum of all squared gradients."""
    grad = descent(param, grad, weight_decay, maximize)
    total = sum + grad * grad
    return param - lr / (1 + (step - 1) * lr_decay) * (grad / (sqrt(total) + eps)), total


@Rule
def adadelta(param, grad, square_avg, acc_delta, *, lr, rho, eps, weight_decay, maximize) -> Any:
    """Steps as large as the recent ones were, relative to recent gradients."""
    grad = descent(param, grad, weight_decay, maximize)
    square = rho * square_avg + (1 - rho) * grad * grad
    delta = sqrt(acc_delta + eps) / sqrt(square + eps) * grad
    return param - lr * delta, square, rho * acc_delta + (1 - rho) * delta * delta


@Rule
def rmsprop(param, grad, square_avg, momentum_buffer=None, grad_avg=None, *, lr, alpha, eps, momentum, weight_decay, maximize) -> Any:
    """Steps divided by the root of the average squared gradient; centered, by the standard deviation."""
    grad = descent(param, grad, weight_decay, maximize)
    square = alpha * square_avg + (1 - alpha) * grad * grad
    mean = None if grad_avg is None else lerp(grad_avg, grad, 1 - alpha)
    spread = sqrt(square if mean is None else square - mean * mean) + eps
    move = grad / spread if momentum_buffer is None else momentum * momentum_buffer + grad / spread
    return (param - lr * move, square, *(() if momentum_buffer is None else (move,)), *(() if mean is None else (mean,)))


@Rule
def rprop(param, grad, prev, step_size, *, etaminus, etaplus, step_size_min, step_size_max, maximize) -> Any:
    """Steps of a size of their own, which grows while the gradient keeps its sign and shrinks when it turns."""
    grad = choose(maximize, -grad, grad)
    agreement = grad * prev
    ones = agreement * 0 + 1 if not isinstance(agreement, e.Expr) else e.lift(1.0)
    size = clamp(step_size * where(agreement > 0, etaplus, where(agreement < 0, etaminus, ones)), step_size_min, step_size_max)
    grad = where(agreement < 0, 0.0, grad)  # a turn: wait, and count it as no direction next time
    return param - sign(grad) * size, grad, size


@Rule
def asgd(param, grad, ax, *, eta, mu, lambd, weight_decay, maximize) -> Any:
    """Gradient descent with step eta, and the average `ax` of where it has been."""
    grad = descent(param, grad, weight_decay, maximize)
    param = param * (1 - lambd * eta) - eta * grad
    return param, choose(mu < 1, ax + (param - ax) * mu, param)


@Rule
def average(averaged, current, *, weight) -> Any:
    """A step of this weight from the averaged tensor to the current one."""
    return (lerp(averaged, current, weight),)


@Rule
def scaled(value, *, factor) -> Any:
    """A multiple of the tensor."""
    return (value * factor,)


@Rule
def gathered(place, value, *, factor) -> Any:
    """A multiple of the tensor in another place: gradients on their way into one long buffer."""
    return (value * factor,)


@Rule
def unscaled(value, *, factor) -> Any:
    """A multiple of the tensor, and whether an element was infinite or NaN."""
    return value * factor, not_finite(value)
