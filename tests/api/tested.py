"""The copy of the document that is tested: the served one, and in it names that exist, so that every operation has requests that
are accepted, and every answer's schema is held against one. And whether it was so.

    python tested.py CLUSTER.toml SERVED.json SEEDED.json     begins jobs, and prints the copy
    python tested.py check COPY.json REPORT.json              fails where an operation had no request that was accepted

What is served is not changed: enumerations and examples are of this copy alone.
"""

import json
import sys
import time

JOBS = ["seeded-0", "seeded-1"]


def examples(operation, *bodies):
    content = operation["requestBody"]["content"]["application/json"]
    content["examples"] = {f"example-{number}": {"value": body} for number, body in enumerate(bodies)}


def parameter(operation, name):
    return next(parameter for parameter in operation["parameters"] if parameter["name"] == name)


def allow(operation, name, values):
    parameter(operation, name)["schema"] = {"type": "string", "enum": values}


def copy(document, seeded, workers):
    # Without the proof: it is the hooks' to send, and what happens without one has tests of its own.
    del document["security"]
    bucket, keys, paths = seeded["bucket"], seeded["keys"], document["paths"]
    first, prefix = f"s3://{bucket}/{keys[0]}", f"s3://{bucket}/k"
    for path, methods in paths.items():
        for operation in methods.values():
            if path.startswith("/v1/preload/{id}"):
                # Not the only ones: jobs of other names come to be.
                parameter(operation, "id")["examples"] = {job: {"value": job} for job in JOBS}
            if path.startswith("/v1/workers/{id}"):
                allow(operation, "id", workers)
    objects = paths["/v1/objects/{bucket}/{key}"]["get"]
    allow(objects, "bucket", [bucket])
    allow(objects, "key", keys)
    examples(
        paths["/v1/preload"]["post"],
        {"prefixes": [prefix], "id": "example-0"},
        {"paths": [first], "ranges": [{"first": 0, "last": 9}], "verify": True, "priority": "high", "deadline": "2099-01-01T00:00:00Z"},
        {"prefixes": [prefix], "dry_run": True, "bandwidth_bytes_per_second": 1000},
        {"paths": [first], "tier": "disk", "pin_ttl": 60},
        # Not there: the job says so.
        {"paths": [first + "-missing"], "metadata_only": True},
    )
    examples(paths["/v1/evict"]["post"], {"paths": [first]}, {"prefixes": [prefix], "id": "example-1"})
    examples(paths["/v1/unpin"]["post"], {"paths": [first]}, {"prefixes": [prefix]})
    examples(paths["/v1/pin"]["post"], {"paths": [first], "ttl": 60})
    examples(paths["/v1/invalidate"]["post"], {"paths": [first]}, {"prefixes": [prefix]}, {})
    event = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": keys[0]}}}
    examples(paths["/v1/notifications"]["post"], {"Records": [event]}, {"Event": "s3:TestEvent"})
    return document


def takes_message(operation):
    """Whether its body is a message between processes, of which the document says no fields: only refusals can be had of it."""
    content = operation.get("requestBody", {}).get("content", {})
    return "Between processes of one release" in content.get("application/json", {}).get("schema", {}).get("description", "")


def check(document, report):
    wanted = {f"{method.upper()} {path}": operation for path, methods in document["paths"].items() for method, operation in methods.items()}
    failed = 0
    for operation in sorted(wanted):
        phases = report["valid_rates"].get(operation, {})
        accepted = sum(phase["accepted"] for phase in phases.values())
        asked = sum(sum(phase.values()) for phase in phases.values())
        print(f"api: {operation}: {accepted} of {asked} requests were accepted")
        if takes_message(wanted[operation]):
            print(f"api: {operation}: a message between processes; its refusals alone are tried here")
        else:
            failed += accepted == 0
    if failed:
        sys.exit(f"api: {failed} operations had no request that was accepted: nothing is proven of what they answer")


def load(name):
    with open(name) as file:
        return json.load(file)


if sys.argv[1] == "check":
    check(load(sys.argv[2]), load(sys.argv[3]))
else:
    import requests
    from proof import URL, Proof

    served, seeded = load(sys.argv[2]), load(sys.argv[3])

    def asked(method, path, body=None):
        answer = requests.request(method, URL + path, json=body, auth=Proof(), timeout=60)
        answer.raise_for_status()
        return answer.json()

    for job in JOBS:
        asked("POST", "/v1/preload", {"id": job, "prefixes": [f"s3://{seeded['bucket']}/k"]})
        until = time.monotonic() + 120
        while asked("GET", f"/v1/preload/{job}")["state"] in ("queued", "running"):
            if time.monotonic() > until:
                sys.exit(f"api: job {job} does not end")
            time.sleep(0.1)
    workers = [worker["id"] for worker in asked("GET", "/v1/workers")]
    print(json.dumps(copy(served, seeded, workers)))
