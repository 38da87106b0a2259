"""Owns the suite's boto3 client: every call is recorded and comes back as an Answer, errors as well.

Not for jobs that run in threads (the transfer manager): those take `.boto`, the plain client, and record what they like.
"""

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from answer import Answer
from endpoint import REGION, Endpoint
from record import Recorder


def boto(to: Endpoint, **config):
    """boto3 as a user would have it, but with one attempt: a retry would hide an answer from the record."""
    settings = {"retries": {"total_max_attempts": 1}, "s3": {"addressing_style": "path"}, "signature_version": "s3v4",
                "connect_timeout": 10, "read_timeout": 60} | config
    return boto3.client("s3", endpoint_url=to.url, aws_access_key_id=to.access_key, aws_secret_access_key=to.secret_key,
                        region_name=REGION, config=Config(**settings))


class Client:
    """`client.get_object(Bucket=…, Key=…)` and so on; see boto3 for the names."""

    def __init__(self, to: Endpoint, recorder: Recorder, label: str = "", plain=None):
        self.to = to
        self.recorder = recorder
        self.label = label
        self.boto = plain or boto(to)
        self.seen = None
        self.boto.meta.events.register("after-call.s3", self.after_call, unique_id=f"suite{label}")

    def close(self) -> None:
        self.boto.meta.events.unregister("after-call.s3", self.after_call, unique_id=f"suite{self.label}")

    def after_call(self, http_response, **_):
        self.seen = http_response

    def __getattr__(self, method: str):
        if method not in self.boto.meta.method_to_api_mapping:
            raise AttributeError(method)
        operation = self.boto.meta.method_to_api_mapping[method]

        def call(**arguments) -> Answer:
            self.seen = None
            try:
                parsed = getattr(self.boto, method)(**arguments)
            except ClientError as error:
                parsed = error.response
            if self.seen is None:
                raise AssertionError(f"{operation} ended before an HTTP answer: {parsed}")
            return self.note(operation, parsed)

        return call

    def note(self, operation: str, parsed: dict) -> Answer:
        seen = self.seen
        streamed = parsed.get("Body")
        body = streamed.read() if hasattr(streamed, "read") else seen.content
        headers = list(seen.headers.items())
        if parsed.get("VersionId"):
            self.recorder.name("version", parsed["VersionId"])
        recorded = None if operation.startswith("Head") else body
        step = self.recorder.answer(operation + self.label, seen.status_code, headers, recorded)
        error = parsed.get("Error", {}).get("Code")
        # boto3 invents "404" as the code of a HEAD, which has no body to carry one.
        code = error if error and not error.isdigit() and not operation.startswith("Head") else None
        return Answer(step, seen.status_code, code, headers, body, parsed)
