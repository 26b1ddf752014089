"""Every store has PyTorch's methods, and they give what PyTorch's give."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.distributed import errors
from flambeau.distributed.stores import FileStore, HashStore, PrefixStore, Store, TCPStore

dist = pytest.importorskip("torch.distributed")
SHORT = timedelta(milliseconds=50)
KINDS = ("hash", "file", "prefix", "tcp_host", "tcp_client")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_DIST_SECRET", "of the tests")


def pair(kind: str, folder: Any) -> tuple[Any, Any, list[Any]]:
    """Our store of a kind, PyTorch's, and what must live as long as they."""
    if kind == "hash":
        return HashStore(), dist.HashStore(), []
    if kind == "file":
        return FileStore(str(folder / "ours")), dist.FileStore(str(folder / "theirs"), -1), []
    if kind == "prefix":
        ours, theirs = HashStore(), dist.HashStore()
        return PrefixStore("room", ours), dist.PrefixStore("room", theirs), [ours, theirs]
    options: dict[str, Any] = {"is_master": True, "wait_for_workers": False}
    ours, theirs = TCPStore("localhost", 0, **options), dist.TCPStore("localhost", 0, **options)
    if kind == "tcp_host":
        return ours, theirs, []
    return TCPStore("localhost", ours.port), dist.TCPStore("localhost", theirs.port), [ours, theirs]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives: its value, or the kind of its error."""
    try:
        value = call()
    except Exception as problem:
        # FileStore's own errors in PyTorch are plain RuntimeErrors, of which ours are a kind.
        name = type(problem).__name__
        return "RuntimeError" if name == "DistStoreError" else name
    return sorted(value) if isinstance(value, list) and value and isinstance(value[0], str) else value


PROGRAM: dict[str, Callable[[Any], Any]] = {
    "text": lambda s: (s.set("a", "1"), s.get("a")),
    "bytes": lambda s: (s.set("b", b"\xff\x00"), s.get("b")),
    "a bytearray": lambda s: (s.set("b", bytearray(b"7")), s.get("b")),
    "nothing in it": lambda s: (s.set("empty", ""), s.get("empty")),
    "letters beyond ASCII": lambda s: (s.set("é", "ü"), s.get("é")),
    "overwritten": lambda s: (s.set("a", "2"), s.get("a")),
    "get in vain": lambda s: s.get("nobody"),
    "wait": lambda s: s.wait(["a", "b"]),
    "wait for nothing": lambda s: s.wait([]),
    "wait in vain": lambda s: s.wait(["a", "nobody"], SHORT),
    "wait for no list": lambda s: s.wait("a"),
    "wait for seconds": lambda s: s.wait(["a"], 3),
    "add": lambda s: (s.add("n", 1), s.add("n", 5), s.get("n"), s.add("n", -9)),
    "add a bool": lambda s: s.add("n", True),
    "add a fraction": lambda s: s.add("n", 2.5),
    "add too much": lambda s: s.add("n", 2**64),
    "add wraps around": lambda s: (s.add("big", 2**63 - 1), s.add("big", 1)),
    "add to a value": lambda s: (s.set("v", "41"), s.add("v", 1)),
    "check": lambda s: (s.check(["a"]), s.check(["a", "nobody"]), s.check([])),
    "check no list": lambda s: s.check("a"),
    "compare what is not there": lambda s: (s.compare_set("c", "x", "y"), s.check(["c"])),
    "compare with nothing": lambda s: (s.compare_set("c", "", "y"), s.get("c")),
    "compare with another": lambda s: (s.compare_set("c", "x", "z"), s.get("c")),
    "compare with the same": lambda s: (s.compare_set("c", "y", "z"), s.get("c")),
    "compare bytes": lambda s: s.compare_set("c", b"z", b"q"),
    "append": lambda s: (s.append("ap", "x"), s.append("ap", b"y"), s.get("ap")),
    "multi_set": lambda s: (s.multi_set(["m1", "m2"], ["1", b"2"]), s.multi_get(["m1", "m2"]), s.multi_get([])),
    "multi_get in vain": lambda s: s.multi_get(["m1", "nobody"]),
    "num_keys counts ours once": lambda s: s.num_keys() - len(s.list_keys()) in (0, 1),
    "list_keys": lambda s: [key for key in s.list_keys() if "count" not in key],  # one of PyTorch's FileStore's own is among them
    "delete_key": lambda s: (s.delete_key("m1"), s.check(["m1"])),
    "barrier alone": lambda s: s.barrier("alone", 1),
    "barrier in vain": lambda s: s.barrier("pair", 2, SHORT),
    "set a number": lambda s: s.set("i", 1),
    "a number as key": lambda s: s.set(1, "i"),
    "seconds as timeout": lambda s: s.set_timeout(3),
    "positional only": lambda s: s.set(key="a", value="b"),
    "too few": lambda s: s.set("a"),
    "extended": lambda s: s.has_extended_api(),
    "timeout": lambda s: s.timeout,
    "pickle": lambda s: pickle.dumps(s),
    "deepcopy": lambda s: copy.deepcopy(s),
}
NOT_IN_FILES: dict[str, Callable[[Any], Any]] = {  # of PyTorch, which has no queues there
    "delete_key again": lambda s: s.delete_key("m1"),  # PyTorch's FileStore says True
    "push": lambda s: (s.queue_push("q", "1"), s.queue_push("q", b"2"), s.queue_len("q"), s.check(["q"])),
    "pop": lambda s: (s.queue_pop("q"), s.queue_pop("q", False), s.queue_len("q"), s.check(["q"])),
    "pop from nothing": lambda s: s.queue_pop("q", block=False),
    "pop in vain": lambda s: s.queue_pop("q"),
    "length of nothing": lambda s: s.queue_len("other"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_is_pytorchs(kind: str, tmp_path: Any) -> None:
    """The same calls, one after the other, give the same values and kinds of error as PyTorch's store of that kind."""
    ours, theirs, alive = pair(kind, tmp_path)
    assert ours.timeout == theirs.timeout == timedelta(seconds=300)
    for store in (ours, theirs):
        store.set_timeout(SHORT)
    for name, call in {**PROGRAM, **({} if kind == "file" else NOT_IN_FILES)}.items():
        assert outcome(lambda: call(ours)) == outcome(lambda: call(theirs)), name  # noqa: B023
    del alive


@pytest.mark.parametrize("kind", KINDS)
def test_queues_are_first_in_first_out(kind: str, tmp_path: Any) -> None:
    """A queue gives its values in their order, in a file as well, where PyTorch has none."""
    store, _, alive = pair(kind, tmp_path)
    for number in range(3):
        store.queue_push("q", str(number))
    assert [store.queue_pop("q") for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(errors.QueueEmptyError, match=r"'(room/)?q' is empty"):
        store.queue_pop("q", block=False)
    del alive


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "1", "12x", "-7 ", "x", "y"])
CALLS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("add"), KEYS, st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("check"), st.lists(KEYS, max_size=3)),
    st.tuples(st.just("compare_set"), KEYS, VALUES, VALUES),
    st.tuples(st.just("append"), KEYS, VALUES),
    st.tuples(st.just("multi_get"), st.lists(KEYS, max_size=3)),
    st.tuples(st.just("multi_set"), st.just(["a", "b"]), st.tuples(VALUES, VALUES).map(list)),
    st.tuples(st.just("delete_key"), KEYS),
    st.tuples(st.just("num_keys")),
    st.tuples(st.just("list_keys")),
    st.tuples(st.just("queue_push"), st.just("q"), VALUES),
    st.tuples(st.just("queue_pop"), st.just("q"), st.just(False)),
    st.tuples(st.just("queue_len"), st.just("q")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(CALLS, max_size=12))
def test_any_sequence_of_steps_is_pytorchs(calls: list[tuple[Any, ...]]) -> None:
    """Whatever is called in whatever order, values and kinds of error are those of PyTorch's HashStore."""
    ours, theirs = HashStore(), dist.HashStore()
    for store in (ours, theirs):
        store.set_timeout(timedelta(milliseconds=1))
    for name, *arguments in calls:
        assert outcome(lambda: getattr(ours, name)(*arguments)) == outcome(lambda: getattr(theirs, name)(*arguments)), name  # noqa: B023


def test_errors_are_pytorchs() -> None:
    """The errors have PyTorch's names and the same bases."""
    for name in ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "QueueEmptyError"):
        ours, theirs = getattr(errors, name), getattr(dist, name)
        assert [kind.__name__ for kind in ours.__mro__] == [kind.__name__ for kind in theirs.__mro__]


def test_methods_and_parameters_are_pytorchs() -> None:
    """Every public name of PyTorch's stores is there."""
    for name in ("Store", "HashStore", "FileStore", "TCPStore", "PrefixStore"):
        theirs = {word for word in dir(getattr(dist, name)) if not word.startswith("_")}
        ours = {"Store": Store, "HashStore": HashStore, "FileStore": FileStore, "TCPStore": TCPStore, "PrefixStore": PrefixStore}[name]
        assert theirs - set(dir(ours)) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_in_vain_says_what_for(kind: str, tmp_path: Any) -> None:
    """The error of a wait names the keys that are missing, and says how long it took."""
    store, _, alive = pair(kind, tmp_path)
    store.set("here", "")
    start = time.monotonic()
    with pytest.raises(errors.DistStoreError, match=r"after 50ms, keys: '(room/)?there', '(room/)?nowhere' \(1 of the 3 keys"):
        store.wait(["here", "there", "nowhere"], SHORT)
    assert 0.04 < time.monotonic() - start < 2
    del alive


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_is_answered_when_the_key_comes(kind: str, tmp_path: Any) -> None:
    """get, wait, multi_get, queue_pop and barrier return soon after another thread sets what they wait for."""
    store, _, alive = pair(kind, tmp_path)
    store.set_timeout(timedelta(seconds=20))
    waits: dict[str, Callable[[], Any]] = {
        "get": lambda: store.get("late"),
        "wait": lambda: store.wait(["late", "later"]),
        "multi_get": lambda: store.multi_get(["later", "late"]),
        "pop": lambda: store.queue_pop("q"),
        "barrier": lambda: store.barrier("b", 2),
    }
    found: dict[str, Any] = {}
    threads = [threading.Thread(target=lambda name=name, call=call: found.update({name: call()})) for name, call in waits.items()]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    assert not found
    store.set("late", "1")
    store.append("later", "2")
    store.queue_push("q", "3")
    store.barrier("b", 2)
    for thread in threads:
        thread.join(5)
    assert found == {"get": b"1", "wait": None, "multi_get": [b"2", b"1"], "pop": b"3", "barrier": None}
    del alive


@pytest.mark.parametrize("kind", KINDS)
def test_threads_lose_no_step(kind: str, tmp_path: Any) -> None:
    """Counters, queues and comparisons are exact when many threads use one store at once."""
    store, _, alive = pair(kind, tmp_path)
    popped: list[bytes] = []

    def work(number: int) -> None:
        for turn in range(20):
            store.add("n", 1)
            store.queue_push("q", f"{number}.{turn}")
            popped.append(store.queue_pop("q"))
            while True:
                before = store.get("swap") if store.check(["swap"]) else b""
                if store.compare_set("swap", before, after := b"%d" % (int(before or b"0") + 1)) == after:
                    break

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert store.add("n", 0) == 80
    assert len(set(popped)) == 80
    assert 20 <= int(store.get("swap")) <= 80  # two that write the same number both believe that they did: comparing cannot tell
    del alive


def test_prefixes_nest() -> None:
    """A PrefixStore in a PrefixStore writes the outer prefix first, and shows the stores underneath."""
    whole = HashStore()
    inner = PrefixStore("b", PrefixStore("a", whole))
    inner.set("k", "v")
    assert whole.list_keys() == ["a/b/k"] and inner.list_keys() == ["k"]
    assert inner._underlying_non_prefix_store is whole and inner.underlying_store.underlying_store is whole
    inner.set_timeout(SHORT)
    assert whole.timeout == SHORT
    assert inner.clone().get("k") == b"v"
    with pytest.raises(ValueError, match="store is None"):
        PrefixStore("a", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="prefix: str, store: Store"):
        PrefixStore(whole, "a")  # type: ignore[arg-type]


def python_store(base: type) -> Any:
    class Mine(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, Any] = {}

        def set(self, key: str, value: Any) -> None:
            self.kept[key] = value

        def get(self, key: str) -> Any:
            return self.kept[key]

        def add(self, key: str, amount: int) -> int:
            self.kept[key] = self.kept.get(key, 0) + amount
            return self.kept[key]

        def check(self, keys: list[str]) -> bool:
            return all(key in self.kept for key in keys)

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            assert self.check(keys), keys

    return Mine()


def test_a_store_may_be_written_in_python() -> None:
    """A subclass of Store that defines a few methods serves under a PrefixStore; what it lacks raises and says so."""
    ours, theirs = python_store(Store), python_store(dist.Store)
    rooms = [(PrefixStore("p", ours), ours), (dist.PrefixStore("p", theirs), theirs)]
    for room, store in rooms:
        room.set("a", b"1")
        room.wait(["a"], SHORT)
        assert (room.get("a"), room.add("n", 2), room.check(["a"]), room.has_extended_api()) == (b"1", 2, True, False)
        room.multi_set(["m"], [b"v"])
        assert room.multi_get(["m", "a"]) == [b"v", b"1"]
        assert set(store.kept) == {"p/a", "p/n", "p/m"}
        with pytest.raises(NotImplementedError):
            room.queue_push("q", "1")
        with pytest.raises(RuntimeError):  # NotImplementedError is one
            room.delete_key("a")
    assert PrefixStore("p", ours).multi_get_if_there(["a", "z"]) == [b"1", None]
    PrefixStore("p", ours).barrier("b", 1)
    assert ours.will("p/left", "") is False
    with pytest.raises(NotImplementedError, match=r"Mine\.compare_set: this store does not have it"):
        ours.append("a", "b")


def test_append_in_a_store_that_compares_and_sets() -> None:
    """append does with compare_set, of a store written in Python, and such a store is given bytes."""

    def comparing(base: Any) -> Any:
        class Comparing(base):
            def __init__(self) -> None:
                super().__init__()
                self.kept: dict[str, bytes] = {}

            def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
                assert type(expected) is type(desired) is bytes
                if self.kept.get(key, b"") == expected:
                    self.kept[key] = desired
                return self.kept.get(key, expected)

        return Comparing()

    stores = comparing(Store), comparing(dist.Store)
    for room, store in zip((PrefixStore("p", stores[0]), dist.PrefixStore("p", stores[1])), stores, strict=True):
        room.append("a", "x")
        room.append("a", b"yz")
        assert store.kept == {"p/a": b"xyz"}


def test_a_world_of_none_has_no_store() -> None:
    """world_size=0 is a ValueError at once, not a wait for others."""
    for kind in (TCPStore, dist.TCPStore):
        with pytest.raises(ValueError, match="TCPStore world size cannot be 0"):
            kind("localhost", 0, world_size=0, is_master=False)


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_there(kind: str, tmp_path: Any) -> None:
    """multi_get_if_there gives None for what is missing, and does not wait."""
    store, _, alive = pair(kind, tmp_path)
    store.multi_set(["a", "b"], ["", "x"])
    assert store.multi_get_if_there(["a", "nobody", "b"]) == [b"", None, b"x"]
    assert store.multi_get_if_there([]) == []
    del alive


@pytest.fixture
def shared() -> Iterator[TCPStore]:
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    yield store
    store.goodbye()


def test_add_to_what_is_no_number_says_so(shared: TCPStore) -> None:
    """add to a text raises ValueError that shows the text, and the store goes on (PyTorch's server hangs up)."""
    client = TCPStore("localhost", shared.port)
    for store in (shared, client, HashStore()):
        store.set("name", "Ada")
        with pytest.raises(ValueError, match="value of 'name' is b'Ada', which is no number"):
            store.add("name", 1)
        assert store.get("name") == b"Ada"


def test_multi_set_of_unequal_lists(shared: TCPStore) -> None:
    """multi_set needs a value for every key, and sets none otherwise."""
    with pytest.raises(errors.DistStoreError, match="2 keys, but 1 values"):
        shared.multi_set(["a", "b"], ["1"])
    assert not shared.check(["a"])
