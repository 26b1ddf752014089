"""segmentation-models-pytorch: four decoders on small encoders, with its losses and metrics."""

import segmentation_models_pytorch as smp
import torch

KINDS = {
    "Unet": lambda: smp.Unet("resnet18", encoder_weights=None, classes=2),
    "FPN": lambda: smp.FPN("mobilenet_v2", encoder_weights=None, classes=2),
    "DeepLabV3Plus": lambda: smp.DeepLabV3Plus("resnet18", encoder_weights=None, classes=2),
    "Linknet": lambda: smp.Linknet("efficientnet-b0", encoder_weights=None, classes=2),
}
torch.set_default_dtype(torch.float64)  # batch normalization of two images makes much of the last digit of float32
for name, make in KINDS.items():
    torch.manual_seed(0)
    model = make()
    images, masks = torch.rand(2, 3, 64, 64), torch.randint(2, (2, 64, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = smp.losses.DiceLoss("multiclass")
    for _ in range(2):
        loss = loss_of(model(images), masks) + smp.losses.FocalLoss("multiclass")(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(name, loss.item())
    counts = smp.metrics.get_stats(model.eval()(images).argmax(1), masks, mode="multiclass", num_classes=2)
    print(name, smp.metrics.iou_score(*counts, reduction="micro").item(), sum(p.numel() for p in model.parameters()))
