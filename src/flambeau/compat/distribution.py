"""What importlib.metadata finds for `torch` and `torchvision` while they mean Flambeau: a name and a version, which libraries compare."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import flambeau.version
from flambeau.compat.alias import PACKAGES, find

VERSIONS = {"torch": flambeau.version.torch_version, "torchvision": flambeau.version.torchvision_version}


class Pretended(Distribution):
    """A distribution without files."""

    def __init__(self, package: str):
        self.package = package

    def read_text(self, filename: str) -> str | None:
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {self.package}\nVersion: {VERSIONS[self.package]}\n",
            "INSTALLER": "flambeau\n",
            "top_level.txt": f"{self.package}\n",
        }
        return texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(flambeau.version.__file__).parent / path


def pretended(package: str) -> Iterator[Distribution]:
    """The distribution of this name, if Flambeau has the package it stands for."""
    if package in VERSIONS and find(PACKAGES[package]) is not None:
        yield Pretended(package)
