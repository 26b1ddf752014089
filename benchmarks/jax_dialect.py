"""JAX: the jobs of cases/training.py in its own words, each step compiled whole by `jax.jit`.

JAX computes ahead of Python, so a call is over when its results are ready. Only these jobs are here; other cases have no column for JAX.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

__version__ = jax.__version__

_numbers = np.random.default_rng(0)


def manual_seed(seed: int) -> None:
    """Start the stream that weights and data are drawn from."""
    global _numbers
    _numbers = np.random.default_rng(seed)


def randn(*shape, scale=1.0):
    return jnp.asarray(_numbers.standard_normal(shape, dtype=np.float32) * scale)


def integers(high, *shape):
    return jnp.asarray(_numbers.integers(0, high, shape))


def linear(inputs, outputs):
    return {"w": randn(inputs, outputs, scale=inputs**-0.5), "b": jnp.zeros(outputs)}


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def adam(params, grads, mean, square, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0):
    """One step of Adam, of AdamW with decay; t counts from 1."""
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, mean, grads)
    square = jax.tree.map(lambda s, g: beta2 * s + (1 - beta2) * g * g, square, grads)

    def moved(p, m, s):
        return p * (1 - lr * decay) - lr * (m / (1 - beta1**t)) / (jnp.sqrt(s / (1 - beta2**t)) + eps)

    return jax.tree.map(moved, params, mean, square), mean, square


def clipped(grads, most=1.0):
    total = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, most / (total + 1e-6)), grads)


def stepping(params, loss_of, decay=0.0, clips=False):
    """A step that keeps its state between calls. loss_of(params, key, *batch) -> loss; what is not given to the step is constant."""

    @jax.jit
    def advance(params, mean, square, t, key, *batch):
        key, used = jax.random.split(key)
        loss, grads = jax.value_and_grad(loss_of)(params, used, *batch)
        params, mean, square = adam(params, clipped(grads) if clips else grads, mean, square, t, decay=decay)
        return params, mean, square, t + 1, key, loss

    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, zeros, jnp.float32(1), jax.random.key(0)]

    def step(*batch):
        *state[:], loss = advance(*state, *batch)
        return jax.block_until_ready(loss)

    return step


def mlp_loss(params, key, hidden, y):
    for layer in params[:2]:
        key, used = jax.random.split(key)
        hidden = jax.nn.relu(apply(layer, hidden))
        hidden = jnp.where(jax.random.bernoulli(used, 0.8, hidden.shape), hidden / 0.8, 0)
    return cross_entropy(apply(params[2], hidden), y)


def mlp_step(device):
    params = [linear(784, 256), linear(256, 128), linear(128, 10)]
    x, y = randn(64, 784), integers(10, 64)
    return stepping(params, lambda params, key: mlp_loss(params, key, x, y))


def mnist_epoch(device):
    """NumPy gathers the batches: JAX has no loader of its own."""
    x, y = _numbers.standard_normal((60000, 784), dtype=np.float32), _numbers.integers(0, 10, 60000)
    step = stepping([linear(784, 256), linear(256, 128), linear(128, 10)], mlp_loss)

    def epoch():
        order = _numbers.permutation(60000)
        for start in range(0, 59968, 64):
            chosen = order[start : start + 64]
            loss = step(x[chosen], y[chosen])
        return loss

    return epoch


def cnn_step(device):
    kernels = [{"w": randn(32, 1, 3, 3, scale=1 / 3), "b": jnp.zeros(32)}, {"w": randn(64, 32, 3, 3, scale=1 / 17), "b": jnp.zeros(64)}]
    params = {"convs": kernels, "head": [linear(64 * 7 * 7, 128), linear(128, 10)]}
    x, y = randn(64, 1, 28, 28), integers(10, 64)

    def loss_of(params, key):
        image = x
        for conv in params["convs"]:
            image = jax.lax.conv_general_dilated(image, conv["w"], (1, 1), "SAME") + conv["b"][:, None, None]
            image = jax.lax.reduce_window(jax.nn.relu(image), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        hidden = jax.nn.relu(apply(params["head"][0], image.reshape(64, -1)))
        return cross_entropy(apply(params["head"][1], hidden), y)

    return stepping(params, loss_of)


def normed(layer, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5) * layer["w"] + layer["b"]


def gpt_step(device, width=128, heads=4, layers=4):
    norm = lambda: {"w": jnp.ones(width), "b": jnp.zeros(width)}  # noqa: E731
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    block = lambda: {"norm1": norm(), "norm2": norm()} | {name: linear(*shape) for name, shape in shapes.items()}  # noqa: E731
    params = {"tokens": randn(65, width), "positions": randn(64, width), "blocks": [block() for _ in range(layers)], "norm": norm()}
    params["head"] = linear(width, 65)
    x, y = integers(65, 12, 64), integers(65, 12, 64)

    def loss_of(params, key):
        h = params["tokens"][x] + params["positions"]
        for block in params["blocks"]:
            qkv = apply(block["qkv"], normed(block["norm1"], h)).reshape(12, 64, 3, heads, width // heads)
            attended = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
            h = h + apply(block["out"], attended.reshape(12, 64, width))
            h = h + apply(block["down"], jax.nn.gelu(apply(block["up"], normed(block["norm2"], h)), approximate=False))
        return cross_entropy(apply(params["head"], normed(params["norm"], h)), y)

    return stepping(params, loss_of, decay=0.01, clips=True)


def lstm_step(device, width=128):
    cell = lambda inputs: {"x": linear(inputs, 4 * width), "h": linear(width, 4 * width)}  # noqa: E731
    params = {"cells": [cell(64), cell(width)], "head": linear(width, 10)}
    x, y = randn(32, 50, 64), integers(10, 32)

    def loss_of(params, key):
        sequence = x.swapaxes(0, 1)
        for cell in params["cells"]:

            def advance(state, gates, cell=cell):
                h, c = state
                i, f, g, o = jnp.split(gates + apply(cell["h"], h), 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            start = jnp.zeros((32, width))
            _, sequence = jax.lax.scan(advance, (start, start), apply(cell["x"], sequence))
        return cross_entropy(apply(params["head"], sequence[-1]), y)

    return stepping(params, loss_of)


jobs = {"mlp_step": mlp_step, "mnist_epoch": mnist_epoch, "cnn_step": cnn_step, "gpt_step": gpt_step, "lstm_step": lstm_step}
