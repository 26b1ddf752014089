"""torch.torch_version: versions that are strings and compare as versions.

>>> TorchVersion("2.13.0+cpu") >= "2.8", TorchVersion("2.13.0") < (2, 14), TorchVersion("2.13.0") == "2.13"
(True, True, True)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from flambeau.version import torch_version

__all__ = ["TorchVersion"]

_FORM = re.compile(
    r"\s*v?(?P<release>\d+(\.\d+)*)"
    r"([-_.]?(?P<pre>a|alpha|b|beta|c|rc|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"([-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"([-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(\+(?P<local>[a-z0-9]+([-_.][a-z0-9]+)*))?\s*",
    re.IGNORECASE,
)
_FIRST, _LAST = -1, 9  # before and after every stage of a release: a, b, rc


def key(version: str) -> tuple:
    """What a version is compared by, as PEP 440 has it: 1.0.dev1 < 1.0a1 < 1.0rc1 < 1.0 < 1.0+local < 1.0.post1. ValueError if it is none."""
    found = _FORM.fullmatch(version)
    if found is None:
        raise ValueError(f"not a version: {version!r}")
    release = [int(n) for n in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    stage = {"a": 0, "b": 1, "c": 2, "r": 2, "p": 2}[found["pre"][0].lower()] if found["pre"] else _LAST
    is_dev = found["dev"] is not None
    if is_dev and not found["pre"] and not found["post"]:
        stage = _FIRST
    post = int(found["post_number"] or 0) if found["post"] else -1
    dev = (0, int(found["dev"] or 0)) if is_dev else (1, 0)
    local = [(1, int(p), "") if p.isdigit() else (0, 0, p.lower()) for p in re.split(r"[-_.]", found["local"] or "") if p]
    return release, stage, int(found["pre_number"] or 0), post, dev, local


class TorchVersion(str):
    """A version. Compared with a string, or a tuple of its parts, it is compared as a version; with what is none, as text."""

    def _keys(self, other: Any) -> tuple[Any, Any]:
        if not isinstance(other, str) and isinstance(other, Iterable):
            other = ".".join(map(str, other))
        try:
            return key(str(self)), key(str(other))
        except ValueError:
            return str(self), str(other)

    def __lt__(self, other) -> bool:
        own, others = self._keys(other)
        return own < others

    def __le__(self, other) -> bool:
        own, others = self._keys(other)
        return own <= others

    def __gt__(self, other) -> bool:
        own, others = self._keys(other)
        return own > others

    def __ge__(self, other) -> bool:
        own, others = self._keys(other)
        return own >= others

    def __eq__(self, other) -> bool:
        own, others = self._keys(other)
        return own == others

    def __ne__(self, other) -> bool:
        return not self == other

    __hash__ = str.__hash__


compatible = TorchVersion(f"{torch_version}+flambeau")  # what torch.__version__ is under the alias
