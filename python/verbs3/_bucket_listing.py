"""What a file system of buckets shows and changes besides the bytes of objects: names, sizes, folders."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ._errors import S3Error
from ._gateway_client import GatewayClient, ListedObject, listed_objects

if TYPE_CHECKING:
    from ._reader import Reader

# Most keys of one DeleteObjects.
_DELETED_AT_ONCE = 1000


@contextmanager
def translate_error(path: str) -> Iterator[None]:
    """Raises S3's errors as those of files where Python has them; S3's own is the cause."""
    from boto3.exceptions import S3UploadFailedError
    from botocore.exceptions import ClientError

    try:
        yield
    except S3UploadFailedError as error:
        # boto3's transfers tell S3's error in their text, and have it as their context.
        with translate_error(path):
            raise error.__context__ or error from None
    except S3Error as error:
        raise _error_of_file(error.status, error.code, path) or error from error
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error.response["Error"]["Code"]
        if code == "PreconditionFailed":
            # Of a write, which asks that there be nothing.
            raise FileExistsError(errno.EEXIST, "there is an object already", path) from error
        raise _error_of_file(status, code, path) or error from error


def _error_of_file(status: int, code: str, path: str) -> OSError | None:
    if status == 404:
        return FileNotFoundError(errno.ENOENT, code, path)
    if status == 403:
        return PermissionError(errno.EACCES, code, path)
    if code == "BucketNotEmpty":
        return OSError(errno.ENOTEMPTY, code, path)
    return None


class BucketListing:
    """Names of buckets and objects as files and folders. A folder is there while it has objects."""

    gateway: GatewayClient

    if TYPE_CHECKING:

        @property
        def reader(self) -> Reader: ...

    # What fsspec's AbstractFileSystem has.
    _strip_protocol: Any
    _split_object: Any

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Lists what lies directly in a bucket or folder; of an object, itself."""
        path = self._strip_protocol(path)
        with translate_error(path):
            found = self._list_buckets() if not path else self._list_folder(path)
        return found if detail else [one["name"] for one in found]

    def _list_buckets(self) -> list[dict[str, Any]]:
        shown = self.gateway.boto.list_buckets()["Buckets"]
        return [_folder_of(bucket["Name"]) for bucket in shown]

    def _list_folder(self, path: str) -> list[dict[str, Any]]:
        bucket, _, folder = path.partition("/")
        prefix = f"{folder}/" if folder else ""
        pages = self.gateway.boto.get_paginator("list_objects_v2")
        found = []
        for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/"):
            for shown in page.get("CommonPrefixes", ()):
                found.append(_folder_of(f"{bucket}/{shown['Prefix'].rstrip('/')}"))
            # An object that is named as its folder is how some tools make empty folders.
            found += [_file_of(bucket, one) for one in listed_objects(page) if one.key != prefix]
        if not found and folder:
            return [self.info(path)]
        return sorted(found, key=lambda one: str(one["name"]))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Says what a path is: an object by its HEAD, else a folder if objects lie in it."""
        path = self._strip_protocol(path)
        bucket, _slash, key = path.partition("/")
        if not bucket:
            return _folder_of("")
        with translate_error(path):
            if not key:
                self.gateway.boto.head_bucket(Bucket=bucket)
                return _folder_of(bucket)
            try:
                return _file_of_head(path, self.reader.head(bucket, key))
            except S3Error as error:
                if error.status != 404 or not self._has_objects(bucket, f"{key}/"):
                    raise
        return _folder_of(path)

    def _has_objects(self, bucket: str, prefix: str) -> bool:
        page = self.gateway.boto.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
        return bool(page.get("KeyCount"))

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **others: Any,
    ) -> Any:
        """Lists all objects below a path, by pages of the whole; with a depth, folder by folder."""
        path = self._strip_protocol(path)
        bucket, _, folder = path.partition("/")
        if maxdepth is not None or not bucket:
            return super().find(  # type: ignore[misc]
                path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **others
            )
        found: dict[str, dict[str, Any]] = {}
        with translate_error(path):
            for one in self.gateway.list_objects(bucket, f"{folder}/" if folder else ""):
                if withdirs:
                    found.update(_folders_above(path, f"{bucket}/{one.key}"))
                if not one.key.endswith("/"):
                    found[f"{bucket}/{one.key}"] = _file_of(bucket, one)
        if not found and folder and (itself := self._find_object(path)):
            found[path] = itself
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def _find_object(self, path: str) -> dict[str, Any] | None:
        try:
            found = self.info(path)
        except FileNotFoundError:
            return None
        return found if found["type"] == "file" else None

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a bucket. Folders in it need not be made."""
        bucket, _slash, key = self._strip_protocol(path).partition("/")
        if bucket and not key:
            with translate_error(path):
                self.gateway.boto.create_bucket(Bucket=bucket)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: a folder is there while objects lie in it. Buckets are made by `mkdir`."""

    def rmdir(self, path: str) -> None:
        """Removes an empty bucket. A folder is gone with its last object."""
        bucket, _, key = self._strip_protocol(path).partition("/")
        if not key:
            with translate_error(path):
                self.gateway.boto.delete_bucket(Bucket=bucket)

    def rm_file(self, path: str) -> None:
        """Removes one object."""
        bucket, key = self._split_object(path)
        with translate_error(path):
            self.gateway.boto.delete_object(Bucket=bucket, Key=key)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes objects, many at once; with `recursive`, all below a path. Buckets stay."""
        is_whole = recursive and maxdepth is None
        paths = self.expand_path(  # type: ignore[attr-defined]
            path, recursive=recursive and not is_whole, maxdepth=maxdepth
        )
        by_bucket: dict[str, list[str]] = {}
        for one in paths:
            bucket, _, key = one.partition("/")
            keys = self._list_tree(bucket, key) if is_whole else [key] if key else []
            if is_whole and not keys:
                raise FileNotFoundError(errno.ENOENT, "there are no objects", one)
            by_bucket.setdefault(bucket, []).extend(keys)
        for bucket, keys in by_bucket.items():
            for at in range(0, len(keys), _DELETED_AT_ONCE):
                self._delete_objects(bucket, keys[at : at + _DELETED_AT_ONCE])

    def _list_tree(self, bucket: str, folder: str) -> list[str]:
        """The keys of an object and of all below it, those that stand for empty folders as well."""
        with translate_error(f"{bucket}/{folder}"):
            listed = self.gateway.list_objects(bucket, f"{folder}/" if folder else "")
            keys = [one.key for one in listed]
            return [folder, *keys] if folder and (keys or self._find_object(f"{bucket}/{folder}")) else keys

    def _delete_objects(self, bucket: str, keys: list[str]) -> None:
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with translate_error(bucket):
            refused = self.gateway.boto.delete_objects(Bucket=bucket, Delete=wanted).get("Errors")
        if refused:
            first = refused[0]
            raise OSError(f"{len(refused)} objects were not removed: {first['Key']}: {first['Code']}")

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies an object, inside the store."""
        if self.info(path1)["type"] == "directory":
            return
        bucket, key = self._split_object(path1)
        target, target_key = self._split_object(path2)
        with translate_error(path1):
            self.gateway.boto.copy({"Bucket": bucket, "Key": key}, target, target_key)

    def created(self, path: str) -> Any:
        """When an object was written: objects never change, so this is `modified`."""
        return self.modified(path)

    def modified(self, path: str) -> Any:
        """When an object was written."""
        found = self.info(path)
        if found["type"] != "file":
            raise IsADirectoryError(f"{path} is a folder, which has no time")
        return found["LastModified"]

    def ukey(self, path: str) -> str:
        """An object's ETag: it is another one for other bytes."""
        return str(self.info(path)["ETag"])

    def checksum(self, path: str) -> str:
        """The same as `ukey`."""
        return self.ukey(path)

    def sign(self, path: str, expiration: int = 100, **_: Any) -> str:
        """A URL by which an object can be read over HTTP without a key, for `expiration` seconds."""
        bucket, key = self._split_object(path)
        wanted = {"Bucket": bucket, "Key": key}
        made = self.gateway.boto.generate_presigned_url("get_object", Params=wanted, ExpiresIn=expiration)
        return str(made)


def _folder_of(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def _file_of(bucket: str, listed: ListedObject) -> dict[str, Any]:
    return {
        "name": f"{bucket}/{listed.key}",
        "size": listed.size,
        "type": "file",
        "ETag": listed.etag,
        "LastModified": listed.modified,
    }


def _file_of_head(path: str, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "name": path,
        "size": int(headers["content-length"]),
        "type": "file",
        "ETag": headers["etag"],
        "LastModified": parsedate_to_datetime(headers["last-modified"]),
        "ContentType": headers.get("content-type", ""),
    }


def _folders_above(base: str, name: str) -> dict[str, dict[str, Any]]:
    """The folders between a base and what lies below it."""
    found = {}
    folder = name.rpartition("/")[0]
    while len(folder) > len(base):
        found[folder] = _folder_of(folder)
        folder = folder.rpartition("/")[0]
    return found
