"""Captum: attributions of inputs, layers and neurons, noise tunnels, infidelity."""

import numpy
import torch
import torch.nn as nn
from captum.attr import (
    Deconvolution,
    DeepLift,
    DeepLiftShap,
    FeatureAblation,
    FeaturePermutation,
    GradientShap,
    GuidedBackprop,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    LayerActivation,
    LayerConductance,
    LayerGradCam,
    LayerIntegratedGradients,
    NeuronGradient,
    NoiseTunnel,
    Occlusion,
    Saliency,
    ShapleyValueSampling,
)
from captum.metrics import infidelity, sensitivity_max

torch.manual_seed(0)

numpy.random.seed(0)
m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10), nn.ReLU(), nn.Linear(10, 3)).eval()
x = torch.randn(2, 1, 8, 8, requires_grad=True)
b = torch.zeros_like(x)


def show(n, a):
    print(n, tuple(a.shape), round(a.sum().item(), 4), round(a.abs().sum().item(), 4))


ig = IntegratedGradients(m)
a, d = ig.attribute(x, b, target=1, return_convergence_delta=True, n_steps=20)
show("ig", a)
print([round(v, 5) for v in d.tolist()])
show("sal", Saliency(m).attribute(x, target=0))
show("ixg", InputXGradient(m).attribute(x, target=2))
show("gbp", GuidedBackprop(m).attribute(x, target=2))
show("deconv", Deconvolution(m).attribute(x, target=2))
show("dl", DeepLift(m).attribute(x, b, target=1))
torch.manual_seed(1)
show("dls", DeepLiftShap(m).attribute(x, torch.zeros(3, 1, 8, 8), target=1))
torch.manual_seed(1)
show("gs", GradientShap(m).attribute(x, torch.zeros(2, 1, 8, 8), target=1, n_samples=4))
torch.manual_seed(1)
show("nt", NoiseTunnel(ig).attribute(x, target=1, nt_samples=3, nt_type="smoothgrad_sq", n_steps=5))
show("occ", Occlusion(m).attribute(x, sliding_window_shapes=(1, 3, 3), target=1))
show("abl", FeatureAblation(m).attribute(x, target=1, feature_mask=torch.arange(4).repeat_interleave(16).view(1, 1, 8, 8)))
show("cam", LayerGradCam(m, m[0]).attribute(x, target=1))
show("ggc", GuidedGradCam(m, m[0]).attribute(x, target=1))
show("la", LayerActivation(m, m[2]).attribute(x))
show("lc", LayerConductance(m, m[0]).attribute(x, b, target=1, n_steps=6))
show("lig", LayerIntegratedGradients(m, m[0]).attribute(x, b, target=1, n_steps=5))
show("ng", NeuronGradient(m, m[4]).attribute(x, (3,)))
mask = torch.arange(4).repeat_interleave(16).view(1, 1, 8, 8)
torch.manual_seed(2)
show("sv", ShapleyValueSampling(m).attribute(x, target=1, feature_mask=mask, n_samples=3))

torch.manual_seed(3)
print(infidelity(m, lambda i: (torch.ones_like(i) * 0.01, i - 0.01), x, a, target=1).tolist())
print(sensitivity_max(ig.attribute, x, target=1, n_steps=5).tolist())
fp = FeaturePermutation(m)
torch.manual_seed(4)
show("fp", fp.attribute(x, target=1, feature_mask=mask))
