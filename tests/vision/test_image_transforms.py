"""What transforms do to tensors and images, against NumPy, Pillow and torch.nn.functional."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.vision import transforms
from flambeau.vision.transforms import InterpolationMode
from flambeau.vision.transforms import functional as F

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
from PIL import ImageEnhance, ImageOps  # noqa: E402

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (3, 17, 23), dtype=np.uint8)
GREY = RNG.integers(0, 256, (1, 12, 10), dtype=np.uint8)


def smooth(h: int = 32, w: int = 40) -> np.ndarray:
    """A picture without edges, on which every way to interpolate agrees."""
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([128 + 100 * np.sin(x / 9 + k) * np.cos(y / 7) for k in range(3)]).astype(np.uint8)


def tensor(array: np.ndarray) -> flambeau.Tensor:
    return flambeau.from_numpy(array.copy())


def picture(array: np.ndarray) -> Image.Image:
    return Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))


def numbers(value) -> np.ndarray:
    """(C, H, W) of a tensor or of an image."""
    if isinstance(value, flambeau.Tensor):
        return value.numpy()
    array = np.asarray(value)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


both = pytest.mark.parametrize("kind", [tensor, picture])


# -- conversion ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [COLOUR, GREY])
def test_bytes_become_fractions(array):
    """ToTensor gives byte / 255 in float32, channels first, in memory of its own."""
    for source in (picture(array), array.transpose(1, 2, 0)):
        x = transforms.ToTensor()(source)
        assert x.dtype is flambeau.float32 and x.is_contiguous() and np.array_equal(x.numpy(), array / np.float32(255))
    assert np.array_equal(transforms.PILToTensor()(picture(array)).numpy(), array)


def test_other_modes_and_arrays_keep_their_numbers():
    """Wide integers, floats, bits and transparency come out of ToTensor as PyTorch users know them."""
    wide = np.arange(12, dtype=np.int32).reshape(3, 4) * 1000
    assert np.array_equal(F.to_tensor(Image.fromarray(wide)).numpy(), wide[None])
    assert F.to_tensor(Image.fromarray(wide.astype(np.float32))).dtype is flambeau.float32
    assert F.to_tensor(Image.fromarray(wide.astype(np.uint16))).dtype is flambeau.uint16
    bits = Image.fromarray(wide % 2000 == 0)
    assert bits.mode == "1" and F.to_tensor(bits).tolist() == [[[1.0, 0.0] * 2] * 3]
    assert F.to_tensor(Image.new("RGBA", (2, 3))).shape == (4, 3, 2)
    floats = np.ones((2, 3, 1))
    x = F.to_tensor(floats)
    x += 1
    assert x.dtype is flambeau.float64 and x.shape == (1, 2, 3) and floats.max() == 1


def test_the_default_dtype_is_followed():
    """With float64 or bfloat16 as the default, fractions have that dtype."""
    for dtype in (flambeau.float64, flambeau.bfloat16):
        flambeau.set_default_dtype(dtype)
        try:
            assert F.to_tensor(picture(GREY)).dtype is dtype
        finally:
            flambeau.set_default_dtype(flambeau.float32)


def test_tensors_become_images_and_come_back():
    """ToPILImage undoes ToTensor, in the mode that follows from the channels or is given."""
    for array, mode in ((GREY, "L"), (COLOUR, "RGB"), (np.repeat(GREY, 2, 0), "LA"), (np.repeat(GREY, 4, 0), "RGBA")):
        for source in (tensor(array), array.transpose(1, 2, 0), tensor(array).float() / 255):
            image = transforms.ToPILImage()(source)
            assert image.mode == mode and np.array_equal(numbers(image), array)
    assert F.to_pil_image(tensor(COLOUR), "HSV").mode == "HSV"
    assert F.to_pil_image(flambeau.rand(4, 5), "F").mode == "F" and F.to_pil_image(flambeau.ones(4, 5).int()).mode == "I"
    with pytest.raises(ValueError, match="2/3 dimensional"):
        F.to_pil_image(flambeau.rand(1, 2, 3, 4))
    with pytest.raises(ValueError, match="> 4 channels"):
        F.to_pil_image(flambeau.rand(5, 3, 4))
    with pytest.raises(ValueError, match="RGB"):
        F.to_pil_image(tensor(COLOUR), "L")


def test_another_dtype_keeps_white_white():
    """convert_image_dtype maps 1.0 and the largest whole number onto each other, and refuses what it cannot do exactly."""
    x = flambeau.tensor([0, 1, 128, 255], dtype=flambeau.uint8)
    assert F.convert_image_dtype(x, flambeau.float32).tolist() == (np.array([0, 1, 128, 255], np.float32) / np.float32(255)).tolist()
    assert F.convert_image_dtype(x, flambeau.int16).tolist() == [0, 128, 16384, 32640]
    assert F.convert_image_dtype(F.convert_image_dtype(x, flambeau.int16), flambeau.uint8).tolist() == x.tolist()
    assert transforms.ConvertImageDtype(flambeau.uint8)(F.convert_image_dtype(x)).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="safely"):
        F.convert_image_dtype(flambeau.rand(3), flambeau.int32)


def test_normalize_is_the_formula():
    """(x - mean) / std for each channel, of one image or many, in place if asked; anything else is an error."""
    x = np.random.default_rng(1).random((2, 3, 4, 5), dtype=np.float32)
    mean, std = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
    column = (np.array(v, np.float32).reshape(3, 1, 1) for v in (mean, std))
    expected = (x - next(column)) / next(column)
    t = tensor(x)
    for values in ((mean, std), (np.array(mean), np.array(std)), (flambeau.tensor(mean), flambeau.tensor(std))):
        assert np.array_equal(transforms.Normalize(*values)(t).numpy(), expected)
    assert np.array_equal(t.numpy(), x)
    assert transforms.Normalize(mean, std, inplace=True)(t) is t and np.array_equal(t.numpy(), expected)
    with pytest.raises(TypeError, match=r"float tensor.*ToTensor"):
        F.normalize(tensor(COLOUR), mean, std)
    with pytest.raises(ValueError, match="division by zero"):
        F.normalize(t, mean, [0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="C, H, W"):
        F.normalize(t[0, 0], mean, std)


def test_whitening_is_a_matrix_product():
    """LinearTransformation subtracts the mean and multiplies the flattened image by the matrix."""
    matrix, mean = np.random.default_rng(1).random((6, 6), dtype=np.float32), np.ones(6, np.float32)
    x = np.random.default_rng(2).random((2, 1, 2, 3), dtype=np.float32)
    found = transforms.LinearTransformation(tensor(matrix), tensor(mean))(tensor(x))
    assert np.allclose(found.numpy(), ((x.reshape(2, 6) - 1) @ matrix).reshape(x.shape), atol=1e-6)
    with pytest.raises(ValueError, match="square"):
        transforms.LinearTransformation(flambeau.ones(2, 3), flambeau.ones(2))


# -- size ----------------------------------------------------------------------------------------------------------

INTERPOLATIONS = {InterpolationMode.NEAREST: 0, InterpolationMode.BILINEAR: 2, InterpolationMode.BICUBIC: 3}


@pytest.mark.parametrize("mode", INTERPOLATIONS)
@pytest.mark.parametrize("size", [(9, 30), (40, 7)])
def test_resize_is_interpolation(mode, size):
    """Tensors are resized as torch.nn.functional.interpolate does, smoothed before they shrink; Pillow's images by Pillow."""
    smoothed = mode is not InterpolationMode.NEAREST
    options = dict(mode=mode.value, antialias=smoothed, align_corners=False if smoothed else None)
    expected = torch.nn.functional.interpolate(torch.from_numpy(COLOUR)[None].float(), size, **options)[0]
    found = transforms.Resize(size, mode)(tensor(COLOUR).float())
    assert np.allclose(found.numpy(), expected.numpy(), atol=1e-3)
    in_bytes = transforms.Resize(size, mode)(tensor(COLOUR))
    assert in_bytes.dtype is flambeau.uint8 and np.abs(in_bytes.numpy() - expected.clamp(0, 255).round().numpy()).max() <= 1
    assert np.array_equal(numbers(F.resize(picture(COLOUR), size, mode)), numbers(picture(COLOUR).resize(size[::-1], INTERPOLATIONS[mode])))


def test_tensors_and_images_are_resized_alike():
    """A model trained on one may be used on the other: the difference is rounding."""
    for size in ((13, 11), (60, 70)):
        difference = numbers(F.resize(tensor(smooth()), size)).astype(int) - numbers(F.resize(picture(smooth()), size))
        assert np.abs(difference).max() <= 1


@both
@pytest.mark.parametrize(
    ("size", "max_size", "expected"),
    [(9, None, (9, 12)), ([9], None, (9, 12)), ((5, 6), None, (5, 6)), (9, 10, (7, 10)), (17, None, (17, 23))],
)
def test_one_number_is_the_shorter_edge(kind, size, max_size, expected):
    """The longer edge follows in proportion, and is kept below max_size."""
    assert numbers(transforms.Resize(size, max_size=max_size)(kind(COLOUR))).shape == (3, *expected)
    turned = COLOUR.transpose(0, 2, 1)
    if size != (5, 6):
        assert numbers(transforms.Resize(size, max_size=max_size)(kind(turned))).shape == (3, *expected[::-1])


@both
def test_margins_are_numpys(kind):
    """Pad adds the margins of numpy.pad in all four modes; negative ones cut."""
    for padding, sides in ((2, (2, 2, 2, 2)), ((1, 3), (1, 3, 1, 3)), ([1, 2, 3, 4], (1, 2, 3, 4))):
        left, top, right, bottom = sides
        widths = [(0, 0), (top, bottom), (left, right)]
        for mode in ("constant", "edge", "reflect", "symmetric"):
            found = numbers(transforms.Pad(padding, 7, mode)(kind(COLOUR)))
            extra = {"constant_values": 7} if mode == "constant" else {}
            assert np.array_equal(found, np.pad(COLOUR, widths, mode=mode, **extra)), mode
    for mode in ("constant", "symmetric", "edge"):
        assert np.array_equal(numbers(F.pad(kind(COLOUR), [-1, -2, -3, -4], padding_mode=mode)), COLOUR[:, 2:-4, 1:-3])
    with pytest.raises(ValueError, match="3 element"):
        F.pad(kind(COLOUR), (1, 2, 3))


@both
def test_pieces_are_slices(kind):
    """crop, center_crop, five_crop and ten_crop cut where they should; outside of the image is black."""
    x = kind(COLOUR)
    assert np.array_equal(numbers(F.crop(x, 2, 3, 5, 4)), COLOUR[:, 2:7, 3:7])
    outside = np.pad(COLOUR, [(0, 0), (2, 30), (1, 30)])
    assert np.array_equal(numbers(F.crop(x, -2, -1, 25, 30)), outside[:, :25, :30])
    assert numbers(F.crop(x, 40, 50, 3, 4)).max() == 0 and numbers(F.crop(x, -9, -9, 3, 4)).shape == (3, 3, 4)
    assert np.array_equal(numbers(transforms.CenterCrop(7)(x)), COLOUR[:, 5:12, 8:15])
    assert np.array_equal(numbers(transforms.CenterCrop((21, 5))(x)), np.pad(COLOUR, [(0, 0), (2, 2), (0, 0)])[:, :, 9:14])
    five = [numbers(piece) for piece in transforms.FiveCrop(4)(x)]
    for found, expected in zip(five, (COLOUR[:, :4, :4], COLOUR[:, :4, -4:], COLOUR[:, -4:, :4], COLOUR[:, -4:, -4:]), strict=False):
        assert np.array_equal(found, expected)
    ten = [numbers(piece) for piece in transforms.TenCrop(4)(x)]
    assert len(ten) == 10 and np.array_equal(ten[5], COLOUR[:, :, ::-1][:, :4, :4])
    with pytest.raises(ValueError, match="bigger"):
        F.five_crop(x, 100)


@both
def test_mirror_images(kind):
    """hflip exchanges columns, vflip rows."""
    assert np.array_equal(numbers(F.hflip(kind(COLOUR))), COLOUR[:, :, ::-1])
    assert np.array_equal(numbers(F.vflip(kind(COLOUR))), COLOUR[:, ::-1])


def test_any_leading_dimensions():
    """Tensors (..., C, H, W) and even (H, W) are images."""
    video = np.stack([COLOUR, COLOUR[:, ::-1]])[None]
    for function in (lambda x: F.resize(x, (8, 9)), lambda x: F.rotate(x, 30, fill=3), lambda x: F.gaussian_blur(x, 3), F.hflip):
        found = function(tensor(video))
        assert found.shape[:2] == (1, 2) and flambeau.equal(found[0, 1], function(tensor(video[0, 1])))
    assert F.resize(tensor(GREY[0]), (4, 5)).shape == (4, 5)
    with pytest.raises(TypeError, match="not a torch image"):
        F.hflip(flambeau.ones(3))
    with pytest.raises(TypeError, match="PIL Image or Tensor"):
        F.hflip(COLOUR)


# -- warps ---------------------------------------------------------------------------------------------------------


@both
def test_quarter_turns_are_exact(kind):
    """rotate turns counter-clockwise; with expand the size follows."""
    square = COLOUR[:, :15, :15]
    assert np.array_equal(numbers(F.rotate(kind(square), 90)), np.rot90(square, axes=(1, 2)))
    assert np.array_equal(numbers(F.rotate(kind(COLOUR), 90, expand=True)), np.rot90(COLOUR, axes=(1, 2)))
    assert np.array_equal(numbers(F.rotate(kind(COLOUR), 180)), COLOUR[:, ::-1, ::-1])
    assert numbers(F.rotate(kind(COLOUR), 45, expand=True)).shape == numbers(picture(COLOUR).rotate(45, expand=True)).shape
    assert np.array_equal(numbers(F.rotate(kind(COLOUR), 0)), COLOUR)


@pytest.mark.parametrize("mode", [InterpolationMode.NEAREST, InterpolationMode.BILINEAR])
def test_tensors_and_images_are_warped_alike(mode):
    """Rotations, affine maps and perspectives of a smooth picture agree between tensors and Pillow, away from the borders."""
    x, y = tensor(smooth()), picture(smooth())
    corners, moved = [[0, 0], [39, 0], [39, 31], [0, 31]], [[3, 2], [36, 4], [38, 30], [1, 27]]
    for change in (
        lambda i: F.rotate(i, 25, mode),
        lambda i: F.rotate(i, 25, mode, center=(10, 12)),
        lambda i: F.affine(i, 20, [3, -2], 1.3, [5.0, 8.0], mode),
        lambda i: F.perspective(i, corners, moved, mode),
    ):
        a, b = numbers(change(x)).astype(int), numbers(change(y)).astype(int)
        inside = (a > 0).all(0) & (b > 0).all(0)
        assert inside.mean() > 0.5 and np.quantile(np.abs(a - b)[:, inside], 0.9) <= 3


@both
def test_what_comes_from_outside_is_filled(kind):
    """fill is the colour of what the image does not cover: one number, or one for each channel."""
    turned = numbers(F.rotate(kind(smooth()), 45, fill=7))
    assert (turned[:, 0, 0] == 7).all()
    assert numbers(F.rotate(kind(smooth()), 45, fill=[1, 2, 3]))[:, 0, 0].tolist() == [1, 2, 3]
    moved = numbers(F.affine(kind(smooth()), 0, [5, 3], 1.0, 0.0, fill=9))
    assert np.array_equal(moved[:, 3:, 5:], smooth()[:, :-3, :-5]) and (moved[:, :3] == 9).all() and (moved[:, :, :5] == 9).all()
    with pytest.raises(ValueError, match="channels"):
        F.rotate(kind(smooth()), 45, fill=[1, 2])


def test_gradients_flow_through_warps():
    """An image that is learned can be augmented: rotate and resize have derivatives."""
    x = flambeau.rand(3, 8, 8, requires_grad=True)
    F.resize(F.rotate(x, 30, InterpolationMode.BILINEAR), (5, 5)).sum().backward()
    assert x.grad.shape == x.shape and x.grad.abs().sum() > 0


# -- colours -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 1.8])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "sharpness"])
def test_blends_are_pillows(name, factor):
    """Brightness, contrast, saturation and sharpness of tensors are ImageEnhance's, to rounding, and of images exactly."""
    enhance = {"saturation": "Color"}.get(name, name.capitalize())
    change = getattr(F, f"adjust_{name}")
    expected = numbers(getattr(ImageEnhance, enhance)(picture(COLOUR)).enhance(factor)).astype(int)
    assert np.array_equal(numbers(change(picture(COLOUR), factor)), expected)
    assert np.abs(numbers(change(tensor(COLOUR), factor)) - expected).max() <= 2
    in_fractions = change(tensor(COLOUR).float() / 255, factor).numpy() * 255
    assert np.abs(in_fractions - expected).max() <= 2
    with pytest.raises(ValueError, match="non-negative"):
        change(tensor(COLOUR), -1)


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.3])
def test_hues_go_around_the_circle(turn):
    """adjust_hue is colorsys' way around, pixel by pixel; greys stay grey."""
    x = COLOUR[:, :6, :5].astype(np.float32) / 255
    expected = np.empty_like(x)
    for i, j in np.ndindex(6, 5):
        h, s, v = colorsys.rgb_to_hsv(*x[:, i, j].tolist())
        expected[:, i, j] = colorsys.hsv_to_rgb((h + turn) % 1.0, s, v)
    assert np.allclose(F.adjust_hue(tensor(x), turn).numpy(), expected, atol=1e-5)
    assert F.adjust_hue(tensor(GREY), turn).tolist() == GREY.tolist()
    assert np.abs(numbers(F.adjust_hue(picture(smooth()), turn)).astype(int) - numbers(F.adjust_hue(tensor(smooth()), turn))).max() <= 8
    with pytest.raises(ValueError, match="hue_factor"):
        F.adjust_hue(tensor(COLOUR), 0.6)


def test_levels_are_pillows():
    """invert, posterize, solarize, autocontrast, equalize and grey levels of tensors are ImageOps'."""
    x, y = tensor(COLOUR), picture(COLOUR)
    for found, expected in (
        (F.invert(x), ImageOps.invert(y)),
        (F.posterize(x, 3), ImageOps.posterize(y, 3)),
        (F.solarize(x, 100), ImageOps.solarize(y, 100)),
        (F.equalize(x), ImageOps.equalize(y)),
        (F.equalize(tensor(smooth(70, 80))), ImageOps.equalize(picture(smooth(70, 80)))),
    ):
        assert np.array_equal(numbers(found), numbers(expected))
    for found, expected in (
        (F.autocontrast(x // 2 + 20), ImageOps.autocontrast(picture(COLOUR // 2 + 20))),
        (F.rgb_to_grayscale(x), y.convert("L")),
    ):
        assert np.abs(numbers(found).astype(int) - numbers(expected)).max() <= 1
    for name, arguments in (("invert", ()), ("posterize", (3,)), ("solarize", (100,)), ("equalize", ()), ("autocontrast", ())):
        assert np.array_equal(numbers(getattr(F, name)(y, *arguments)), numbers(getattr(ImageOps, name)(y, *arguments)))
    assert F.rgb_to_grayscale(x, 3).shape == (3, 17, 23) and transforms.Grayscale(3)(y).mode == "RGB" and F.to_grayscale(y).mode == "L"
    plain = flambeau.full((1, 3, 3), 9, dtype=flambeau.uint8)
    assert F.autocontrast(plain).tolist() == F.equalize(plain).tolist() == plain.tolist()


def test_gamma_is_a_power():
    """adjust_gamma is gain * x ** gamma of fractions."""
    x = flambeau.linspace(0, 1, 12).view(1, 3, 4)
    assert np.allclose(F.adjust_gamma(x, 2.0, 0.5).numpy(), 0.5 * x.numpy() ** 2)
    assert np.abs(numbers(F.adjust_gamma(picture(COLOUR), 0.7)).astype(int) - numbers(F.adjust_gamma(tensor(COLOUR), 0.7))).max() <= 1


@both
def test_blur_is_a_convolution_with_a_bell(kind):
    """gaussian_blur weighs the neighbours by exp(-x^2 / 2 sigma^2), with mirrored borders."""
    kx, ky = (np.exp(-0.5 * (np.arange(-n, n + 1) / s) ** 2) for n, s in ((1, 0.8), (2, 1.5)))
    kernel = torch.from_numpy(np.outer(ky / ky.sum(), kx / kx.sum()))
    padded = torch.nn.functional.pad(torch.from_numpy(COLOUR)[None].double(), [1, 1, 2, 2], mode="reflect")
    expected = torch.nn.functional.conv2d(padded, kernel.expand(3, 1, 5, 3), groups=3)[0].numpy()
    assert np.abs(numbers(F.gaussian_blur(kind(COLOUR), [3, 5], [0.8, 1.5])) - expected).max() <= 0.51
    with pytest.raises(ValueError, match="odd"):
        F.gaussian_blur(kind(COLOUR), 4)


# -- containers ----------------------------------------------------------------------------------------------------


def test_transforms_are_modules_and_functions():
    """Transforms can stand in nn.Sequential, have no parameters, and Lambda takes any function."""
    model = nn.Sequential(transforms.Resize(8), transforms.CenterCrop(6), transforms.Normalize([0.5], [0.5]))
    assert model(flambeau.rand(2, 3, 10, 12)).shape == (2, 3, 6, 6) and not list(model.parameters())
    assert transforms.Lambda(lambda x: x + 1)(1) == 2
    with pytest.raises(TypeError, match="callable"):
        transforms.Lambda(3)


REPRS = """
Compose([ToTensor(), Normalize((0.5,), [0.5])])                 | Compose(\\n    ToTensor()\\n    Normalize(mean=(0.5,), std=[0.5])\\n)
ConvertImageDtype(flambeau.float64)                             | ConvertImageDtype()
PILToTensor()                                                   | PILToTensor()
ToPILImage()                                                    | ToPILImage()
ToPILImage("L")                                                 | ToPILImage(mode=L)
Resize(5)                                                       | Resize(size=5, interpolation=bilinear, max_size=None, antialias=True)
Resize((5, 6), interpolation=2, antialias=False)                | Resize(size=(5, 6), interpolation=bilinear, max_size=None, antialias=False)
CenterCrop(4)                                                   | CenterCrop(size=(4, 4))
Pad(3, (1, 2, 3), "edge")                                       | Pad(padding=3, fill=(1, 2, 3), padding_mode=edge)
Lambda(abs)                                                     | Lambda()
RandomApply([CenterCrop(3)], 0.3)                               | RandomApply(\\n    p=0.3\\n    CenterCrop(size=(3, 3))\\n)
RandomOrder([CenterCrop(3)])                                    | RandomOrder(\\n    CenterCrop(size=(3, 3))\\n)
RandomChoice([CenterCrop(3)])                                   | RandomChoice(\\n    CenterCrop(size=(3, 3))\\n)(p=None)
RandomCrop(4, padding=1)                                        | RandomCrop(size=(4, 4), padding=1)
RandomHorizontalFlip()                                          | RandomHorizontalFlip(p=0.5)
RandomVerticalFlip(0.3)                                         | RandomVerticalFlip(p=0.3)
RandomPerspective()                                             | RandomPerspective(p=0.5)
RandomResizedCrop(5)                                            | RandomResizedCrop(size=(5, 5), scale=(0.08, 1.0), ratio=(0.75, 1.3333), interpolation=bilinear, antialias=True)
FiveCrop(3)                                                     | FiveCrop(size=(3, 3))
TenCrop(3)                                                      | TenCrop(size=(3, 3), vertical_flip=False)
LinearTransformation(flambeau.eye(2), flambeau.zeros(2))        | LinearTransformation(transformation_matrix=[[1.0, 0.0], [0.0, 1.0]], mean_vector=[0.0, 0.0])
ColorJitter(0.1, 0.2, (0.3, 0.4), 0.1)                          | ColorJitter(brightness=(0.9, 1.1), contrast=(0.8, 1.2), saturation=(0.3, 0.4), hue=(-0.1, 0.1))
ColorJitter()                                                   | ColorJitter(brightness=None, contrast=None, saturation=None, hue=None)
RandomRotation(5)                                               | RandomRotation(degrees=[-5.0, 5.0], interpolation=nearest, expand=False, fill=0)
RandomRotation((5, 7), expand=True, center=(1, 2), fill=3)      | RandomRotation(degrees=[5.0, 7.0], interpolation=nearest, expand=True, center=(1, 2), fill=3)
RandomAffine(5)                                                 | RandomAffine(degrees=[-5.0, 5.0])
RandomAffine((5, 6), (0.1, 0.2), (0.5, 0.6), 3, 2, 4, (1, 2))   | RandomAffine(degrees=[5.0, 6.0], translate=(0.1, 0.2), scale=(0.5, 0.6), shear=[-3.0, 3.0], interpolation=bilinear, fill=4, center=(1, 2))
Grayscale()                                                     | Grayscale(num_output_channels=1)
RandomGrayscale()                                               | RandomGrayscale(p=0.1)
RandomErasing()                                                 | RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False)
GaussianBlur(3)                                                 | GaussianBlur(kernel_size=(3, 3), sigma=(0.1, 2.0))
RandomInvert()                                                  | RandomInvert(p=0.5)
RandomPosterize(3)                                              | RandomPosterize(bits=3,p=0.5)
RandomSolarize(3.0)                                             | RandomSolarize(threshold=3.0,p=0.5)
RandomAdjustSharpness(2.0)                                      | RandomAdjustSharpness(sharpness_factor=2.0,p=0.5)
RandomAutocontrast()                                            | RandomAutocontrast(p=0.5)
RandomEqualize()                                                | RandomEqualize(p=0.5)
RandAugment()                                                   | RandAugment(num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None)
TrivialAugmentWide()                                            | TrivialAugmentWide(num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None)
"""


@pytest.mark.parametrize("line", REPRS.strip().splitlines())
def test_reprs_are_torchvisions(line):
    """Logs of a run show its transforms as torchvision would."""
    call, _, expected = line.partition("|")
    made = eval(call, {**vars(transforms), "flambeau": flambeau})
    assert repr(made) == expected.strip().replace("\\n", "\n")


WRONG = """
Resize("5") TypeError
Resize((1, 2, 3)) ValueError
CenterCrop((1, 2, 3)) ValueError
Pad("a") TypeError
Pad(1, padding_mode="mirror") ValueError
RandomRotation(-5) ValueError
RandomRotation((1, 2, 3)) ValueError
RandomAffine(5, translate=(2, 0)) ValueError
RandomAffine(5, scale=(0, 1)) ValueError
RandomAffine(5, translate=3) TypeError
ColorJitter(-1) ValueError
ColorJitter(hue=0.7) ValueError
ColorJitter(brightness="a") TypeError
RandomErasing(value="noise") ValueError
RandomErasing(p=2) ValueError
RandomErasing(scale=3) TypeError
RandomResizedCrop(5, scale=1) TypeError
GaussianBlur(4) ValueError
GaussianBlur(3, (2, 1)) ValueError
RandomChoice(3) TypeError
RandAugment(magnitude=31) ValueError
Resize(5, interpolation="bilinear") TypeError
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_options_are_refused_at_once(line):
    """A transform that cannot work says so when it is made, not at the first image."""
    call, _, kind = line.rpartition(" ")
    with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[kind]):
        eval(call, {**vars(transforms), "flambeau": flambeau})


def test_the_newer_names_serve_too():
    """transforms.v2 has the classes, and ToImage with ToDtype(scale=True) is ToTensor."""
    from flambeau.vision.transforms import v2

    usual = v2.Compose([v2.ToImage(), v2.ToDtype(flambeau.float32, scale=True)])
    for source in (picture(COLOUR), COLOUR.transpose(1, 2, 0), tensor(COLOUR)):
        assert np.array_equal(usual(source).numpy(), COLOUR / np.float32(255))
    assert v2.RandomCrop is transforms.RandomCrop and transforms.v2 is v2
    assert (
        v2.RGB()(picture(GREY)).mode == "RGB"
        and v2.Identity()(3) == 3
        and math.isclose(v2.ToDtype(flambeau.float64)(tensor(GREY)).max(), GREY.max())
    )


def test_whole_factors_and_grey_images():
    """A factor of 2 is one of 2.0 for bytes too; three means do not make three channels of one."""
    assert np.array_equal(F.adjust_sharpness(tensor(COLOUR), 2).numpy(), F.adjust_sharpness(tensor(COLOUR), 2.0).numpy())
    with pytest.raises(RuntimeError, match="channels"):
        F.normalize(flambeau.ones(1, 4, 4), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    assert F.normalize(flambeau.ones(1, 4, 4), (0.5,), (0.5,)).mean() == 1
