"""ScriptObject: what packed weights are called in PyTorch, and in its files. packed_weights.py makes them.

A file says: a ScriptObject, whose state is (a tuple, the name of a class). Only the two classes of packed weights are known here.
"""

from __future__ import annotations

from typing import Any

LINEAR = "__torch__.torch.classes.quantized.LinearPackedParamsBase"
CELL = "__torch__.torch.classes.rnn.CellParamsBase"


class ScriptObject:
    """Packed weights: `content` computes with them, and the state it is saved by has PyTorch's form."""

    content: Any
    name: str

    def __getstate__(self) -> tuple:
        return self.content.state(), self.name

    def __setstate__(self, state: tuple) -> None:
        from flambeau.tensor.quantized import packed_weights

        kinds = {LINEAR: packed_weights.PackedLinear, CELL: packed_weights.CellParams}
        if not isinstance(state, tuple) or len(state) != 2 or state[1] not in kinds or not isinstance(state[0], tuple):
            raise RuntimeError(f"the state of a ScriptObject is a tuple and a name, {' or '.join(kinds)}; found {str(state)[:80]}")
        self.name = state[1]
        self.content = kinds[self.name](*state[0])

    def __repr__(self) -> str:
        return f"ScriptObject <{self.name}>"


def script_object(name: str, *state: Any) -> ScriptObject:
    """One of the class of this name."""
    made = ScriptObject()
    made.__setstate__((state, name))
    return made
