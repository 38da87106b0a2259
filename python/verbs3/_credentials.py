"""Who this process is."""

from __future__ import annotations

import os
from dataclasses import dataclass

@dataclass(frozen=True, repr=False)
class Credentials:
    """An access key with its secret."""

    access_key: str
    secret_key: str


def find_credentials(access_key: str | None, secret_key: str | None) -> Credentials:
    """The key that was given, that of the environment, or the one that boto3 would take."""
    if access_key and secret_key:
        return Credentials(access_key, secret_key)
    if access_key or secret_key:
        raise ValueError("access_key and secret_key come together")
    found, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if found and secret:
        return Credentials(found, secret)
    try:
        from botocore.session import Session
    except ImportError:
        raise ValueError("there is no access key: give access_key and secret_key, or set AWS_ACCESS_KEY_ID") from None
    known = Session().get_credentials()
    if known is None:
        raise ValueError("there is no access key: give access_key and secret_key, or set AWS_ACCESS_KEY_ID")
    frozen = known.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key)


def find_region(region: str | None) -> str:
    """The region of signatures; the gateway takes any."""
    return region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
