"""The guardian: a process of its own that starts the workers of one launcher, tells how they end, and ends them all when the launcher is gone.

# Note [why workers have a guardian]
A launcher may be killed in a way it cannot see (SIGKILL, out of memory), and its workers have children of their own. So the workers are started by
a second process that has one thread, does nothing else, and is in a session of its own, where Ctrl-C does not reach it. It learns from the
socket to its launcher that the launcher has ended, and adopts what the workers leave behind (Linux: PR_SET_CHILD_SUBREAPER), so that everything
that descends from it can be found and ended. Workers, in turn, are killed by the kernel if the guardian is (PR_SET_PDEATHSIG). A fork in a
process with one thread needs no care; the launcher, which has several, never forks.

It runs as `python -I -S guardian.py DESCRIPTOR` and imports nothing of the package. On the socket both sides write lines of JSON.
It is told:  {"start": number, "command": [...], "environment": {...}, "folder": path}, with its standard streams as descriptors
             {"signal": number, "which": signal number}          to the worker and its process group
             {"sweep": signal number}                            to all that descends from this process
             {"leave": true}                                     end, and let what is left live on
It tells:    {"started": number, "pid": pid}  or  {"failed": number, "errno": n, "why": text}
             {"ended": number, "status": exit status or minus the signal, "at": seconds since the epoch}
             {"swept": how many processes were left}
"""

import array
import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time

GRACE = 2.0  # seconds from asking to killing when the launcher is gone
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MORE = 65536


class Guardian:
    """The state of this process: which workers there are, and the socket to the launcher."""

    def __init__(self, launcher: socket.socket):
        self.launcher = launcher
        os.set_inheritable(launcher.fileno(), False)  # a worker that held it would keep it open
        self.workers: dict[int, int] = {}  # pid -> number
        self.prctl = linux_prctl()
        if self.prctl is not None:
            self.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.unread = b""
        self.descriptors: list[int] = []
        self.leaving = False

    def watch(self) -> None:
        """Serve until the launcher is gone, then end everything."""
        bell, ring = os.pipe()
        os.set_blocking(ring, False)
        os.set_blocking(bell, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it rings the bell
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        sources: list = [self.launcher, bell]
        with contextlib.suppress(OSError):  # the launcher went away while it was being told
            while True:
                ready, _, _ = select.select(sources, [], [])
                if bell in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(bell, MORE)
                    self.reap()
                if self.launcher in ready and not self.listen():
                    break
        if not self.leaving:
            self.end_all()

    def listen(self) -> bool:
        """Do what the launcher asks; False if it is gone."""
        data, ancillary, _, _ = self.launcher.recvmsg(MORE, socket.CMSG_SPACE(3 * 8), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for _level, kind, content in ancillary:
            if kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self.descriptors += found
        if not data:
            return False
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))
        return not self.leaving

    def obey(self, order: dict) -> None:
        if "start" in order:
            streams, self.descriptors = self.descriptors[:3], self.descriptors[3:]
            self.start(order, streams)
        elif "signal" in order:
            pid = next((pid for pid, number in self.workers.items() if number == order["signal"]), None)
            if pid is not None:
                self.send(pid, order["which"])
        elif "leave" in order:
            self.leaving = True
        else:
            left = descendants(os.getpid(), self.workers)
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, order["sweep"])
            self.tell(swept=len(left))

    def start(self, order: dict, streams: list) -> None:
        told, teller = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.become(order, streams, teller)
        os.close(teller)
        for descriptor in streams:
            os.close(descriptor)
        self.workers[pid] = order["start"]  # before anybody waits for it
        with open(told, "rb") as pipe:
            problem = pipe.read()  # nothing, once the program runs
        if problem:
            os.waitpid(pid, 0)
            del self.workers[pid]
            number = int(problem)
            self.tell(failed=order["start"], errno=number, why=os.strerror(number))
        else:
            self.tell(started=order["start"], pid=pid)

    def become(self, order: dict, streams: list, teller: int) -> None:
        """In the child: be the worker."""
        number = errno.EIO
        try:
            os.setsid()
            if self.prctl is not None:
                self.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.set_wakeup_fd(-1)
            for one in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(one, signal.SIG_DFL)
            for where, descriptor in enumerate(streams):
                os.dup2(descriptor, where)  # the descriptors received lie above these
            os.chdir(order["folder"])
            os.execvpe(order["command"][0], order["command"], order["environment"])
        except OSError as problem:
            number = problem.errno or number
        finally:
            os.write(teller, str(number).encode())
            os._exit(127)

    def send(self, pid: int, which: int) -> None:
        """A signal to a worker's process group. Nobody else can have its pid: it is ours to wait for."""
        try:
            os.killpg(pid, which)
        except (ProcessLookupError, PermissionError):  # it has left its group, or has not made one yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)

    def reap(self) -> None:
        """Tell how workers ended. Adopted processes end quietly."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.workers.pop(pid, None)
            if number is not None:
                self.tell(ended=number, status=os.waitstatus_to_exitcode(status), at=time.time())

    def tell(self, **what: object) -> None:
        self.launcher.sendall(json.dumps(what).encode() + b"\n")

    def end_all(self) -> None:
        """Ask everything that descends from here to end, then kill what has not."""
        self.launcher.close()
        self.tell = lambda **_: None  # type: ignore[method-assign]
        until = time.monotonic() + GRACE
        for pid in descendants(os.getpid(), self.workers):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        while time.monotonic() < until and descendants(os.getpid(), self.workers):
            self.reap()
            time.sleep(0.02)
        while left := descendants(os.getpid(), self.workers):
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            time.sleep(0.01)


def linux_prctl():
    """The system call of Linux that ties processes to each other; None elsewhere."""
    if sys.platform != "linux":
        return None
    import ctypes

    return ctypes.CDLL(None).prctl


def descendants(pid: int, workers: dict) -> list:
    """The processes below one, from Linux's table of processes; elsewhere the workers themselves. Those that have ended already do not count."""
    if sys.platform != "linux":
        return list(workers)
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    children.setdefault(int(parent), []).append(int(name))
    found, level = [], [pid]
    while level:
        level = [child for one in level for child in children.get(one, ())]
        found += level
    return found


if __name__ == "__main__":
    Guardian(socket.socket(fileno=int(sys.argv[1]))).watch()
