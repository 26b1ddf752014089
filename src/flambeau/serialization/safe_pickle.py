"""Reading pickles without trusting them.

A pickle is a program for a small stack machine. Python's own `pickle` lets that program import and call anything; this interpreter knows
the instructions that build plain data, and asks `allowed` about every name, every call and every state. It runs in time and memory
proportional to the length of the pickle and of the file around it, and it has no C code to be tricked.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from pickle import UnpicklingError
from struct import unpack_from
from typing import Any

from flambeau.dtypes import ALL
from flambeau.serialization import allowed

BLOCKED = frozenset({"sys", "os", "posix", "nt"})  # whoever reaches these runs anything
DEEPEST = 1000  # containers inside each other: Python's own functions (repr, ==, copy) give up there


def loads(data: bytes, persistent_load: Callable[[Any], Any] | None = None, file_size: int = 0, encoding: str = "utf-8") -> Any:
    """The object a pickle describes; `persistent_load` gives what the pickle only names (storages), out of a file of `file_size` bytes.
    Text of Python 2 is decoded by `encoding`, or left as it is for "bytes"."""
    return Interpreter(data, persistent_load, file_size=file_size, encoding=encoding).run()


def load_from(data: bytes, start: int, persistent_load: Callable[[Any], Any] | None = None, encoding: str = "utf-8") -> tuple[Any, int]:
    """The object of the pickle that begins at `start`, and where it ends: for files that are several pickles in a row."""
    machine = Interpreter(data, persistent_load, start, encoding=encoding)
    return machine.run(), machine.at


class Interpreter:
    """The stack machine. Each instruction is a method below, entered in `INSTRUCTIONS` under its byte."""

    def __init__(
        self, data: bytes, persistent_load: Callable[[Any], Any] | None = None, start: int = 0, file_size: int = 0, encoding: str = "utf-8"
    ):
        self.data, self.at, self.encoding = data, start, encoding
        self.persistent_load = persistent_load
        self.stack: list[Any] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, Any] = {}
        self.protocol = 0
        self.caller = allowed.Caller(len(data) - start, max(file_size, len(data)))

    def run(self) -> Any:
        """Follow the instructions to the last one."""
        data, table = self.data, INSTRUCTIONS
        try:
            while True:
                code = data[self.at]
                self.at += 1
                if code == STOP:
                    break
                instruction = table.get(code)
                if instruction is None:
                    raise UnpicklingError(f"Unsupported operand {code}: weights_only=True reads plain data and tensors only")
                instruction(self)
            result = self.stack.pop()
        except UnpicklingError:
            raise
        except IndexError as problem:
            raise UnpicklingError(
                f"the pickle is damaged: it ends too early, or takes what was never put there (byte {self.at})"
            ) from problem
        except UnicodeDecodeError as problem:
            raise UnpicklingError(f"the pickle is damaged: text that is not UTF-8 before byte {self.at}") from problem
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as problem:
            raise UnpicklingError(f"the pickle is damaged or not meant to be read: {problem} (byte {self.at})") from problem
        check_depth(result)
        return result

    # -- reading the arguments of instructions

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise UnpicklingError(f"the pickle is damaged: {size} bytes are announced at byte {self.at}, {len(piece)} are left")
        self.at += size
        return piece

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def number(self, form: str, size: int) -> Any:
        return unpack_from(form, self.take(size))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1000)
        if end < 0:
            raise UnpicklingError(f"the pickle is damaged: a name without end at byte {self.at}")
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def since_mark(self) -> list:
        """What was put on the stack since the last mark, taken off it."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    # -- containers

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def tuple_of_marked(self) -> None:
        self.stack.append(tuple(self.since_mark()))

    def append(self) -> None:
        value = self.stack.pop()
        self._list().append(value)

    def appends(self) -> None:
        values = self.since_mark()
        self._list().extend(values)

    def _list(self) -> list:
        target = self.stack[-1]
        if type(target) is not list:
            raise UnpicklingError(f"Can only append to lists, but got {type(target).__name__}")
        return target

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        target = self._dict("SETITEM")
        target[self.caller.key(key, target)] = value

    def set_items(self) -> None:
        items = self.since_mark()
        if len(items) % 2:
            raise UnpicklingError("a key without a value")
        target, check = self._dict("SETITEMS"), self.caller.key
        for i in range(0, len(items), 2):
            target[check(items[i], target)] = items[i + 1]

    def _dict(self, instruction: str) -> dict:
        target = self.stack[-1]
        if type(target) not in (dict, allowed.OrderedDict, allowed.Counter) and not (
            isinstance(target, dict) and any(type(target) is value for value in allowed.added().values())
        ):
            known = "dict, collections.OrderedDict, collections.Counter"
            raise UnpicklingError(f"Can only {instruction} for {known}, but got {type(target).__name__}")
        return target

    def add_items(self) -> None:
        members = self.since_mark()
        target = self.stack[-1]
        if type(target) is not set:
            raise UnpicklingError(f"Can only add members to sets, but got {type(target).__name__}")
        target.update([self.caller.key(member, target) for member in members])

    def frozen_set(self) -> None:
        members = self.since_mark()
        self.stack.append(frozenset(self.caller.members(members)))

    # -- names, calls, storages

    def global_(self) -> None:
        module, name = self.line(), self.line()
        self._push_global(module, name)

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str or len(name) + len(module) > 1000:
            raise UnpicklingError("the name of a global is not a short text")
        self._push_global(module, name)

    def _push_global(self, module: str, name: str) -> None:
        if self.protocol < 3:  # written with the names of Python 2
            module, name = NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)
        if module.partition(".")[0] in BLOCKED:
            raise UnpicklingError(f"unsupported GLOBAL {module}.{name} whose module {module} is blocked, whatever the program allows")
        self.stack.append(resolve(f"{module}.{name}"))

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self.caller.call(function, args))

    def new_object(self) -> None:
        args, kind = self.stack.pop(), self.stack.pop()
        self.stack.append(self.caller.make(kind, args))

    def new_object_with_keywords(self) -> None:
        keywords, args, kind = self.stack.pop(), self.stack.pop(), self.stack.pop()
        if type(keywords) is not dict:
            raise UnpicklingError("keyword arguments come in a dictionary")
        self.stack.append(self.caller.make(kind, args, keywords))

    def build(self) -> None:
        state = self.stack.pop()
        self.caller.build(self.stack[-1], state)

    def persistent(self) -> None:
        if self.persistent_load is None:
            raise UnpicklingError("the pickle names something outside of it")
        self.stack.append(self.persistent_load(self.stack.pop()))

    # -- the memo

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise UnpicklingError(f"Memo value not found at index {index}: the pickle is damaged")
        self.stack.append(self.memo[index])

    def memoize(self) -> None:
        self.put(len(self.memo))

    def set_protocol(self) -> None:
        self.protocol = self.byte()
        if self.protocol > 5:
            raise UnpicklingError(f"unsupported pickle protocol {self.protocol}: known are 0 to 5")

    def pop(self) -> None:
        self.stack.pop()

    def pop_mark(self) -> None:
        self.since_mark()

    def frame(self) -> None:
        self.take(8)

    # -- numbers and text

    def long(self, size: int) -> None:
        if size < 0:
            raise UnpicklingError("an integer of negative length")
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def text(self, size: int) -> None:
        self.stack.append(self.take(size).decode("utf-8", "surrogatepass"))

    def raw(self, size: int) -> None:
        self.stack.append(self.take(size))

    def old_text(self, size: int) -> None:
        text = self.take(size)
        self.stack.append(text if self.encoding == "bytes" else text.decode(self.encoding))

    def byte_array(self) -> None:
        self.stack.append(bytearray(self.take(self.number("<Q", 8))))


def resolve(name: str) -> Any:
    """What a file calls by this name, if it is allowed."""
    for known in (allowed.by_default(), allowed.added()):
        if name in known:
            return known[name]
    if allowed.LACKING.fullmatch(name):
        raise UnpicklingError(f"the file holds {name}, which Flambeau does not have: its dtypes are {', '.join(d.name for d in ALL)}")
    last = name.rpartition(".")[2]
    raise UnpicklingError(
        f"Unsupported global: GLOBAL {name.removeprefix('builtins.')} was not an allowed global by default. If you trust it, allow it: "
        f"torch.serialization.add_safe_globals([{last}]), or for one block `with torch.serialization.safe_globals([{last}])`."
    )


def check_depth(value: Any) -> None:
    """UnpicklingError if containers are nested too deeply for Python to handle."""
    seen: set[int] = set()
    level = [value]
    depth = 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise UnpicklingError(f"containers are nested more than {DEEPEST} deep")
        below: list[Any] = []
        for container in level:
            kind = type(container)
            if kind is list or kind is tuple:
                inside: Any = container
            elif kind is dict or kind is allowed.OrderedDict:
                inside = container.values()
            else:
                continue
            if id(container) not in seen:
                seen.add(id(container))
                below.extend([part for part in inside if type(part) in _CONTAINERS])
        level = below


_CONTAINERS = frozenset({list, tuple, dict, allowed.OrderedDict})


def unsafe_globals(data: bytes) -> list[str]:
    """The names in a pickle that `loads` would refuse."""
    import pickletools

    found: dict[str, None] = {}
    texts: list[str] = []
    memo: dict[int, str] = {}
    protocol = 0
    for code, argument, _ in pickletools.genops(data):
        if code.name == "PROTO":
            protocol = argument
        elif code.name in ("GLOBAL", "STACK_GLOBAL"):
            module, _, name = (
                argument.partition(" ") if argument else (texts[-2] if len(texts) > 1 else "?", "", texts[-1] if texts else "?")
            )
            if protocol < 3:
                module, name = NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)
            full = f"{module}.{name}"
            if full not in allowed.by_default() and full not in allowed.added():
                found[full] = None
        elif code.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else "?"
        elif code.name.endswith("GET") and argument in memo:
            texts.append(memo[argument])
        elif isinstance(argument, str):
            texts.append(argument)
    return list(found)


def _sized(method: Callable, form: str, size: int) -> Callable:
    """The instruction `method` whose argument is a number of `size` bytes."""
    if size == 1:
        return lambda self: method(self, self.byte())
    return lambda self: method(self, self.number(form, size))


def _pushes(make: Callable[[Interpreter], Any]) -> Callable[[Interpreter], None]:
    return lambda self: self.stack.append(make(self))


def _tuple(size: int) -> Callable[[Interpreter], None]:
    def build(self: Interpreter) -> None:
        stack = self.stack
        if len(stack) < size:
            raise IndexError
        items = tuple(stack[-size:])
        del stack[-size:]
        stack.append(items)

    return build


STOP = ord(".")
INSTRUCTIONS: dict[int, Callable[[Interpreter], None]] = {
    ord(byte) if isinstance(byte, str) else byte: instruction  # type: ignore[misc]
    for byte, instruction in {
        0x80: Interpreter.set_protocol,
        0x95: Interpreter.frame,
        "0": Interpreter.pop,
        "1": Interpreter.pop_mark,
        # containers
        "(": Interpreter.mark,
        ")": _pushes(lambda self: ()),
        "]": _pushes(lambda self: []),
        "}": _pushes(lambda self: {}),
        0x8F: _pushes(lambda self: set()),
        "t": Interpreter.tuple_of_marked,
        0x85: _tuple(1),
        0x86: _tuple(2),
        0x87: _tuple(3),
        "a": Interpreter.append,
        "e": Interpreter.appends,
        "s": Interpreter.set_item,
        "u": Interpreter.set_items,
        0x90: Interpreter.add_items,
        0x91: Interpreter.frozen_set,
        # names, calls, storages
        "c": Interpreter.global_,
        0x93: Interpreter.stack_global,
        "R": Interpreter.reduce,
        0x81: Interpreter.new_object,
        0x92: Interpreter.new_object_with_keywords,
        "b": Interpreter.build,
        "Q": Interpreter.persistent,
        # the memo
        "q": _sized(Interpreter.put, "<B", 1),
        "r": _sized(Interpreter.put, "<I", 4),
        "h": _sized(Interpreter.get, "<B", 1),
        "j": _sized(Interpreter.get, "<I", 4),
        0x94: Interpreter.memoize,
        # constants, numbers, text
        "N": _pushes(lambda self: None),
        0x88: _pushes(lambda self: True),
        0x89: _pushes(lambda self: False),
        "J": _pushes(lambda self: self.number("<i", 4)),
        "K": _pushes(Interpreter.byte),
        "M": _pushes(lambda self: self.number("<H", 2)),
        "G": _pushes(lambda self: self.number(">d", 8)),
        0x8A: _sized(Interpreter.long, "<B", 1),
        0x8B: _sized(Interpreter.long, "<i", 4),
        "X": _sized(Interpreter.text, "<I", 4),
        0x8C: _sized(Interpreter.text, "<B", 1),
        0x8D: _sized(Interpreter.text, "<Q", 8),
        "B": _sized(Interpreter.raw, "<I", 4),
        "C": _sized(Interpreter.raw, "<B", 1),
        0x8E: _sized(Interpreter.raw, "<Q", 8),
        "U": _sized(Interpreter.old_text, "<B", 1),
        "T": _sized(Interpreter.old_text, "<I", 4),
        0x96: Interpreter.byte_array,
    }.items()
}
