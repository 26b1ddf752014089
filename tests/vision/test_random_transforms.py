"""Random transforms draw what torchvision draws: the same calls of the generator, in the same order, by hand with torch."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import flambeau
from flambeau.vision import transforms
from flambeau.vision.transforms import functional as F

torch = pytest.importorskip("torch")

IMAGE = np.arange(3 * 20 * 26, dtype=np.uint64).astype(np.uint8).reshape(3, 20, 26)


def image() -> flambeau.Tensor:
    return flambeau.from_numpy(IMAGE.copy())


def seeds(seed: int) -> None:
    flambeau.manual_seed(seed)
    torch.manual_seed(seed)
    random.seed(seed)


def uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()


def whole(n: int) -> int:
    return torch.randint(0, n, (1,)).item()


def same(found: flambeau.Tensor, expected) -> None:
    """Equal results, and the generators stand at the same place."""
    expected = expected if isinstance(expected, np.ndarray) else expected.numpy()
    assert np.array_equal(found.numpy(), expected)
    assert flambeau.rand(1).item() == torch.rand(1).item(), "more or fewer numbers were drawn"


each_seed = pytest.mark.parametrize("seed", range(6))


def test_single_draws_are_pytorchs():
    """A number, a number between two others and a whole number have the bits that PyTorch's calls give, over several blocks of the stream."""
    from flambeau.vision.transforms import base

    seeds(11)
    chosen = random.Random(0)
    for _ in range(1000):
        low = chosen.uniform(-50, 50)
        high = low + chosen.choice([0, 1e-3, 1, 30]) * chosen.random()
        n = chosen.randint(1, 5000)
        assert base.chance() == torch.rand(1).item() and base.uniform(low, high) == uniform(low, high)
        assert base.whole(3, 3 + n) == 3 + whole(n)


@each_seed
def test_random_crop(seed):
    """Row, then column; nothing is drawn when the size is the image's; a margin comes first."""
    seeds(seed)
    found = transforms.RandomCrop((8, 9))(image())
    i, j = whole(13), whole(18)
    same(found, IMAGE[:, i : i + 8, j : j + 9])
    found = transforms.RandomCrop(20, padding=2, padding_mode="reflect")(image())
    i, j = whole(5), whole(11)
    same(found, np.pad(IMAGE, [(0, 0), (2, 2), (2, 2)], mode="reflect")[:, i : i + 20, j : j + 20])
    same(transforms.RandomCrop((20, 26))(image()), IMAGE)
    assert transforms.RandomCrop(40, pad_if_needed=True)(image()).shape == (3, 40, 40)
    with pytest.raises(ValueError, match="larger than input"):
        transforms.RandomCrop(21)(image())


@each_seed
def test_random_resized_crop(seed):
    """Area, proportions, row, column, for up to ten tries."""
    seeds(seed)
    found = transforms.RandomResizedCrop.get_params(image(), (0.08, 1.0), (3 / 4, 4 / 3))
    for _ in range(10):
        area = 20 * 26 * uniform(0.08, 1.0)
        ratio = math.exp(torch.empty(1).uniform_(*torch.log(torch.tensor([3 / 4, 4 / 3])).tolist()).item())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= 26 and 0 < h <= 20:
            break
    assert found == (whole(20 - h + 1), whole(26 - w + 1), h, w)
    seeds(seed)
    resized = transforms.RandomResizedCrop(7)(image())
    seeds(seed)
    assert flambeau.equal(
        resized, F.resized_crop(image(), *transforms.RandomResizedCrop.get_params(image(), (0.08, 1.0), (3 / 4, 4 / 3)), [7, 7])
    )
    # proportions that never fit: the middle, as wide as it may be
    assert transforms.RandomResizedCrop.get_params(image(), (0.9, 1.0), (5.0, 6.0)) == (7, 0, 5, 26)


@each_seed
def test_flips_and_other_changes_with_a_probability(seed):
    """One number decides, also when the change would do nothing."""
    for made, changed in (
        (transforms.RandomHorizontalFlip(), IMAGE[:, :, ::-1]),
        (transforms.RandomVerticalFlip(0.3), IMAGE[:, ::-1]),
        (transforms.RandomInvert(0.7), 255 - IMAGE),
        (transforms.RandomPosterize(2), IMAGE & 192),
        (transforms.RandomGrayscale(0.6), F.rgb_to_grayscale(image(), 3).numpy()),
        (transforms.RandomSolarize(128), np.where(IMAGE >= 128, 255 - IMAGE, IMAGE)),
    ):
        seeds(seed)
        same(made(image()), changed if torch.rand(1).item() < made.p else IMAGE)


@each_seed
def test_rotation_and_affine_maps(seed):
    """Angle; then moves across and down, scale, shears."""
    seeds(seed)
    found = transforms.RandomRotation((10, 40), fill=3)(image())
    same(found, F.rotate(image(), uniform(10.0, 40.0), fill=3))
    found = transforms.RandomAffine(30, (0.1, 0.2), (0.5, 1.5), (1, 2, 3, 4))(image())
    angle, moves = uniform(-30, 30), [round(uniform(-2.6, 2.6)), round(uniform(-4.0, 4.0))]
    same(found, F.affine(image(), angle, moves, uniform(0.5, 1.5), [uniform(1, 2), uniform(3, 4)], fill=0))
    found = transforms.RandomAffine(0, shear=10)(image())
    same(found, F.affine(image(), uniform(0, 0), [0, 0], 1.0, [uniform(-10, 10), 0.0], fill=0))


@each_seed
def test_perspective(seed):
    """Whether; then the corners clockwise from the upper left, across before down."""
    seeds(seed)
    found = transforms.RandomPerspective(0.6, p=0.8)(image())
    if torch.rand(1) >= 0.8:
        return same(found, IMAGE)
    x, y = int(0.6 * 13) + 1, int(0.6 * 10) + 1
    ranges = [((0, x), (0, y)), ((26 - x, 26), (0, y)), ((26 - x, 26), (20 - y, 20)), ((0, x), (20 - y, 20))]
    ends = [[torch.randint(*r, (1,)).item() for r in corner] for corner in ranges]
    same(found, F.perspective(image(), [[0, 0], [25, 0], [25, 19], [0, 19]], ends, fill=0))


@each_seed
def test_colour_jitter(seed):
    """The order of the four, then a factor for each that is asked for."""
    seeds(seed)
    found = transforms.ColorJitter(0.4, 0.3, 0, (-0.1, 0.2))(image())
    order = torch.randperm(4).tolist()
    factors = [uniform(0.6, 1.4), uniform(0.7, 1.3), None, uniform(-0.1, 0.2)]
    expected = image()
    for i in order:
        if factors[i] is not None:
            expected = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue][i](expected, factors[i])
    same(found, expected)


@each_seed
@pytest.mark.parametrize("value", [0, (1.0, 2.0, 3.0), "random"])
def test_random_erasing(seed, value):
    """Whether; area and proportions; noise, if it is noise; row, column. The image itself is left alone."""
    seeds(seed)
    x = flambeau.rand(3, 20, 26)
    torch.rand(3, 20, 26)
    before = x.clone()
    found = transforms.RandomErasing(0.8, value=value)(x)
    expected = before.numpy().copy()
    if torch.rand(1) < 0.8:
        while True:
            area = 20 * 26 * uniform(0.02, 0.33)
            ratio = math.exp(torch.empty(1).uniform_(*torch.log(torch.tensor([0.3, 3.3])).tolist()).item())
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < 20 and w < 26:
                break
        patch = torch.empty(3, h, w).normal_() if value == "random" else torch.tensor(value).reshape(-1, 1, 1)
        i, j = whole(20 - h + 1), whole(26 - w + 1)
        expected[:, i : i + h, j : j + w] = patch.numpy()
    same(found, expected)
    assert flambeau.equal(x, before)


@each_seed
def test_blur(seed):
    """The width of the bell."""
    seeds(seed)
    found = transforms.GaussianBlur(3, (0.2, 0.9))(image())
    s = uniform(0.2, 0.9)
    same(found, F.gaussian_blur(image(), [3, 3], [s, s]))


@each_seed
def test_containers(seed):
    """RandomApply asks our generator; RandomChoice and RandomOrder ask Python's, as torchvision's do."""
    steps = [lambda x: [*x, 1], lambda x: [*x, 2], lambda x: [*x, 3]]
    seeds(seed)
    assert transforms.RandomApply(steps, 0.4)([]) == ([] if torch.rand(1) > 0.4 else [1, 2, 3])
    state = random.getstate()
    order, choice = transforms.RandomOrder(steps)([]), transforms.RandomChoice(steps, p=[0.2, 0.5, 0.3])([])
    random.setstate(state)
    expected = [0, 1, 2]
    random.shuffle(expected)
    assert order == [i + 1 for i in expected] and choice == random.choices([[1], [2], [3]], weights=[0.2, 0.5, 0.3])[0]
    assert flambeau.rand(1).item() == torch.rand(1).item()
