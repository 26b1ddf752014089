"""The name of the logger that saves and loads report to, and a place for its handlers."""

from __future__ import annotations

import logging

__all__: list[str] = []

DCP_LOGGER_NAME = "dcp_logger"
_log_handlers: dict[str, logging.Handler] = {DCP_LOGGER_NAME: logging.NullHandler()}
