"""torch.futures: results, exceptions, callbacks and their order, as PyTorch's."""

from __future__ import annotations

import copy
import pickle
import threading
import time

import pytest

import flambeau

torch = pytest.importorskip("torch")


def trial(t) -> list:
    """What a program sees that makes, completes and chains futures."""
    seen: list = []

    def attempt(call):
        try:
            seen.append(call())
        except Exception as problem:
            seen.append((type(problem).__name__, str(problem).split("\n")[0]))

    Future, collect_all, wait_all = t.futures.Future, t.futures.collect_all, t.futures.wait_all
    first = Future()
    seen.append(first.done())
    later = first.then(lambda f: f.wait() + 1).then(lambda f: f.value() * 10)
    first.add_done_callback(lambda f: seen.append(("called", f.value())))
    first.set_result(3)
    seen.extend([first.done(), first.wait(), first.value(), later.wait(), first.then(lambda f: f.wait() - 1).wait()])
    attempt(lambda: first.set_result(4))

    bad = Future()
    after = bad.then(lambda f: f.wait() + 1)
    recovered = bad.then(lambda f: "caught")
    bad.set_exception(ValueError("bad"))
    for call in (bad.wait, bad.value, after.wait, recovered.wait):
        attempt(call)
    attempt(lambda: Future().set_exception("no exception"))

    many = [Future() for _ in range(3)]
    together = collect_all(many)
    for i in (2, 0):
        many[i].set_result(i)
    seen.append(together.done())
    many[1].set_result(1)
    seen.extend([together.done(), [f.value() for f in together.wait()], wait_all(many), wait_all([]), collect_all([]).wait()])
    attempt(lambda: wait_all([first, bad]))
    early, worse, last = Future(), Future(), Future()
    together = collect_all([early, worse, last])
    for future, complete in ((worse, lambda f: f.set_exception(ValueError("b"))), (early, lambda f: f.set_exception(KeyError("a")))):
        complete(future)
        seen.append(together.done())
    last.set_result(1)
    seen.append(together.done())
    attempt(together.wait)
    return seen


def test_futures_are_pytorchs():
    """Values, order of callbacks and errors are the same; of errors that are put in our own words, the phrase that both have."""

    def said(answer):
        phrases = [p for p in ("can only be marked completed once", "no exception") if p in str(answer)]
        return (answer[0], *phrases) if phrases else answer

    assert [said(a) for a in trial(flambeau)] == [said(a) for a in trial(torch)]


def test_a_thread_is_waited_for():
    """wait() blocks until another thread has set the result; a tensor comes through as it is."""
    future = flambeau.futures.Future()
    tensor = flambeau.ones(3)

    def work():
        time.sleep(0.02)
        future.set_result(tensor)

    threading.Thread(target=work).start()
    assert not future.done() and future.wait() is tensor
    assert flambeau.futures.Future[int] is not None


def test_a_value_that_is_not_there_yet(caplog):
    """RuntimeError, as in PyTorch; what a callback raises is logged and harms nobody."""
    for t in (flambeau, torch):
        with pytest.raises(RuntimeError):
            t.futures.Future().value()
        with pytest.raises(ValueError):
            t.futures.Future(devices=["cpu"])
    future = flambeau.futures.Future()
    future.add_done_callback(lambda f: 1 / 0)
    future.set_result(1)
    assert future.wait() == 1 and "ZeroDivisionError" in caplog.text


@pytest.mark.filterwarnings("ignore:`torch.jit.fork` is deprecated", "ignore:`torch.jit.wait` is deprecated")
@pytest.mark.parametrize("t", [flambeau, torch], ids=["ours", "theirs"])
def test_forks_and_what_is_no_future(t):
    """fork() runs at once and wait() gives the result or raises; None is no future; a future does not leave its process."""
    future = t.jit.fork(lambda x, y: x + y, t.ones(2), y=3)
    assert future.done() and t.jit.wait(future).tolist() == [4, 4]
    for refused in (lambda: t.jit.wait(None), lambda: t.futures.collect_all([future, None]), lambda: t.futures.wait_all([None])):
        with pytest.raises(RuntimeError, match="Future can't be None"):
            refused()
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(RuntimeError, match=r"Can not pickle torch\.futures\.Future"):
            way(future)
