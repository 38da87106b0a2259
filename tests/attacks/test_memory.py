"""What floods make the processes hold: resident memory at its highest stays within what the configuration allows.

The fixture `unharmed` asks the same after every case; here is what costs most.
"""

import ssl
import threading

import h2.settings
import pytest
from http2 import Http2
from lines import Line, Peer, new_address
from processes import HEADER, MIB, memory_bound, metric


def within_bounds(cluster, *processes):
    for process in processes:
        peak, bound = process.memory("VmHWM"), memory_bound(cluster.at_rest[process.name])
        assert peak <= bound, f"{process.name} has held {peak >> 20} MiB; its bound is {bound >> 20} MiB"


@pytest.mark.crowd
def test_headers_of_strangers(cluster, honest, held):
    """As many bytes of a header as are taken, on every connection that there may be; no header is whole."""
    for _ in range(5):
        address = new_address()
        for _ in range(200):
            line = Line(cluster.gateway.port, address)
            line.socket.settimeout(1)
            line.say(b"GET /data/x HTTP/1.1\r\nx-a: " + b"a" * (HEADER - 200))
            held.append(line)
    honest.await_rounds(1)
    within_bounds(cluster, cluster.gateway)


def test_headers_over_http2(cluster, honest, held, source):
    """Streams whose lists are as long as may be, most of it named from the table."""
    for _ in range(40):
        line = Line(cluster.gateway.port, source)
        held.append(line)
        http2 = Http2(line)
        for _ in range(60):
            http2.h2.send_headers(
                http2.h2.get_next_available_stream_id(),
                [(":method", "PUT"), (":scheme", "http"), (":path", "/data/x"), (":authority", "x")] + [("x-a", "a" * 4000)] * 3,
            )
        http2.flush()
    honest.await_rounds(1)
    within_bounds(cluster, cluster.gateway)


def test_bodies_over_http2(cluster, gateway, held, honest):
    """A known identity opens streams, and fills the window of each connection without ever ending a body."""
    for number in range(24):
        line = gateway.line()
        line.socket.settimeout(2)
        held.append(line)
        http2 = Http2(line)
        http2.events()
        for stream_number in range(40):
            request = gateway.signed("PUT", f"/data/h2/{number}-{stream_number}", payload="UNSIGNED-PAYLOAD", framed=True)
            pseudo = [(":method", "PUT"), (":scheme", "http"), (":path", request.target), (":authority", gateway.host)]
            stream = http2.begin(pseudo + [(name.lower(), value) for name, value in request.headers if name != "host"], end=False)
            room = min(http2.h2.local_flow_control_window(stream), http2.h2.max_outbound_frame_size)
            if room > 0:
                http2.h2.send_data(stream, b"b" * room)
                http2.flush()
    assert metric(cluster.gateway.admin, "verbs3_gateway_body_memory_bytes") <= 32 * MIB
    within_bounds(cluster, cluster.gateway)
    for line in held:
        line.close()
    honest.await_rounds(1)


def test_answers_over_http2_that_nobody_takes(cluster, gateway, held, honest):
    """Small objects, asked for on every stream of many connections, with no window for any of them."""
    assert gateway.call("PUT", "/data/small", body=b"s" * 60_000).status == 200
    for _ in range(12):
        line = gateway.line()
        line.socket.settimeout(2)
        held.append(line)
        http2 = Http2(line)
        http2.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        for _ in range(100):
            request = gateway.signed("GET", "/data/small")
            http2.begin(
                [(":method", "GET"), (":scheme", "http"), (":path", request.target), (":authority", gateway.host)]
                + [(name.lower(), value) for name, value in request.headers if name != "host"]
            )
    honest.await_rounds(1)
    within_bounds(cluster, cluster.gateway)


def test_handshakes_of_tls(cluster, held, source):
    """Begun and finished, a few hundred of them at once."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def shake():
        for _ in range(60):
            try:
                held.append(Line(cluster.tls.port, source, lambda plain: context.wrap_socket(plain, server_hostname="localhost")))
            except OSError:
                pass

    threads = [threading.Thread(target=shake) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    known = Peer(cluster.tls.port, wrap=lambda plain: context.wrap_socket(plain, server_hostname="localhost"))
    assert known.call("GET", "/data").status == 200
    within_bounds(cluster, cluster.tls)


def test_requests_of_a_known_identity(cluster, gateway, held, honest):
    """Everything at once: reads of a large object that are not taken, uploads, listings."""
    assert gateway.call("PUT", "/data/large", body=b"l" * (16 * MIB)).status == 200
    for number in range(60):
        for request in (
            gateway.signed("GET", "/data/large"),
            gateway.signed("PUT", f"/data/known/{number}", headers={"content-length": "400000"}, payload="UNSIGNED-PAYLOAD"),
            gateway.signed("GET", "/data", query=[("list-type", "2")]),
        ):
            line = gateway.line()
            line.socket.settimeout(1)
            line.say(request.wire() + (b"u" * 300_000 if request.method == "PUT" and number < 20 else b""))
            held.append(line)
    within_bounds(cluster, cluster.gateway)
    for line in held:
        line.close()
    honest.await_rounds(1)


def test_the_highest_of_all_is_within_the_bound(cluster):
    """Also of the worker and the coordinator, whose configured memory is small here."""
    within_bounds(cluster, cluster.gateway, cluster.tls, cluster.shop)
    assert cluster.worker.memory("VmHWM") < cluster.at_rest["worker"] + 64 * MIB + 256 * MIB
    assert cluster.coordinator.memory("VmHWM") < cluster.at_rest["coordinator"] + 192 * MIB
    for process in cluster.processes:
        print(f"{process.name}: at rest {cluster.at_rest[process.name] >> 20} MiB, at most {process.memory('VmHWM') >> 20} MiB")
