"""Has the cluster load objects before anybody reads them: jobs at the gateway, signed with S3 keys."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

from ._credentials import find_credentials, find_region
from ._locations import find_endpoint, parse_url

# How long the gateway is asked to wait for news of a job, and how long its answer may take then.
_NEWS_WAIT_MS = 5000
_ANSWER_WAIT_S = 30.0
# How often in a row nobody may answer, and the first pause; it doubles.
_TRIES_MAX = 6
_PAUSE_S = 0.2


class PreloadError(Exception):
    """A job was refused, or ended with something missing: `job` says what, if there is one."""

    def __init__(self, message: str, job: PreloadJob | None = None):
        super().__init__(message)
        self.job = job


@dataclass(frozen=True)
class PreloadJob:
    """A job as the coordinators see it. `document` is all that they say of it."""

    id: str
    state: str
    document: dict[str, Any] = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state not in ("queued", "running")

    @property
    def objects(self) -> int:
        """Objects that were counted so far."""
        return int(self.document["counters"]["objects"])

    @property
    def bytes_wanted(self) -> int:
        """Their bytes."""
        return int(self.document["counters"]["bytes"])

    @property
    def bytes_there(self) -> int:
        """Bytes that were loaded, or were in the tier already."""
        counters = self.document["counters"]
        return int(counters["bytes_loaded"]) + int(counters["bytes_held"])


def preload(
    urls: str | Iterable[str],
    *,
    deadline: float | timedelta | datetime | None = None,
    wait: bool = True,
    progress: bool | None = None,
    endpoint_url: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    **spec: Any,
) -> PreloadJob:
    """Loads everything whose URL begins so into the cache, and waits until it is there.

    `deadline`: when the job ends, finished or not: seconds from now, or a moment with its zone.
    `wait=False` returns at once; `preload_job` tells how it goes on. `progress`: a bar by tqdm;
    without it said, one is shown where tqdm is installed and the output is a terminal. Other
    arguments are fields of the job (docs/warming.md): `paths`, `verify`, `bandwidth_bytes_per_second`,
    `metadata_only`, `replicas`, `id`.

    Needs the right `warm` on all of it. `PreloadError`: it was refused, or something is missing.

    >>> import verbs3
    >>> job = verbs3.preload("s3://train/", deadline=600)
    >>> job.state, job.objects
    ('done', 3)
    """
    prefixes = [urls] if isinstance(urls, str) else list(urls)
    for url in prefixes:
        parse_url(url)
    asked: dict[str, Any] = {"prefixes": prefixes, **spec}
    if deadline is not None:
        asked["deadline"] = moment_of(deadline).isoformat(timespec="seconds").replace("+00:00", "Z")
    board = JobBoard(find_endpoint(endpoint_url), access_key, secret_key)
    job = board.begin_job(asked)
    if not wait:
        return job
    with _ProgressBar(progress) as bar:
        return board.await_job(job, bar.show_job)


def preload_job(
    id: str,
    *,
    endpoint_url: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> PreloadJob:
    """Returns how a job stands.

    >>> import verbs3
    >>> job = verbs3.preload("s3://train/", wait=False)
    >>> verbs3.preload_job(job.id).id == job.id
    True
    """
    return JobBoard(find_endpoint(endpoint_url), access_key, secret_key).find_job(id)


def moment_of(deadline: float | timedelta | datetime) -> datetime:
    """The moment of a deadline.

    >>> moment_of(datetime(2026, 11, 22, 8, tzinfo=timezone.utc)).isoformat()
    '2026-11-22T08:00:00+00:00'
    """
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ValueError("the deadline has no time zone: datetime.now(timezone.utc) + timedelta(…) has one")
        return deadline.astimezone(timezone.utc)
    after = deadline if isinstance(deadline, timedelta) else timedelta(seconds=deadline)
    if after <= timedelta(0):
        raise ValueError(f"the deadline is {after} from now, and over")
    return datetime.now(timezone.utc) + after


class JobBoard:
    """Asks one gateway about jobs."""

    def __init__(self, endpoint: str, access_key: str | None, secret_key: str | None):
        self._endpoint = endpoint.rstrip("/")
        self._place = urlsplit(self._endpoint)
        if self._place.scheme not in ("http", "https") or not self._place.hostname:
            raise ValueError(f"{endpoint!r} is no endpoint such as http://127.0.0.1:9000")
        self._key = find_credentials(access_key, secret_key)

    def begin_job(self, asked: dict[str, Any]) -> PreloadJob:
        """Begins a job. It has an id before it is sent, so that sending it twice begins it once."""
        return self._ask("POST", "/v1/preload", {"id": uuid.uuid4().hex, **asked})

    def find_job(self, id: str, query: str = "") -> PreloadJob:
        """Returns a job's view; `query` may ask to wait for news of it."""
        return self._ask("GET", f"/v1/preload/{id}{query}", None)

    def await_job(self, job: PreloadJob, show: Callable[[PreloadJob], None]) -> PreloadJob:
        """Waits for a job's end. `PreloadError`: not everything is there."""
        show(job)
        while not job.is_over:
            news = job.document["news"]
            job = self.find_job(job.id, f"?news={news}&wait_ms={_NEWS_WAIT_MS}")
            show(job)
        if job.state != "done":
            raise PreloadError(f"preload job {job.id} is {job.state}: {_reason_of(job)}", job)
        return job

    def _ask(self, method: str, path: str, asked: dict[str, Any] | None) -> PreloadJob:
        """Sends one question; again, where nobody answers or there is no place for it now."""
        body = None if asked is None else json.dumps(asked).encode()
        for tries in range(1, _TRIES_MAX + 1):
            try:
                status, answer = self._send(method, path, body)
            except OSError as error:
                if tries == _TRIES_MAX:
                    raise PreloadError(f"nobody answers at {self._endpoint}: {error}") from error
            else:
                if status < 300:
                    document = json.loads(answer)
                    return PreloadJob(document["id"], document["state"], document)
                if status != 503 or tries == _TRIES_MAX:
                    raise PreloadError(f"{self._endpoint} refused ({status}): {_text_of(answer)}")
            time.sleep(_PAUSE_S * 2 ** (tries - 1))
        raise AssertionError("the last try returns or raises")

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method, self._endpoint + path, data=body or b"")
        key = Credentials(self._key.access_key, self._key.secret_key)
        S3SigV4Auth(key, "s3", find_region(None)).add_auth(request)
        connection = self._connect()
        try:
            connection.request(method, path, body=body, headers=dict(request.headers))
            answered = connection.getresponse()
            return answered.status, answered.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"no answer of HTTP: {error!r}") from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._place.hostname or "", self._place.port
        if self._place.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_ANSWER_WAIT_S)
        trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
        return http.client.HTTPSConnection(host, port, timeout=_ANSWER_WAIT_S, context=trust)


def _reason_of(job: PreloadJob) -> str:
    reasons = [job.document.get("reason") or "no reason is known"]
    failures = job.document.get("failures", {})
    reasons += [f"{one['path']}: {one['reason']}" for one in failures.get("first", ())]
    return "; ".join(reasons)


def _text_of(answer: bytes) -> str:
    try:
        shown = json.loads(answer)
        return str(shown.get("reason") or shown)
    except (ValueError, AttributeError):
        return answer[:500].decode("utf-8", "replace")


class _ProgressBar:
    """A bar by tqdm, or nothing."""

    def __init__(self, progress: bool | None):
        self._bar: Any = None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if progress:
                raise ValueError("progress=True needs tqdm, which is not installed") from None
            return
        # `None`: tqdm shows it at a terminal alone.
        disable = None if progress is None else not progress
        self._bar = tqdm(unit="B", unit_scale=True, desc="preload", disable=disable)

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show_job(self, job: PreloadJob) -> None:
        """Shows how a job stands."""
        if self._bar is not None:
            self._bar.total = job.bytes_wanted
            self._bar.set_postfix_str(f"{job.state}, {job.objects} objects", refresh=False)
            self._bar.update(job.bytes_there - self._bar.n)
