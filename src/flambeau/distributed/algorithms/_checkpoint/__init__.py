"""Modules whose activations are not kept."""

from __future__ import annotations
