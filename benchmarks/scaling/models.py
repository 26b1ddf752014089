"""Models as a sequence of layers, each with the sizes of its parameters and the operations of its forward pass for one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Layer:
    """`parameters` in numbers, `flops` of forward for a token; backward takes twice as many, as every product has two derivatives."""

    parameters: tuple[int, ...]
    flops: float = 0.0


@dataclass(frozen=True)
class Model:
    """Units in the order of forward: what is not in a block, then the blocks, then the rest of what is not. `batch` sequences on a GPU."""

    name: str
    start: Sequence[Layer]
    blocks: Sequence[Sequence[Layer]]
    finish: Sequence[Layer]
    tokens: int  # in a sequence
    batch: int

    @property
    def layers(self) -> list[Layer]:
        """All of them, in the order of forward."""
        return [*self.start, *[layer for block in self.blocks for layer in block], *self.finish]

    @property
    def parameters(self) -> int:
        return count(self.layers)


def count(layers: Sequence[Layer]) -> int:
    """Numbers in the parameters of `layers`."""
    return sum(sum(layer.parameters) for layer in layers)


def linear(inputs: int, outputs: int) -> Layer:
    """A product and a sum for every weight."""
    return Layer((inputs * outputs, outputs), 2 * inputs * outputs)


def block(width: int, tokens: int) -> list[Layer]:
    """Attention and an MLP four times as wide. A token looks at half of the sequence, on the average: two products of 2 * width for each."""
    norm, attention = Layer((width, width)), Layer((), 2 * 2 * width * tokens / 2)
    return [
        norm, linear(width, 3 * width), attention, linear(width, width),
        norm, linear(width, 4 * width), linear(4 * width, width),
    ]  # fmt: skip


def decoder(name: str, *, layers: int, width: int, vocabulary: int, tokens: int, batch: int, tied: bool = True) -> Model:
    """Learned positions, norms first. With `tied` embeddings the head's gradient is only complete when backward has come to the embedding."""
    embeddings = Layer((vocabulary * width, tokens * width))
    head = Layer((), 2 * vocabulary * width) if tied else linear(width, vocabulary)
    return Model(name, [embeddings], [block(width, tokens)] * layers, [Layer((width, width)), head], tokens, batch)


def perceptron(name: str, *widths: int, batch: int) -> Model:
    """Linear layers one after the other."""
    return Model(name, [], [[linear(*pair)] for pair in pairwise(widths)], [], tokens=1, batch=batch)


MODELS = {
    "gpt": decoder("GPT of the benchmarks", layers=4, width=128, vocabulary=65, tokens=64, batch=12, tied=False),
    "gpt2": decoder("GPT-2 124M", layers=12, width=768, vocabulary=50257, tokens=1024, batch=16),
    "1.3b": decoder("1.3B", layers=24, width=2048, vocabulary=50257, tokens=2048, batch=8),
    "7b": decoder("7B", layers=32, width=4096, vocabulary=50257, tokens=2048, batch=4),
}
MLP = perceptron("MLP of the benchmarks", 784, 256, 128, 10, batch=64)
