"""Owns a receiver of OTLP over HTTP (protobuf) in a process of its own: decodes by the official schema and notes what came.

    otlp_receiver.py serve PORT RECORD          until SIGTERM; one JSON line for each span
    otlp_receiver.py check RECORD METRICS...    holds the record against itself and against what each process showed at /metrics, a file for
                                                each; exit 1 and a line for each thing that is wrong

Knows verbs3's names of metrics and attributes only in `check`.
"""

import collections
import gzip
import json
import re
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

SERVER, CLIENT = 2, 3
# What spans of workers are called, which are parts of their gateways' requests.
WORKERS = "verbs3.worker."
# A line of Prometheus's text format.
SAMPLE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value") or "string_value")


def attributes(pairs) -> dict:
    return {pair.key: value(pair.value) for pair in pairs}


def sender(resource) -> str:
    """The process: what it is, and which."""
    told = attributes(resource.resource.attributes)
    return f"{told['service.name']} {told['service.instance.id']}"


def spans(message):
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield {"kind": "span", "from": sender(resource), "trace": span.trace_id.hex(),
                       "span": span.span_id.hex(), "parent": span.parent_span_id.hex(), "name": span.name, "span_kind": span.kind,
                       "began": span.start_time_unix_nano, "ended": span.end_time_unix_nano, "failed": span.status.code == 2,
                       "attributes": attributes(span.attributes)}


def serve(port: int, record: str) -> None:
    lock, out = Lock(), open(record, "w", encoding="utf-8", buffering=1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            status, answer = 404, b""
            if self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf":
                try:
                    found = list(spans(ExportTraceServiceRequest.FromString(body)))
                    status, answer = 200, ExportTraceServiceResponse().SerializeToString()
                except DecodeError as error:
                    found, status = [{"kind": "wrong", "why": str(error)}], 400
                with lock:
                    out.writelines(json.dumps(line) + "\n" for line in found)
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    # shutdown() waits for serve_forever, which is the thread that gets the signal.
    signal.signal(signal.SIGTERM, lambda *_: Thread(target=server.shutdown).start())
    server.serve_forever()


def problems(lines: list[dict], shown: list[str]):
    """Of processes that were asked to trace every request and have ended well."""
    yield from (f"a message could not be decoded: {line['why']}" for line in lines if line["kind"] == "wrong")
    senders = collections.defaultdict(list)
    for line in lines:
        if "from" in line:
            senders[line["from"]].append(line)
    if len(senders) != len(shown):
        yield f"{len(shown)} processes should have told something: {sorted(senders)}"
    for name, told in sorted(senders.items()):
        of_one = of_worker if name.startswith("verbs3-worker") else of_gateway
        yield from (f"{name}: {problem}" for problem in of_one(name, told))
    found = [line for line in lines if line["kind"] == "span"]
    yield from of_metrics(found, shown)
    everywhere = {(span["trace"], span["span"]): span for span in found}
    # What a request that its client gave up was doing then may be told of by nobody.
    complete = {span["trace"] for span in found if span["attributes"].get("verbs3.complete")}
    for span in found:
        if span["name"].startswith(WORKERS) and span["trace"] in complete and (span["trace"], span["parent"]) not in everywhere:
            yield f"no gateway has told of the span that a worker was asked for: {span}"
    for name in ("GetObject", "verbs3.open", "verbs3.span", WORKERS + "open", WORKERS + "read"):
        if not any(span["name"] == name for span in found):
            yield f"no span is a {name}"
    if not any(span["name"] == "GetObject" and span["span_kind"] == CLIENT for span in found):
        yield "no span is a call of the store"


def of_worker(name: str, found: list[dict]):
    if not all(span["name"].startswith(WORKERS) for span in found if span["span_kind"] == SERVER):
        yield "a worker has no requests of clients to trace"
    yield from of_spans(found)
    print(f"otlp: {name}: {len(found)} spans")


def of_spans(found: list[dict]):
    """Of one process."""
    by_id = {(span["trace"], span["span"]): span for span in found}
    if len(by_id) != len(found):
        yield f"{len(found) - len(by_id)} spans came twice"
    for span in found:
        parent = by_id.get((span["trace"], span["parent"]))
        if span["span_kind"] == CLIENT and parent is None:
            yield f"{span['name']} belongs to no request: {span}"
        if not 0 < span["began"] <= span["ended"]:
            yield f"{span['name']} ends before it begins: {span}"


def client_requests(found: list[dict]) -> list[dict]:
    return [span for span in found if span["span_kind"] == SERVER and not span["name"].startswith(WORKERS)]


def of_gateway(name: str, found: list[dict]):
    requests = client_requests(found)
    yield from of_spans(found)
    ids = collections.Counter(span["attributes"].get("verbs3.request_id") for span in requests)
    yield from (f"the request id {id} is that of {times} spans" for id, times in ids.items() if times > 1 or not id)
    print(f"otlp: {name}: {len(requests)} requests, {len(found)} spans")


def of_metrics(found: list[dict], shown: list[str]):
    """Of all processes together, which `/metrics` counted when no request was left."""
    samples = [SAMPLE.fullmatch(line) for text in shown for line in text.splitlines() if line.startswith("verbs3_")]

    def total(name: str, **labels: str) -> float:
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        return sum(float(sample["value"]) for sample in samples
                   if sample and sample["name"] == name and wanted <= set((sample["labels"] or "").split(",")))

    requests, counted = client_requests(found), total("verbs3_gateway_requests_total")
    if len(requests) != counted or not requests:
        yield f"{len(requests)} requests were traced and {counted} counted"
    statuses = collections.Counter(f"{span['attributes']['http.response.status_code'] // 100}xx" for span in requests)
    for status, times in statuses.items():
        # Without an answer, the class is "none".
        counted = total("verbs3_gateway_requests_total", status="none" if status == "0xx" else status)
        if counted != times:
            yield f"{times} spans say {status}, the counter {counted}"
    if dropped := total("verbs3_telemetry_spans_dropped_total"):
        yield f"{dropped} spans were dropped"


def check(record: str, shown: list[str]) -> int:
    with open(record, encoding="utf-8") as file:
        wrong = list(problems([json.loads(line) for line in file], [Path(path).read_text("utf-8") for path in shown]))
    for line in wrong[:20]:
        print(f"DIFFERS  otlp: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(check(sys.argv[2], sys.argv[3:]))
