"""The name under which PyTorch has anomaly detection: see anomaly.py."""

from flambeau.autograd.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
