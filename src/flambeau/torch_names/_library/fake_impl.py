"""torch._library.fake_impl"""

from flambeau.library.fakes import FakeImpl, FakeImplCtx
from flambeau.library.fakes import context as set_ctx_getter

__all__ = ["FakeImplCtx", "FakeImplHolder", "set_ctx_getter"]

FakeImplHolder = FakeImpl
