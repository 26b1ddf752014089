"""save(state, writer), load(state, reader): the order of arguments before checkpoint_id came."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau import errors

F = TypeVar("F", bound=Callable[..., Any])


def storage_may_be_second(keyword: str) -> Callable[[F], F]:
    """Take a second positional argument for `keyword`, and warn."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(state_dict: Any, *old: Any, **kwargs: Any) -> Any:
            if len(old) > 1 or (old and keyword in kwargs):
                raise TypeError(f"{function.__name__}() takes one positional argument, the state: name the others, as {keyword}=...")
            if old:
                errors.warn(
                    f"The argument order of {function.__name__} has been changed. Please check the document to avoid future breakages: "
                    f"write {function.__name__}(state, {keyword}=...)"
                )
                kwargs[keyword] = old[0]
            return function(state_dict, **kwargs)

        return called  # type: ignore[return-value]

    return decorate
