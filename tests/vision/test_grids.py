"""Grids, image files, boxes."""

from __future__ import annotations

import io

import numpy as np
import pytest

import flambeau
from flambeau.vision import io as vision_io
from flambeau.vision import ops, utils

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


def test_a_grid_is_images_with_margins():
    """make_grid puts image i into row i // nrow, column i % nrow, with margins between and around."""
    x = np.arange(5 * 3 * 4 * 6, dtype=np.float32).reshape(5, 3, 4, 6)
    grid = utils.make_grid(flambeau.from_numpy(x), nrow=2, padding=1, pad_value=-7.0).numpy()
    assert grid.shape == (3, 3 * 5 + 1, 2 * 7 + 1)
    for i in range(5):
        top, left = (i // 2) * 5 + 1, (i % 2) * 7 + 1
        assert np.array_equal(grid[:, top : top + 4, left : left + 6], x[i])
    assert (grid[:, 0] == -7).all() and (grid[:, :, 7] == -7).all() and (grid[:, 11:, 8:] == -7).all()


def test_greys_lists_and_single_images():
    """One channel becomes three; lists are stacked; a single image gets no margin."""
    grey = flambeau.rand(1, 4, 5)
    assert flambeau.equal(utils.make_grid([grey, grey]), utils.make_grid(flambeau.stack([grey, grey])))
    assert utils.make_grid([grey, grey]).shape == (3, 8, 16)
    for one in (grey, grey[0], grey[None]):
        assert flambeau.equal(utils.make_grid(one), grey.expand(3, 4, 5))
    with pytest.raises(TypeError, match="list of tensors"):
        utils.make_grid("picture")


def test_values_are_scaled_when_asked():
    """normalize=True maps the lowest value to 0 and the highest to 1: of all, of each, or of a range; the input stays as it is."""
    x = flambeau.tensor([0.0, 2.0, 4.0, 8.0]).view(2, 1, 1, 2).expand(2, 3, 1, 2).clone()
    before = x.clone()
    assert utils.make_grid(x, padding=0, normalize=True)[0].tolist() == [[0.0, 0.25, 0.5, 1.0]]
    assert utils.make_grid(x, padding=0, normalize=True, scale_each=True)[0].tolist() == [[0.0, 1.0, 0.0, 1.0]]
    assert utils.make_grid(x, padding=0, normalize=True, value_range=(2, 4))[0].tolist() == [[0.0, 0.0, 1.0, 1.0]]
    assert flambeau.equal(x, before)


def test_images_are_saved(tmp_path):
    """save_image writes fractions as bytes, rounded, into a path or a file object, and does not draw gradients along."""
    x = flambeau.rand(3, 5, 4, requires_grad=True)
    utils.save_image(x, tmp_path / "a.png")
    buffer = io.BytesIO()
    utils.save_image([x, x], buffer, format="png", nrow=1, padding=0)
    expected = (x.detach().numpy().transpose(1, 2, 0) * 255 + 0.5).astype(np.uint8)
    with Image.open(tmp_path / "a.png") as saved:
        assert np.array_equal(np.asarray(saved), expected)
    assert np.array_equal(np.asarray(Image.open(buffer)), np.concatenate([expected, expected]))


def test_files_are_read_and_written(tmp_path):
    """read_image gives the bytes of write_png, in the channels that are asked for."""
    x = flambeau.randint(0, 256, (3, 5, 4)).to(flambeau.uint8)
    vision_io.write_png(x, tmp_path / "a.png")
    assert flambeau.equal(vision_io.read_image(tmp_path / "a.png"), x)
    assert vision_io.read_image(str(tmp_path / "a.png"), vision_io.ImageReadMode.GRAY).shape == (1, 5, 4)
    assert vision_io.decode_image(vision_io.read_file(tmp_path / "a.png"), "RGB_ALPHA").shape == (4, 5, 4)
    vision_io.write_jpeg(x, tmp_path / "a.jpg", quality=90)
    assert vision_io.read_image(tmp_path / "a.jpg").shape == (3, 5, 4)


def test_boxes_are_drawn():
    """draw_bounding_boxes draws the edges in their colours and leaves the rest, and the input, alone."""
    x = flambeau.zeros(3, 12, 14, dtype=flambeau.uint8)
    boxes = flambeau.tensor([[1.0, 2.0, 8.0, 9.0], [3, 3, 12, 10]])
    drawn = utils.draw_bounding_boxes(x, boxes, colors=["red", (0, 0, 255)])
    assert drawn[:, 2, 1].tolist() == [255, 0, 0] and drawn[:, 10, 12].tolist() == [0, 0, 255]
    assert drawn[:, 5, 5].tolist() == [0, 0, 0] and x.sum() == 0
    assert utils.draw_bounding_boxes(x.float(), boxes, labels=["a", None], fill=True).dtype is flambeau.float32
    with pytest.raises(ValueError, match="xmin"):
        utils.draw_bounding_boxes(x, flambeau.tensor([[5, 5, 1, 1]]))
    with pytest.raises(ValueError, match="labels"):
        utils.draw_bounding_boxes(x, boxes, labels=["a"])


BOXES = flambeau.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 24.0], [0.0, 0.0, 10.0, 9.0]])


def test_overlaps_of_boxes():
    """Areas and intersections over unions, by hand."""
    assert ops.box_area(BOXES).tolist() == [100, 100, 40, 90]
    assert np.allclose(ops.box_iou(BOXES[:1], BOXES).numpy(), [[1, 81 / 119, 0, 0.9]])
    apart = ops.generalized_box_iou(BOXES[:1], BOXES[2:3]).item()
    assert np.isclose(apart, -(30 * 24 - 140) / (30 * 24))
    assert ops.box_area((BOXES * 20).to(flambeau.uint8)).dtype is flambeau.int32


def test_the_best_of_overlapping_boxes_remain():
    """nms keeps the best, removes what overlaps it, and does so within categories only when batched."""
    scores = flambeau.tensor([0.5, 0.9, 0.1, 0.8])
    assert ops.nms(BOXES, scores, 0.7).tolist() == [1, 3, 2]
    assert ops.nms(BOXES, scores, 0.5).tolist() == [1, 2]
    assert ops.batched_nms(BOXES, scores, flambeau.tensor([0, 1, 0, 0]), 0.5).tolist() == [1, 3, 2]
    assert ops.nms(BOXES[:0], scores[:0], 0.5).tolist() == []


def test_boxes_are_converted_clipped_and_sorted_out():
    """Every description of a box can be turned into every other; boxes end at the image; small ones go."""
    for name in ("xyxy", "xywh", "cxcywh"):
        assert flambeau.equal(ops.box_convert(ops.box_convert(BOXES, "xyxy", name), name, "xyxy"), BOXES)
    assert ops.box_convert(BOXES[1:2], "xyxy", "cxcywh").tolist() == [[6, 6, 10, 10]]
    assert ops.clip_boxes_to_image(BOXES, (8, 25))[2].tolist() == [20, 8, 25, 8]
    assert ops.remove_small_boxes(BOXES, 5).tolist() == [0, 1, 3]
    with pytest.raises(ValueError, match="xyxy"):
        ops.box_convert(BOXES, "xyxy", "polar")


def test_frozen_batch_norm_is_batch_norm_in_evaluation():
    """FrozenBatchNorm2d takes the state of a BatchNorm2d and gives its results, with nothing to learn."""
    norm = torch.nn.BatchNorm2d(3)
    norm(torch.randn(8, 3, 4, 4))
    torch.nn.init.uniform_(norm.weight)
    frozen = ops.misc.FrozenBatchNorm2d(3)
    frozen.load_state_dict({name: flambeau.from_numpy(value.numpy()) for name, value in norm.state_dict().items()})
    x = torch.randn(2, 3, 4, 5)
    assert np.allclose(frozen(flambeau.from_numpy(x.numpy())).numpy(), norm.eval()(x).detach().numpy(), atol=1e-6)
    assert not list(frozen.parameters()) and list(frozen.state_dict()) == ["weight", "bias", "running_mean", "running_var"]
    assert repr(frozen) == "FrozenBatchNorm2d(3, eps=1e-05)"


def test_masks_over_an_image():
    """A mask tints its pixels by alpha, the rest stays, and where two masks meet there is black."""
    image = flambeau.full((3, 1, 3), 100, dtype=flambeau.uint8)
    masks = flambeau.tensor([[[True, True, False]], [[False, True, False]]])
    found = utils.draw_segmentation_masks(image, masks, alpha=0.5, colors=[(200, 0, 0), "blue"])
    assert found[:, 0].T.tolist() == [[150, 50, 50], [50, 50, 50], [100, 100, 100]] and found.dtype is flambeau.uint8
    with pytest.raises(ValueError, match="bool"):
        utils.draw_segmentation_masks(image, masks.float())
