"""How much loggers of agents say."""

__all__ = ["get_log_level"]


def get_log_level() -> str:
    """The level unless LOGLEVEL is set."""
    return "WARNING"
