"""Reads objects from endpoints in turn, until it is told to stop; counts what went wrong.

    reading_client.py SAID      SAID: {"endpoints", "attempts", "access", "secret", "bucket", "objects": {key: sha256}, "stop": path}

Prints {"requests", "errors": [...], "wrong", "slowest_ms"} as JSON. ATTEMPTS: the most for one request; "fresh" is one, by a
connection of its own."""

import hashlib
import json
import random
import sys
import time
import urllib.request
from pathlib import Path

import boto3
from botocore.config import Config


def client_of(endpoint: str, said: dict):
    attempts = 1 if said["attempts"] == "fresh" else said["attempts"]
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=said["access"], aws_secret_access_key=said["secret"],
                        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=30,
                                      retries={"mode": "standard", "total_max_attempts": attempts}))


def read_object(client, key: str, said: dict) -> bytes:
    words = {"Bucket": said["bucket"], "Key": key}
    if said["attempts"] != "fresh":
        return client.get_object(**words)["Body"].read()
    # It asks for the connection's end.
    with urllib.request.urlopen(client.generate_presigned_url("get_object", words), timeout=30) as answer:
        return answer.read()


def main(said: dict) -> dict:
    clients = [(endpoint, client_of(endpoint, said)) for endpoint in said["endpoints"]]
    told = {"requests": 0, "errors": [], "wrong": 0, "slowest_ms": 0}
    while not Path(said["stop"]).exists():
        endpoint, client = clients[told["requests"] % len(clients)]
        key, expected = random.choice(list(said["objects"].items()))
        began = time.monotonic()
        told["requests"] += 1
        try:
            if hashlib.sha256(read_object(client, key, said)).hexdigest() != expected:
                told["wrong"] += 1
        except Exception as error:  # noqa: BLE001 # what the client of a person would see, whatever it is
            told["errors"].append(f"{time.strftime('%T')} {endpoint}: {error!r}"[:300])
        told["slowest_ms"] = max(told["slowest_ms"], round(1000 * (time.monotonic() - began)))
        time.sleep(0.02)
    return told


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
