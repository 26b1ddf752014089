"""A timeline: jobs that need a resource and other jobs' results, each started as soon as both are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(eq=False)  # two jobs of the same name and length are two jobs
class Job:
    """`seconds` of `resource` after the end of all of `after`. The timeline says when."""

    name: str
    resource: str
    seconds: float
    after: Sequence[Job] = ()
    start: float = 0.0
    end: float = 0.0


def play(jobs: Sequence[Job]) -> float:
    """Give every job its start and end; when the last one ends. A resource does one job at a time, first come, first served.

    >>> first, second = Job("a layer", "GPU", 2.0), Job("another", "GPU", 2.0)
    >>> play([first, second, Job("its gradients", "link", 3.0, [first]), Job("its gradients", "link", 3.0, [second])])
    8.0
    """
    followers, missing = defaultdict(list), [len(job.after) for job in jobs]
    order = {job: number for number, job in enumerate(jobs)}  # of those that come at the same moment, the first in the list
    for number, job in enumerate(jobs):
        for needed in job.after:
            followers[order[needed]].append(number)
    queues: dict[str, list[tuple[float, int]]] = {job.resource: [] for job in jobs}
    running: list[tuple[float, int]] = []
    clock, busy, done = 0.0, set(), 0
    for number, waits in enumerate(missing):
        if not waits:
            heappush(queues[jobs[number].resource], (clock, number))
    while True:
        for resource, queue in queues.items():
            if queue and resource not in busy:
                number = heappop(queue)[1]
                job = jobs[number]
                job.start, job.end = clock, clock + job.seconds
                heappush(running, (job.end, number))
                busy.add(resource)
        if not running:
            break
        clock = running[0][0]
        while running and running[0][0] == clock:
            number = heappop(running)[1]
            busy.discard(jobs[number].resource)
            done += 1
            for follower in followers[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    heappush(queues[jobs[follower].resource], (clock, follower))
    if done < len(jobs):
        raise ValueError(f"{len(jobs) - done} of {len(jobs)} jobs wait for one another: after= goes round in a circle")
    return clock
