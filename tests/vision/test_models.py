"""Models by torchvision's names: its layers, its number of weights, its initial weights for a seed. The numbers here are torchvision 0.28's."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.vision import models, ops

# name -> weights with 1000 classes, entries of the state dictionary, some of their names
KNOWN = {
    "resnet18": (11_689_512, 122, ["conv1.weight", "layer1.0.bn1.running_var", "layer4.0.downsample.0.weight", "fc.bias"]),
    "resnet50": (25_557_032, 320, ["layer3.5.conv3.weight", "layer2.0.downsample.1.num_batches_tracked"]),
    "resnext50_32x4d": (25_028_904, 320, ["layer1.2.conv2.weight"]),
    "mobilenet_v2": (
        3_504_872,
        314,
        ["features.0.0.weight", "features.2.conv.1.1.running_mean", "features.18.1.bias", "classifier.1.weight"],
    ),
    "squeezenet1_0": (1_248_424, 52, ["features.3.squeeze.weight", "features.12.expand3x3.bias", "classifier.1.bias"]),
    "squeezenet1_1": (1_235_496, 52, ["features.3.expand1x1.weight"]),
}
# with 7 classes and seed 0: the sum of all weights, and the first outputs for a random image of 64 x 64
SEEDED = {
    "resnet18": (4677.161409937977, [-0.058137521147727966, 0.4032732844352722, 0.10145484656095505]),
    "squeezenet1_1": (-44.27026283648112, [0.540259063243866, 0.015146206133067608, 0.01524600200355053]),
    "mobilenet_v2": (17061.56677522845, [-1.1472110761356902e-10, -3.0015107066461155e-10, 2.3075125143989794e-11]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_layers_are_those_of_checkpoints(name):
    """As many weights and buffers as torchvision's, under the same names: its files can be loaded."""
    with flambeau.device("meta"):
        model = models.get_model(name)
    weights, entries, some = KNOWN[name]
    assert sum(p.numel() for p in model.parameters()) == weights
    assert len(model.state_dict()) == entries and set(some) <= set(model.state_dict())


@pytest.mark.parametrize("name", SEEDED)
def test_equal_seeds_give_equal_weights(name):
    """Weights are drawn in torchvision's order, so that a seed means the same model, and the same outputs."""
    flambeau.manual_seed(0)
    model = getattr(models, name)(num_classes=7).eval()
    total, outputs = SEEDED[name]
    assert sum(p.double().sum().item() for p in model.parameters()) == pytest.approx(total, abs=1e-9)
    found = model(flambeau.randn(1, 3, 64, 64))[0, :3]
    assert found.tolist() == pytest.approx(outputs, rel=1e-4, abs=1e-14)


def test_large_fully_connected_layers_have_their_shapes():
    """VGG and AlexNet: the names of the classifier's layers, the number of weights, which would take long to draw."""
    with flambeau.device("meta"):
        assert sum(p.numel() for p in models.vgg16().parameters()) == 138_357_544
        assert sum(p.numel() for p in models.vgg11_bn().parameters()) == 132_868_840
        assert sum(p.numel() for p in models.alexnet().parameters()) == 61_100_840
        assert models.vgg16().state_dict()["classifier.6.weight"].shape == (1000, 4096)


def test_options_of_residual_networks():
    """Dilation in the place of strides keeps the resolution; zero_init_residual makes every block begin as the identity."""
    model = models.ResNet(
        models.resnet.Bottleneck, [1, 1, 1, 1], 3, zero_init_residual=True, replace_stride_with_dilation=[False, True, True]
    )
    assert model.layer4[0].conv2.dilation == (2, 2) and model.layer4[0].conv2.stride == (1, 1)
    assert not model.layer1[0].bn3.weight.detach().any()
    loss = model(flambeau.randn(2, 3, 32, 32)).sum()
    loss.backward()
    assert model.conv1.weight.grad is not None and model(flambeau.randn(2, 3, 32, 32)).shape == (2, 3)
    with pytest.raises(ValueError, match="3-element"):
        models.resnet18(replace_stride_with_dilation=[True])
    with pytest.raises(NotImplementedError, match="Dilation"):
        models.resnet18(replace_stride_with_dilation=[False, False, True])


def test_dense_blocks_can_save_memory():
    """memory_efficient computes parts again in backward: the same gradients."""
    x, gradients = flambeau.randn(2, 3, 32, 32), []
    for efficient in (False, True):
        flambeau.manual_seed(0)
        model = models.DenseNet(4, (2, 2), 8, num_classes=3, memory_efficient=efficient)
        model(x).square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(flambeau.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_trained_weights_are_refused_with_advice():
    """Nothing is downloaded: whoever asks for trained weights, the old way or the new, is told what to do."""
    for ask in (
        lambda: models.resnet18(weights="DEFAULT"),
        lambda: models.vgg16(pretrained=True),
        lambda: models.ResNet50_Weights.IMAGENET1K_V2,
    ):
        with pytest.raises(NotImplementedError, match="downloads no trained weights"):
            ask()
    assert models.alexnet.__name__ == "alexnet"


def test_models_by_name():
    """list_models takes patterns; an unknown name is answered with the known ones."""
    assert models.list_models(include="vgg*", exclude="*_bn") == ["vgg11", "vgg13", "vgg16", "vgg19"]
    assert "resnet50" in models.list_models(models.resnet) and "alexnet" not in models.list_models(models.resnet)
    with pytest.raises(ValueError, match="resnet18"):
        models.get_model("resnet19")
    with pytest.raises(AttributeError, match="resnet18"):
        _ = models.swin_t


def test_overlap_of_boxes_with_distance_and_proportions():
    """distance_box_iou and complete_box_iou: a box with itself is 1, one far away is negative, other proportions cost more."""
    boxes = flambeau.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 5.0], [8.0, 8.0, 9.0, 9.0]])
    distance, complete = ops.distance_box_iou(boxes, boxes), ops.complete_box_iou(boxes, boxes)
    assert distance.diagonal().tolist() == pytest.approx([1.0] * 3) and complete.diagonal().tolist() == pytest.approx([1.0] * 3)
    assert distance[0].tolist() == pytest.approx([1.0, 1 / 11 - 5 / 34, -56.25 * 2 / 162], rel=1e-6)
    assert complete[0, 1] < distance[0, 1] and complete[0, 2].item() == pytest.approx(distance[0, 2].item())
