"""Hooks of schemathesis: every request carries the cluster's proof, every answer is held against its own.

Owns the proof in Python, written from coordinator/client/src/proof.rs. Knows no route. Also fetches the document:

    python proof.py CLUSTER.toml        prints the URL of the coordinator
    python proof.py CLUSTER.toml PATH   prints what it answers to GET PATH
"""

import functools
import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import tomllib

import requests

FILE = os.environ.get("API_CLUSTER") or sys.argv[1]
with open(FILE, "rb") as file:
    CLUSTER = tomllib.load(file)["cluster"]
URL = CLUSTER["coordinators"][0]
KEY = f"{CLUSTER['name']}\n{CLUSTER['secret']}".encode()


@functools.cache
def recipient():
    """What the coordinator calls itself since its start: proofs are for it alone, and it tells everybody."""
    return requests.get(URL + "/", timeout=60).headers["x-verbs3-coordinator"]


def mac(*parts):
    made = hmac.new(KEY, digestmod="sha256")
    for part in parts:
        made.update(len(part).to_bytes(8, "big") + part)
    return made.hexdigest()


class Proof(requests.auth.AuthBase):
    def __call__(self, request):
        now, nonce, body = int(time.time() * 1000), secrets.token_hex(16), request.body or b""
        if isinstance(body, str):
            body = body.encode()
        said = (request.method.encode(), request.path_url.encode(), now.to_bytes(8, "big"), nonce.encode())
        digest, to = hashlib.sha256(body), recipient()
        proof = mac(b"verbs3 coordinator request 2", *said, to.encode(), digest.digest())
        request.headers["x-verbs3-proof"] = f"{now}.{nonce}.{to}.{digest.hexdigest()}.{proof}"
        return request


def is_proved(response):
    """Whether an answer is the coordinator's, to this very request. One that comes in lines has a proof in each."""
    nonce = response.request.headers["x-verbs3-proof"].split(".")[1]
    body = hashlib.sha256(response.content).digest()
    expected = mac(b"verbs3 coordinator answer 1", nonce.encode(), response.status_code.to_bytes(2, "big"), body)
    given = response.headers.get("x-verbs3-answer-proof", "")
    return hmac.compare_digest(expected, given if isinstance(given, str) else given[0])


if "API_CLUSTER" in os.environ:
    import schemathesis

    @schemathesis.hook
    def before_call(context, case, kwargs):
        kwargs["auth"] = Proof()

    @schemathesis.deserializer("application/x-ndjson")
    def last_line(context, response):
        return json.loads(response.content.splitlines()[-1])

    @schemathesis.check
    def every_answer_is_proved(context, response, case):
        lines = "ndjson" in str(response.headers.get("content-type"))
        assert lines or is_proved(response), "the answer's proof is missing or wrong"

    @schemathesis.check
    def nothing_breaks(context, response, case):
        # 503 says what is not there now, and its body is held against the document.
        assert response.status_code < 500 or response.status_code == 503, f"status {response.status_code}"

elif __name__ == "__main__" and len(sys.argv) == 2:
    print(URL)
elif __name__ == "__main__":
    answer = requests.get(URL + sys.argv[2], auth=Proof(), timeout=60)
    assert is_proved(answer), "the answer's proof is wrong"
    answer.raise_for_status()
    print(answer.text)
