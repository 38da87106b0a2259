"""Owns where the suite points: two endpoints (writer, reader), their keys and the names of buckets.

Read from the environment here and nowhere else. Starts nothing: tests/testbed/rgw.sh or a gateway does.
"""

import hashlib
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

REGION = os.environ.get("S3_REGION", "us-east-1")

# Proxies and private CA bundles of the machine have no part in plain HTTP to a loopback address, and a client that
# finds AWS_CA_BUNDLE or a profile does other things than one that finds none.
for name in list(os.environ):
    if name.lower() in ("http_proxy", "https_proxy", "all_proxy") or name.startswith("AWS_"):
        del os.environ[name]
os.environ["NO_PROXY"] = "*"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


@dataclass(frozen=True)
class Endpoint:
    """One S3 service: base URL without a trailing slash, and one identity there."""

    url: str
    access_key: str
    secret_key: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    @property
    def authority(self) -> str:
        return urlsplit(self.url).netloc

    def environment(self) -> dict[str, str]:
        """The environment of a command line client that talks to this endpoint."""
        return os.environ | {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "S3_ENDPOINT_URL": self.url,
        }


def required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SystemExit(f"{name} is not set: the suite needs S3_ENDPOINT, S3_ACCESS_KEY and S3_SECRET_KEY (see tests/s3suite/README.md)")
    return value


def writer() -> Endpoint:
    return Endpoint(required("S3_ENDPOINT").rstrip("/"), required("S3_ACCESS_KEY"), required("S3_SECRET_KEY"))


def reader() -> Endpoint:
    """A second endpoint of the same service, else the writer's: what was written there must be seen here at once."""
    to = writer()
    return Endpoint(
        os.environ.get("S3_READER_ENDPOINT", to.url).rstrip("/"),
        os.environ.get("S3_READER_ACCESS_KEY", to.access_key),
        os.environ.get("S3_READER_SECRET_KEY", to.secret_key),
    )


def without() -> set[str]:
    """What the service is said not to have, a comma-separated S3_WITHOUT; cases that need it are skipped by name."""
    return {word.strip() for word in os.environ.get("S3_WITHOUT", "").split(",") if word.strip()}


def bucket_name(case: str, number: int) -> str:
    """The same name in every run of a case, so that what is kept per bucket can be prepared and compared."""
    prefix = os.environ.get("S3_BUCKET_PREFIX", "suite")
    digest = hashlib.sha256(case.encode()).hexdigest()[:12]
    return f"{prefix}-{digest}-{number}"
