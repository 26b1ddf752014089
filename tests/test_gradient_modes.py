"""no_grad, enable_grad, inference_mode and anomaly mode: they hold where and while PyTorch's do."""

from __future__ import annotations

import threading
import warnings

import pytest
from history_oracle import agree, leaf, name, plain, questions, weigh

import flambeau
from flambeau import modes

torch = pytest.importorskip("torch")


# -- modes -----------------------------------------------------------------------------------------------------------------


def no_grad_nested(T):
    seen = [T.is_grad_enabled()]
    with T.no_grad():
        seen.append(T.is_grad_enabled())
        with T.enable_grad():
            seen.append((leaf(T, 3) * 2).requires_grad)
            with T.set_grad_enabled(False):
                seen.append((leaf(T, 3) * 2).requires_grad)
            seen.append(T.is_grad_enabled())
        seen.append((leaf(T, 3) * 2).requires_grad)
    return [*seen, T.is_grad_enabled()]


def no_grad_after_error(T):
    try:
        with T.no_grad():
            raise KeyError
    except KeyError:
        return T.is_grad_enabled()


def set_grad_enabled_as_function(T):
    T.set_grad_enabled(False)
    try:
        return T.is_grad_enabled(), repr(T.set_grad_enabled(True))[-28:]
    finally:
        T.set_grad_enabled(True)


def set_grad_enabled_wrong(T):
    T.set_grad_enabled("yes")


def decorators(T):
    @T.no_grad()
    def off(x):
        """doc"""
        return x * 2

    @T.no_grad
    def off_too(x):
        return x * 2

    @T.enable_grad()
    def on(x):
        return x * 2

    @T.set_grad_enabled(False)
    def off_again(x):
        return x * 2

    @T.inference_mode()
    def inferred(x):
        return x * 2

    @T.inference_mode
    def inferred_too(x):
        return x * 2

    w = leaf(T, 3)
    with T.no_grad():
        inside = on(w).requires_grad
    found = [f(w).requires_grad for f in (off, off_too, on, off_again, inferred, inferred_too)]
    return found, inside, off.__name__, off.__doc__, inferred(w).is_inference(), T.is_grad_enabled()


def decorated_method(T):
    class Model:
        @T.no_grad()
        def run(self, x):
            return x * 2

    return Model().run(leaf(T, 3))


def decorated_generator(T):
    @T.no_grad()
    def rows():
        got = yield T.is_grad_enabled()
        try:
            yield got, T.is_grad_enabled()
        except KeyError:
            yield "caught", T.is_grad_enabled()
        return 5

    def outer():
        result = yield from rows()
        yield result

    generator = outer()
    seen = [next(generator), T.is_grad_enabled(), generator.send("sent"), T.is_grad_enabled()]
    seen += [generator.throw(KeyError()), T.is_grad_enabled(), next(generator)]
    return seen


def generator_closed(T):
    seen = []

    @T.no_grad()
    def rows():
        try:
            yield 1
        finally:
            seen.append(T.is_grad_enabled())

    generator = rows()
    next(generator)
    generator.close()
    return seen, T.is_grad_enabled()


def other_threads_record(T):
    seen = []
    with T.no_grad():
        thread = threading.Thread(target=lambda: seen.append((T.is_grad_enabled(), (leaf(T, 3) * 2).requires_grad)))
        thread.start()
        thread.join()
    return seen


def inference_tensors(T):
    w = leaf(T, 3)
    y = w * 2
    with T.inference_mode():
        a, b = plain(T, 3), w * 2
        view, detached_ = y[:2], w.detach()
        inner = T.is_inference_mode_enabled(), T.is_grad_enabled()
        with T.inference_mode(False):
            outer = T.is_inference_mode_enabled(), T.is_grad_enabled(), plain(T, 3).is_inference(), (a * 2).is_inference()
        y.add_(1)
    tensors = (a, b, view, detached_, a[:2], a.clone(), a.exp(), a.detach(), a.contiguous())
    return [t.is_inference() for t in tensors], [t.requires_grad for t in tensors], inner, outer, y._version, name(y), view.is_leaf


def views_of_inference_tensors(T):
    with T.inference_mode():
        a = T.ones(2, 3, requires_grad=True)
        views = a.view(-1), a[0], *a.split(1), a.real
    return [(v.is_inference(), v.requires_grad, v._is_view(), v.is_leaf) for v in views]


def inference_tensor_saved(T):
    with T.inference_mode():
        a = plain(T, 3)
    return leaf(T, 3) * a


def inference_tensor_not_saved(T):
    with T.inference_mode():
        a = plain(T, 3)
    return leaf(T, 3) + a


def inference_tensor_written(T):
    with T.inference_mode():
        a = plain(T, 3)
        a.add_(1)
    a.add_(1)


def inference_tensor_written_through_view(T):
    with T.inference_mode():
        a = plain(T, 3)
    a[:2].add_(1)


def inference_tensor_requires_grad(T):
    with T.inference_mode():
        a = plain(T, 3)
    a.requires_grad_()


def inference_tensor_version(T):
    with T.inference_mode():
        a = plain(T, 3)
    return a._version


def inference_tensor_as_out(T):
    with T.inference_mode():
        a = plain(T, 3)
    T.add(plain(T, 3), 1, out=a)


def inference_tensor_as_leaf_inside(T):
    with T.inference_mode():
        b = T.ones(3, requires_grad=True)
        return b.requires_grad, b.is_inference(), (b * 2).requires_grad


def inference_view_written_outside(T):
    y = leaf(T, 3) * 2
    with T.inference_mode():
        v = y[:2]
    v.add_(1)


def inference_tensor_copied_from(T):
    with T.inference_mode():
        a = plain(T, 3)
    y = leaf(T, 3) * 2
    y.copy_(a)
    return y, name(y)


def inference_tensor_backward(T):
    with T.inference_mode():
        y = weigh(T, leaf(T, 3))
    y.backward()


@questions(
    no_grad_nested, no_grad_after_error, set_grad_enabled_as_function, set_grad_enabled_wrong, decorators, decorated_method,
    decorated_generator, generator_closed, other_threads_record, inference_tensors, views_of_inference_tensors, inference_tensor_saved, inference_tensor_not_saved,
    inference_tensor_written, inference_tensor_written_through_view, inference_tensor_requires_grad, inference_tensor_version,
    inference_tensor_as_out, inference_tensor_as_leaf_inside, inference_view_written_outside, inference_tensor_copied_from,
    inference_tensor_backward,
)  # fmt: skip
def test_modes(question):
    """no_grad, enable_grad, set_grad_enabled and inference_mode hold where PyTorch's do: as contexts, decorators, in generators and threads."""
    agree(question)


def test_decorating_a_class_warns():
    """A mode around a class holds while objects are created, which is rarely meant."""
    with pytest.warns(FutureWarning, match="Decorating classes"):

        @flambeau.no_grad()
        class Thing:
            def __init__(self):
                self.enabled = flambeau.is_grad_enabled()

    assert not Thing().enabled


# -- anomaly mode ----------------------------------------------------------------------------------------------------------


def _sqrt_of_negative(w):
    return (w - 10).sqrt()  # this line makes the NaN


def test_anomaly_mode_names_the_forward_line():
    """The warning shows the line of the program that recorded the failing node."""
    w = leaf(flambeau, 3)
    with pytest.warns(UserWarning) as caught, flambeau.autograd.detect_anomaly():
        y = _sqrt_of_negative(w).sum()
        with pytest.raises(RuntimeError, match=r"Function 'SqrtBackward0' returned nan values in its 0th output"):
            y.backward()
    text = "\n".join(str(c.message) for c in caught)
    assert "Anomaly Detection has been enabled" in text
    assert "Error detected in SqrtBackward0" in text
    lines = text.rstrip().splitlines()
    assert "this line makes the NaN" in lines[-1], "the user's line comes last, without the framework's own frames"


def test_anomaly_mode_names_both_passes():
    """A failure in a second derivative shows the forward line and the backward call that made its node."""
    T = flambeau
    w = T.zeros(1, dtype=T.float64).requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with T.autograd.detect_anomaly():
            y = (w**1.5).sum()
            (g,) = T.autograd.grad(y, w, create_graph=True)
            z = (g * 0).sum()
            with pytest.raises(RuntimeError, match="nan"):
                z.backward()
    text = "\n".join(str(c.message) for c in caught)
    assert "was induced by" in text


def anomaly_without_forward(T):
    w = leaf(T, 3)
    y = (w - 10).sqrt().sum()
    with T.autograd.detect_anomaly():
        y.backward()


def anomaly_without_nan_check(T):
    w = leaf(T, 3)
    with T.autograd.detect_anomaly(check_nan=False):
        (w - 10).sqrt().sum().backward()
    return w.grad


def anomaly_states(T):
    seen = [T.is_anomaly_enabled()]
    with T.autograd.set_detect_anomaly(True):
        seen += [T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()]
        with T.autograd.set_detect_anomaly(False, check_nan=False):
            seen += [T.is_anomaly_enabled(), T.is_anomaly_check_nan_enabled()]
        seen.append(T.is_anomaly_enabled())
    T.autograd.set_detect_anomaly(True)
    seen.append(T.is_anomaly_enabled())
    T.autograd.set_detect_anomaly(False)
    return [*seen, T.is_anomaly_enabled()]


@questions(anomaly_without_forward, anomaly_without_nan_check, anomaly_states)
def test_anomaly_mode(question):
    """Anomaly mode raises and is switched as PyTorch's."""
    agree(question)


def test_views_made_without_recording_receive_nothing():
    """A view that was made under no_grad says that it requires a gradient, as its base does, but none ever arrives there."""
    answers = []
    for t in (torch, flambeau):
        x = t.ones(2, 3, requires_grad=True)
        with t.no_grad():
            view = x[0]
        view.pow(2).sum().backward()
        received = t.autograd.grad(view.sum(), view, allow_unused=True)
        with pytest.raises(RuntimeError, match="does not require grad"):
            view.backward(t.ones(3))
        answers.append((view.requires_grad, view.grad, x.grad, received))
    assert answers[0] == answers[1] == (True, None, None, (None,))


def test_parameters_can_be_turned_without_recording():
    """Under no_grad, t_ and unsqueeze_ change the shape of a leaf, which stays one that requires a gradient; expanded ones can be turned, too."""
    for t in (torch, flambeau):
        x = t.ones(2, 3, requires_grad=True)
        with t.no_grad():
            x.t_().unsqueeze_(0)
        assert x.shape == (1, 3, 2) and x.requires_grad and x.is_leaf
        assert t.ones(1, 3).expand(2, 3).t_().stride() == (1, 0)


def test_gradients_handed_out_can_be_written_to():
    """What autograd.grad returns for a mean is memory of its own, not one number seen many times."""
    for t in (torch, flambeau):
        x = t.ones(2, 3, requires_grad=True)
        for create_graph in (False, True):
            (grad,) = t.autograd.grad(x.mean(), x, create_graph=create_graph)
            assert grad.view(-1).detach().mul_(6).tolist() == [1] * 6


def test_recording_is_counted_over_all_threads():
    """While one thread records nothing, the others go on recording; and when all modes are left, by whatever way, nobody is counted any more."""
    x, before = flambeau.ones(2, requires_grad=True), modes.paused
    inside, done, seen = threading.Event(), threading.Event(), []

    def without():
        with flambeau.no_grad():
            inside.set()
            done.wait(10)
            seen.append((x * 2).requires_grad)

    thread = threading.Thread(target=without)
    thread.start()
    inside.wait(10)
    assert modes.paused == before + 1
    assert (x * 2).requires_grad and x.view(2, 1).requires_grad and x[0].requires_grad and (x @ x).requires_grad
    done.set()
    thread.join()
    assert seen == [False]
    with pytest.raises(KeyError), flambeau.no_grad(), flambeau.no_grad(), flambeau.enable_grad(), flambeau.inference_mode():
        raise KeyError
    with flambeau.set_grad_enabled(False):
        flambeau.set_grad_enabled(True)
    (x * x).sum().backward(retain_graph=True)
    flambeau.autograd.grad((x * x).sum(), x, create_graph=True)
    flambeau.optim.SGD([x], lr=0.1).step()
    assert modes.paused == before and flambeau.is_grad_enabled()
