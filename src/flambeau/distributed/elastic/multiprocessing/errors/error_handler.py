"""ErrorHandler: how `record` tells the launcher why a worker failed."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import warnings
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors import error_file

__all__ = ["ErrorHandler"]
log = logging.getLogger(__name__)


class ErrorHandler:
    """Writes exceptions to the file that the launcher named in TORCHELASTIC_ERROR_FILE. Inherit from it to write more."""

    def _get_error_file_path(self) -> str | None:
        return os.environ.get(error_file.VARIABLE)

    def initialize(self) -> None:
        """Called before the function that is recorded: a crash in machine code prints the Python stack as well."""
        try:
            faulthandler.enable(all_threads=True)
        except Exception as problem:  # a standard error without a descriptor, as in notebooks
            warnings.warn(f"no Python stack will be printed if this process crashes: {problem}", stacklevel=2)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception and its traceback, if a launcher wants to know."""
        path = self._get_error_file_path()
        if path:
            error_file.write(path, e)
        else:
            log.info("No error file: TORCHELASTIC_ERROR_FILE is not set")

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Write the exit status into the error; it belongs beside the message, which may be text or a dictionary."""
        if "message" not in rootcause_error:
            log.warning("%s has no field `message`, so the error code %d has no place in it", rootcause_error_file, error_code)
        elif isinstance(rootcause_error["message"], str):
            log.warning("The message in %s is text, so the error code %d has no place in it", rootcause_error_file, error_code)
        else:
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Pass a child's error on as this process's own: its file replaces ours. Without a file of ours it is logged."""
        content = error_file.read(rootcause_error_file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, content, error_code)
        path = self._get_error_file_path()
        if path:
            self._rm(path)
            error_file.replace(path, content)
        else:
            log.info("The first error, from %s: %s", rootcause_error_file, json.dumps(content, indent=2))

    def _rm(self, my_error_file: str) -> None:
        if os.path.isfile(my_error_file):
            log.warning("%s exists and is replaced: %s", my_error_file, error_file.read(my_error_file))
            os.remove(my_error_file)
