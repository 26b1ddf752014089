"""Extensions: streams that change bytes on their way to a file and back, named in the metadata so that a reader knows how to undo them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from importlib.util import find_spec
from typing import IO

__all__ = ["Extension", "ExtensionRegistry", "StreamTransformExtension", "ZStandard"]


class Extension(abc.ABC):
    """Something a file was written with. Its descriptor, "name" or "name/version", stands in the metadata."""

    @staticmethod
    @abc.abstractmethod
    def registry_name() -> str:
        """The name under which a reader looks for the extension."""

    @staticmethod
    @abc.abstractmethod
    def from_descriptor(version: str) -> Extension:
        """The extension for files that were written with this version of it."""

    @abc.abstractmethod
    def get_descriptor(self) -> str:
        """What the metadata says: the name, and behind a slash the version if there is one."""


class StreamTransformExtension(Extension):
    """An extension that wraps streams: to compress or to encrypt."""

    @abc.abstractmethod
    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        """A stream that writes to `output`. When it is closed, everything has been written, and `output` is still open."""

    @abc.abstractmethod
    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        """A stream that reads from `input`."""


class ZStandard(StreamTransformExtension):
    """Compression with Zstandard, by the package `pyzstd`."""

    @staticmethod
    def is_available() -> bool:
        """Whether `pyzstd` is installed."""
        return find_spec("pyzstd") is not None

    @staticmethod
    def from_descriptor(version: str) -> ZStandard:
        if version.partition(".")[0] != "1":
            raise ValueError(f"Unknown extension version={version!r} of Zstandard: this is version 1")
        if not ZStandard.is_available():
            raise ValueError("Stream with ZStandard compression cannot be processed because no module named 'pyzstd': pip install pyzstd")
        return ZStandard()

    @staticmethod
    def registry_name() -> str:
        return "stream.zstd"

    def __init__(self) -> None:
        if not ZStandard.is_available():
            raise ValueError("ZStandard extension is unavailable because no module named 'pyzstd': pip install pyzstd")

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        import pyzstd

        return pyzstd.ZstdFile(output, mode="wb")

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        import pyzstd

        return pyzstd.ZstdFile(input, mode="rb")


class ExtensionRegistry:
    """The extensions that a reader knows, by their names."""

    def __init__(self) -> None:
        self.extensions: dict[str, type[Extension]] = {kind.registry_name(): kind for kind in (ZStandard,)}

    def register(self, cls: type[Extension]) -> None:
        """Add an extension, in place of another one of its name."""
        self.extensions[cls.registry_name()] = cls

    def from_descriptor_list(self, descriptors: Sequence[str]) -> Sequence[Extension]:
        """The extensions that undo what these did: in their order."""
        return [self._from_descriptor(descriptor) for descriptor in descriptors]

    def _from_descriptor(self, descriptor: str) -> Extension:
        name, _, version = descriptor.partition("/")
        if name not in self.extensions:
            known = ", ".join(sorted(self.extensions))
            raise ValueError(f"Unknown extension type={name!r} that a file was written with: known are {known}; register() adds another")
        return self.extensions[name].from_descriptor(version or "0")
