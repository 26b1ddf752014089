from __future__ import annotations


def compiled(cell, gates, hidden):
    return False


forward = backward = None
