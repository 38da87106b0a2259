"""Owns a store that grants whatever it is asked, and writes it down: what an attack has reached the store with shows here."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LISTING = b"""<?xml version="1.0"?><ListBucketResult><Name>asked</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys>
<IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>"""
BEGUN = b"<InitiateMultipartUploadResult><Bucket>asked</Bucket><Key>k</Key><UploadId>u</UploadId></InitiateMultipartUploadResult>"
COPIED = b"<CopyObjectResult><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;a&quot;</ETag></CopyObjectResult>"


class AskedStore:
    """`requests`: method and target of each request, in order."""

    def __init__(self):
        asked: list[tuple[str, str, bytes]] = []
        self.requests = asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length) if length else b""
                while self.headers.get("transfer-encoding", "") == "chunked":
                    size = int(self.rfile.readline().split(b";")[0], 16)
                    body += self.rfile.read(size)
                    self.rfile.readline()
                    if not size:
                        break
                asked.append((self.command, self.path, body))
                document = b""
                if self.command == "GET":
                    document = LISTING
                elif self.headers.get("x-amz-copy-source"):
                    document = COPIED
                elif self.command == "POST" and "uploads" in self.path:
                    document = BEGUN
                elif self.command == "POST" and "delete" in self.path:
                    document = b"<DeleteResult></DeleteResult>"
                self.send_response(204 if self.command == "DELETE" else 200)
                self.send_header("etag", '"0123456789abcdef0123456789abcdef"')
                self.send_header("content-type", "application/xml")
                if self.command != "DELETE":
                    self.send_header("content-length", str(len(document)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(document)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, name="asked store", daemon=True).start()

    def since(self, mark: int) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.requests[mark:]]

    def end(self):
        self.server.shutdown()
        self.server.server_close()
