"""timm: four families of models by name: a step of training each, features, and its augmentations, losses, schedules and averages."""

import numpy as np
import timm
import torch
from timm.data import Mixup, create_transform, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, accuracy

torch.set_default_dtype(torch.float64)  # batch normalization of two images makes much of the last digit of float32
for name, size in (
    ("resnet18", 64),
    ("vit_tiny_patch16_224", 64),
    ("efficientnet_b0", 64),
    ("convnext_atto", 64),
    ("mobilenetv3_small_050", 64),
):
    torch.manual_seed(0)
    options = {"img_size": size} if name.startswith("vit") else {}
    model = timm.create_model(name, num_classes=10, **options)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    images, labels = torch.randn(2, 3, size, size), torch.tensor([3, 7])
    model.train()
    for _ in range(2):
        loss = LabelSmoothingCrossEntropy(0.1)(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(name, "loss", loss.item())
    model.eval()
    with torch.no_grad():
        print(name, sum(p.numel() for p in model.parameters()), tuple(model.forward_features(images).shape), model(images)[0, :3].tolist())

body = timm.create_model("resnet18", features_only=True, out_indices=(1, 2, 3))
print("features", [tuple(f.shape) for f in body(torch.randn(1, 3, 64, 64))], body.feature_info.channels())
print("models", len(timm.list_models("resnet*")), timm.list_models("vit_tiny*"))
average = ModelEmaV3(model, decay=0.5)
average.update(model)
schedule = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-5)
for epoch in range(4):
    schedule.step(epoch)
    print("rate", optimizer.param_groups[0]["lr"])
print("top", [float(a) for a in accuracy(torch.eye(4, 10) + torch.arange(10) / 20, torch.tensor([0, 1, 2, 3]), topk=(1, 5))])
print(resolve_data_config({}, model=model)["input_size"])
print(create_transform(224, is_training=False))
np.random.seed(0)
mixed, targets = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=10)(images, labels)
print("mixed", mixed.sum().item(), targets.sum(0).tolist())
