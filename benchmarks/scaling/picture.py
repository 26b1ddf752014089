"""A timeline as text: one row for each resource, with a letter where it is busy.

compute  FFFFBBBBBBBBBBBB....U
link     .......01111111.2222.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.scaling.timeline import Job


def picture(jobs: Sequence[Job], width: int = 100) -> str:
    """Jobs that have been played. Each gets the first letter of its name, a bucket its last digit, the shorter ones where there is room."""
    total = max((job.end for job in jobs), default=0.0) or 1.0
    rows = {resource: ["."] * width for resource in sorted({job.resource for job in jobs})}
    for job in sorted(jobs, key=lambda job: -job.seconds):
        start = min(width - 1, round(job.start / total * width))
        columns = range(start, max(round(job.end / total * width), start + 1)) if job.seconds else ()
        for column in columns:
            if rows[job.resource][column] == ".":
                rows[job.resource][column] = letter(job)
    wide = max(map(len, rows), default=0)
    return "\n".join(f"{resource:<{wide}}  {''.join(row)}" for resource, row in rows.items())


def letter(job: Job) -> str:
    """`bucket 12` is a 2, `forward` an F."""
    return job.name[-1] if job.name[-1].isdigit() else job.name[0].upper()
