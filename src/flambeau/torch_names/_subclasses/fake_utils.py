"""torch._subclasses.fake_utils"""

from flambeau.library.fake_checking import CrossRefFakeMode, MetadataMismatchError

__all__ = ["CrossRefFakeMode", "MetadataMismatchError"]
