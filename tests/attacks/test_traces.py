"""What attacks leave in logs, metrics and answers: nothing that a stranger has written is taken for the product's own words."""

import json

import pytest
from lines import Line, Signed
from processes import fetch

# Tried as key, parameter, header, access key and method.
WORDS = [
    '%0a%0d{"level":"ERROR"}',
    "%1b[2J%1b[31m",
    "%00",
    "<script>alert(1)</script>",
    "%3Cscript%3E",
    "a" * 3000,
    "${jndi:ldap://127.0.0.1:9/a}",
    '"}%0a{',
    "%e2%80%ae",
    "{{7*7}}",
    "%n%s%x",
]


def test_what_strangers_write_is_no_line_of_the_log(cluster, gateway):
    for word in WORDS:
        for request in (
            Signed("GET", f"/data/{word}", [("host", gateway.host)]),
            Signed("GET", f"/data/x?{word}={word}", [("host", gateway.host), ("user-agent", word)]),
            Signed("GET", f"/{word}", [("host", gateway.host), ("x-amz-date", word), ("x-request-id", word), ("traceparent", word)]),
            Signed(
                "GET",
                "/data/x",
                [
                    ("host", word[:200]),
                    (
                        "authorization",
                        f"AWS4-HMAC-SHA256 Credential={word}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00",
                    ),
                ],
            ),
        ):
            with gateway.line() as line:
                line.say(request.wire())
                answer = line.read_answer()
            assert answer.status in (0, 400, 403, 404), (word, answer)
            assert b"<script>" not in answer.body
        gateway.call("GET", f"/data/{word}")
    for process in cluster.processes:
        lines = process.log.read_text(errors="strict").splitlines()
        # What stands before is what `verbs3 dev` tells its user at its start.
        first = next((at for at, line in enumerate(lines) if line.startswith("{")), len(lines))
        for line in lines[first:]:
            if process.command[1] != "dev":
                json.loads(line)
            assert "\x1b" not in line


def test_no_process_has_complained_of_itself(cluster):
    """A panic or an error of its own would be a way to harm it."""
    for process in cluster.processes:
        text = process.log.read_text()
        assert "panicked" not in text, process.name
        errors = [line for line in text.splitlines() if '"level":"ERROR"' in line]
        assert not errors, (process.name, errors[:3])


def test_metrics_do_not_grow_by_what_strangers_write(cluster, gateway):
    gateway.call("GET", "/data/x")
    names = {line.rsplit(" ", 1)[0] for line in fetch(cluster.gateway.admin).splitlines() if not line.startswith("#")}
    for number in range(200):
        gateway.send(Signed("GET", f"/data/{number}?op-{number}=1", [("host", f"h{number}"), ("user-agent", f"a{number}")]))
        gateway.call("GET", f"/nowhere-{number}/key-{number}", headers={"user-agent": f"b{number}"})
    after = {line.rsplit(" ", 1)[0] for line in fetch(cluster.gateway.admin).splitlines() if not line.startswith("#")}
    assert len(after - names) < 20, sorted(after - names)[:20]


@pytest.mark.parametrize(
    "headers",
    ["origin: http://evil.test\r\naccess-control-request-method: PUT\r\n", "origin: http://evil.test\r\n"],
    ids=["preflight", "page"],
)
def test_strangers_questions_cost_the_store_little(cluster, gateway, asked, honest, headers):
    """CORS is asked of the store for anybody; so it is asked once for a bucket and a while, and not for what is no mount."""
    mark, method = len(asked.requests), "OPTIONS" if "request-method" in headers else "GET"
    for number in range(300):
        bucket = ["asked", "secret", f"never-{number}"][number % 3]
        with Line(cluster.gateway.port, gateway.source) as line:
            line.say(f"{method} /{bucket}/key-{number} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
            assert line.read_answer().status in (200, 403, 404, 503)
    assert len(asked.since(mark)) <= 20, asked.since(mark)[:5]
    honest.await_rounds(1)
