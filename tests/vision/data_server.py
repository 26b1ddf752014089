"""A web server on this machine whose answers a test writes down beforehand."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers:
    """Bodies by path; `troubles` are given first, one for each request: a status, "cut" (half of the body) or "wrong" (other bytes)."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.troubles: list[int | str] = []
        self.asked: list[str] = []
        self.url = ""


@contextmanager
def serving():
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            trouble = answers.troubles.pop(0) if answers.troubles else None
            body = answers.bodies.get(self.path)
            if isinstance(trouble, int) or body is None:
                return self.send_error(trouble if isinstance(trouble, int) else 404)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write({"cut": body[: len(body) // 2], "wrong": bytes(len(body))}.get(trouble, body))

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    answers.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
