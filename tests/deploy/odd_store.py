#!/usr/bin/env python3
"""Stands before a store and passes on what is asked and answered. While a file is there, it says of each ranged answer that it begins a
byte later than it does.

    odd_store.py PORT STORE_PORT FILE"""

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


def shifted(said: str) -> str:
    """A Content-Range that begins and ends a byte later."""
    unit, rest = said.split(" ")
    span, length = rest.split("/")
    first, last = map(int, span.split("-"))
    return f"{unit} {first + 1}-{last + 1}/{length}"


class OddStore(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        store = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]), timeout=30)
        store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            store.putheader(name, value)
        store.endheaders(body or None)
        answer = store.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        lies = Path(sys.argv[3]).exists()
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, shifted(value) if lies and name.lower() == "content-range" else value)
        length = answer.getheader("content-length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("content-length", length)
        self.end_headers()
        self.wfile.write(content)
        store.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

    def log_message(self, *words) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), OddStore).serve_forever()
