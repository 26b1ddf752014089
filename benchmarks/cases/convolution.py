"""Convolution and pooling in float32, forward alone and with the gradients of everything."""

from __future__ import annotations

from benchmarks.case import case


def _layer(torch, device, backward, shape, weight, **options):
    """conv2d of random numbers; with `backward` also the gradients of input, weight and bias."""
    x, w, b = (torch.randn(*size, device=device, requires_grad=backward) for size in (shape, weight, weight[:1]))
    if not backward:
        return lambda: torch.nn.functional.conv2d(x, w, b, **options)
    output_grad = torch.randn(*torch.nn.functional.conv2d(x, w, b, **options).shape, device=device)

    def step():
        x.grad = w.grad = b.grad = None
        torch.nn.functional.conv2d(x, w, b, **options).backward(output_grad)

    return step


@case(wanted=0.8, backward=[False, True])
def conv_3x3(torch, device, backward):
    """64 to 64 channels, 3 x 3, on 8 images of 56 x 56: the middle of a residual network."""
    return _layer(torch, device, backward, (8, 64, 56, 56), (64, 64, 3, 3), padding=1)


@case(wanted=0.8, backward=[False, True])
def conv_3x3_deep(torch, device, backward):
    """256 to 256 channels, 3 x 3, on 8 images of 14 x 14: its end."""
    return _layer(torch, device, backward, (8, 256, 14, 14), (256, 256, 3, 3), padding=1)


@case(wanted=1.0, backward=[False, True])
def conv_strided(torch, device, backward):
    """64 to 128 channels, 3 x 3 with stride 2, on 8 images of 56 x 56."""
    return _layer(torch, device, backward, (8, 64, 56, 56), (128, 64, 3, 3), padding=1, stride=2)


@case(wanted=1.0, backward=[False, True])
def conv_stem(torch, device, backward):
    """3 to 64 channels, 7 x 7 with stride 2, on 4 images of 224 x 224: its beginning."""
    return _layer(torch, device, backward, (4, 3, 224, 224), (64, 3, 7, 7), padding=3, stride=2)


@case(wanted=1.0, backward=[False, True])
def conv_1x1(torch, device, backward):
    """256 to 64 channels, 1 x 1, on 8 images of 28 x 28: a matrix product."""
    return _layer(torch, device, backward, (8, 256, 28, 28), (64, 256, 1, 1))


@case(wanted=0.8, backward=[False, True])
def conv_depthwise(torch, device, backward):
    """96 channels, each with its own 3 x 3, on 8 images of 56 x 56."""
    return _layer(torch, device, backward, (8, 96, 56, 56), (96, 1, 3, 3), padding=1, groups=96)


@case(wanted=0.7, backward=[False, True])
def max_pool(torch, device, backward):
    """The greatest of 2 x 2, on 8 x 64 planes of 56 x 56."""
    x = torch.randn(8, 64, 56, 56, device=device, requires_grad=backward)
    if not backward:
        return lambda: torch.nn.functional.max_pool2d(x, 2)
    output_grad = torch.randn(8, 64, 28, 28, device=device)

    def step():
        x.grad = None
        torch.nn.functional.max_pool2d(x, 2).backward(output_grad)

    return step


@case(wanted=0.8)
def small_cnn(torch, device):
    """Gradients of two convolutions with relu and max pooling, 1 to 32 to 64 channels, on 64 images of 28 x 28."""
    F = torch.nn.functional
    x = torch.randn(64, 1, 28, 28, device=device)
    shapes = ((32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,))
    parameters = [(torch.randn(*shape, device=device) * 0.1).requires_grad_() for shape in shapes]

    def step():
        for p in parameters:
            p.grad = None
        w1, b1, w2, b2 = parameters
        hidden = F.max_pool2d(F.conv2d(x, w1, b1).relu(), 2)
        F.max_pool2d(F.conv2d(hidden, w2, b2).relu(), 2).sum().backward()

    return step
