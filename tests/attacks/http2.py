"""Owns HTTP/2 frame by frame, for what no client library would send. Knows no attack."""

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from lines import Answer, Line, Signed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, HEADERS, CONTINUATION, RST = 4, 6, 1, 9, 3


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


class Http2:
    """A connection of HTTP/2 without validation of what goes out."""

    def __init__(self, line: Line):
        self.line = line
        config = h2.config.H2Configuration(
            client_side=True,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=False,
            header_encoding=None,
        )
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> bool:
        return self.line.say(self.h2.data_to_send())

    def begin(self, headers: list[tuple[str, str]], end: bool = True) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers], end_stream=end)
        self.flush()
        return stream

    def events(self) -> list:
        """What came; empty once the other side has gone."""
        if not self.line.buffer and not self.line.read_more():
            return []
        data, self.line.buffer = self.line.buffer, b""
        events = self.h2.receive_data(data)
        self.flush()
        return events

    def read_answer(self, stream: int) -> Answer:
        answer = Answer(0)
        while events := self.events():
            for event in events:
                if getattr(event, "stream_id", None) != stream and not isinstance(event, h2.events.ConnectionTerminated):
                    continue
                if isinstance(event, h2.events.ResponseReceived):
                    answer.headers = [(name.decode(), value.decode()) for name, value in event.headers]
                    answer.status = int(answer.header(":status"))
                elif isinstance(event, h2.events.DataReceived):
                    answer.body += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                    self.flush()
                elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)):
                    return answer
        return answer

    def send(self, request: Signed, authority: str | None, *more: tuple[str, str]) -> Answer:
        """A request that was signed for HTTP/1.1, with its host as :authority."""
        pseudo = [(":method", request.method), (":scheme", "http"), (":path", request.target)]
        if authority is not None:
            pseudo.append((":authority", authority))
        headers = [(name.lower(), value) for name, value in request.headers if name.lower() != "host"]
        try:
            stream = self.begin(pseudo + headers + list(more), end=not request.body)
            if request.body:
                self.h2.send_data(stream, request.body, end_stream=True)
                self.flush()
            return self.read_answer(stream)
        except h2.exceptions.ProtocolError:
            return Answer(0)
