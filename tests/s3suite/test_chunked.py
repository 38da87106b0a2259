"""Uploads in aws-chunked form over a bare socket: the three streaming forms as they should be, and each way to get them wrong.

Whatever is wrong, nothing may be stored and an older object must stay.
"""

import pytest
from chunked import CHUNK_BYTES, FORMS, SIGNED, SIGNED_TRAILER, UNSIGNED_TRAILER, Upload
from data import checksum, made

OLD = b"the old object"
DATA = made(3 * CHUNK_BYTES + 500, "chunked")
NAMES = {form: form.removeprefix("STREAMING-").lower() for form in FORMS}
SIGNED_FORMS = [form for form in FORMS if form != UNSIGNED_TRAILER]


def made_upload(form: str, data: bytes = DATA, **changes) -> Upload:
    trailers = [] if form == SIGNED else [checksum("CRC32C", data)]
    return Upload(data, form, **({"trailers": trailers} | changes))


@pytest.fixture(params=["new", "overwrite"])
def spared(request, s3, s3r, bucket, check):
    """spared(): what was there before is there still, whether nothing or an old object."""
    if request.param == "overwrite":
        s3.put_object(Bucket=bucket, Key="object", Body=OLD)
        assert s3r.get_object(Bucket=bucket, Key="object").body == OLD

    def look():
        got = s3r.get_object(Bucket=bucket, Key="object")
        found = "nothing" if got.status == 404 else "old" if got.body == OLD else f"{len(got.body)} bytes"
        check("found afterwards", found, "nothing" if request.param == "new" else "old")

    return look


@pytest.mark.parametrize("size", [0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 1_000_003])
@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_a_right_upload_is_stored(raw, s3r, bucket, expect, form, size):
    data = made(size, "right")
    expect(raw.upload(bucket, "object", made_upload(form, data)), 200)
    got = expect(s3r.get_object(Bucket=bucket, Key="object"), 200)
    assert got.body == data
    assert got["ContentLength"] == size


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_chunks_of_other_sizes_are_the_same_object(raw, s3r, bucket, expect, form):
    expect(raw.upload(bucket, "object", made_upload(form, chunk_bytes=8192)), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_the_framing_is_no_content_encoding(raw, s3r, bucket, check, form):
    raw.upload(bucket, "plain", made_upload(form))
    check("plain", s3r.head_object(Bucket=bucket, Key="plain").header("content-encoding"), None)
    raw.upload(bucket, "zipped", made_upload(form), headers={"content-encoding": "aws-chunked,gzip"})
    check("zipped", s3r.head_object(Bucket=bucket, Key="zipped").header("content-encoding"), "gzip")


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_a_part_may_come_in_chunks(raw, s3, s3r, bucket, expect, form):
    upload_id = s3.create_multipart_upload(Bucket=bucket, Key="object")["UploadId"]
    part = expect(raw.upload(bucket, "object", made_upload(form), query=[("partNumber", "1"), ("uploadId", upload_id)]), 200)
    parts = [{"PartNumber": 1, "ETag": part.header("etag")}]
    expect(s3.complete_multipart_upload(Bucket=bucket, Key="object", UploadId=upload_id, MultipartUpload={"Parts": parts}), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA


@pytest.mark.parametrize("which", [0, 1, 3, 4], ids=["first", "second", "last_data", "empty"])
@pytest.mark.parametrize("form", SIGNED_FORMS, ids=NAMES.get)
def test_a_wrong_chunk_signature(raw, bucket, spared, expect, form, which):
    upload = made_upload(form, bend=lambda index, signature: flipped(signature) if index == which else signature)
    expect(raw.upload(bucket, "object", upload), 403, "SignatureDoesNotMatch")
    spared()


def test_a_wrong_trailer_signature(raw, bucket, spared, expect):
    upload = made_upload(SIGNED_TRAILER, bend=lambda index, signature: flipped(signature) if index == -1 else signature)
    expect(raw.upload(bucket, "object", upload), 403, "SignatureDoesNotMatch")
    spared()


@pytest.mark.parametrize("form", SIGNED_FORMS, ids=NAMES.get)
def test_changed_bytes_under_right_signatures(raw, bucket, spared, expect, form):
    """As if someone on the way had changed the data: signatures are of what was meant."""
    upload = Tampered(DATA, form, [] if form == SIGNED else [checksum("CRC32C", DATA)])
    expect(raw.upload(bucket, "object", upload), 403, "SignatureDoesNotMatch")
    spared()


class Tampered(Upload):
    def frames(self, signer, seed):
        frames = super().frames(signer, seed)
        at = frames.index(self.data[:64])
        return frames[:at] + bytes([frames[at] ^ 1]) + frames[at + 1:]


@pytest.mark.parametrize("lie", [-500, -1, 1, 500], ids=lambda lie: f"{lie:+d}")
@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_a_decoded_length_that_is_not_true(raw, bucket, spared, refused, form, lie):
    refused(raw.upload(bucket, "object", made_upload(form, decoded_length=len(DATA) + lie)))
    spared()


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_no_decoded_length(raw, bucket, spared, refused, form):
    upload = NoDecodedLength(DATA, form, [] if form == SIGNED else [checksum("CRC32C", DATA)])
    refused(raw.upload(bucket, "object", upload))
    spared()


class NoDecodedLength(Upload):
    def headers(self):
        return {name: value for name, value in super().headers().items() if name != "x-amz-decoded-content-length"}


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_the_last_chunk_is_missing(raw, bucket, spared, refused, form):
    refused(raw.upload(bucket, "object", made_upload(form, unfinished=True)))
    spared()


@pytest.mark.parametrize("kept", [0, 10, 40_000, 150_000], ids=lambda kept: f"after_{kept}")
@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_the_connection_is_cut_in_mid_body(raw, bucket, spared, refused, form, kept):
    refused(raw.upload(bucket, "object", made_upload(form), send_bytes=kept))
    spared()


@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_the_connection_is_cut_before_the_last_bytes(raw, bucket, spared, refused, form):
    upload = made_upload(form)
    framed = len(upload.frames(raw.signer(), "0" * 64))
    refused(raw.upload(bucket, "object", upload, send_bytes=framed - 8))
    spared()


@pytest.mark.parametrize("line", [b"zz;chunk-signature=00\r\n", b"\r\n", b"-5\r\n", b"ffffffffffffffffff\r\n", b"5" * 5000],
                         ids=["no_hex", "empty", "negative", "huge", "endless"])
@pytest.mark.parametrize("form", FORMS, ids=NAMES.get)
def test_a_chunk_header_that_is_none(raw, bucket, spared, refused, form, line):
    upload = BadHeader(DATA, form, [] if form == SIGNED else [checksum("CRC32C", DATA)])
    upload.line = line
    refused(raw.upload(bucket, "object", upload))
    spared()


class BadHeader(Upload):
    line = b""

    def frames(self, signer, seed):
        frames = super().frames(signer, seed)
        return self.line + frames[frames.index(b"\r\n") + 2:]


@pytest.mark.parametrize("form", [SIGNED_TRAILER, UNSIGNED_TRAILER], ids=NAMES.get)
def test_an_announced_trailer_does_not_come(raw, bucket, spared, refused, form):
    upload = MissingTrailer(DATA, form, [checksum("CRC32C", DATA)])
    refused(raw.upload(bucket, "object", upload))
    spared()


class MissingTrailer(Upload):
    def frames(self, signer, seed):
        kept, self.trailers = self.trailers, []
        try:
            return super().frames(signer, seed)
        finally:
            self.trailers = kept


@pytest.mark.parametrize("sent", [0, 1, 50_000, len(DATA) - 1], ids=lambda sent: f"after_{sent}")
def test_a_plain_body_is_cut(raw, bucket, spared, refused, sent):
    signer = raw.signer()
    headers = {"host": raw.to.authority, "content-length": str(len(DATA))}
    signed = signer.authorize("PUT", raw.path(bucket, "object"), [], headers, "UNSIGNED-PAYLOAD")
    refused(raw.send("PUT", raw.path(bucket, "object"), signed, DATA[:sent], cut=True))
    spared()


def test_bytes_after_a_plain_body_are_not_part_of_it(raw, s3r, bucket, expect):
    signer = raw.signer()
    headers = {"host": raw.to.authority, "content-length": "1000", "connection": "close"}
    signed = signer.authorize("PUT", raw.path(bucket, "object"), [], headers, "UNSIGNED-PAYLOAD")
    expect(raw.send("PUT", raw.path(bucket, "object"), signed, DATA[:1000] + b"and more"), 200)
    assert s3r.get_object(Bucket=bucket, Key="object").body == DATA[:1000]


def test_an_empty_put_gets_its_100_or_the_connection_ends(raw, bucket):
    """botocore sends Expect with every file, and takes a bare 200 for the answer to its next request on the connection."""
    headers = {"host": raw.to.authority, "content-length": "0", "expect": "100-continue"}
    signed = raw.signer().authorize("PUT", raw.path(bucket, "object"), [], headers, "UNSIGNED-PAYLOAD")
    first = raw.first_head("PUT", raw.path(bucket, "object"), signed)
    assert first.startswith(b"HTTP/1.1 100 ") or b"\r\nconnection: close\r\n" in first.lower(), first


def test_a_put_without_a_length_is_411(raw, bucket, spared, expect):
    signed = raw.signer().authorize("PUT", raw.path(bucket, "object"), [], {"host": raw.to.authority}, "UNSIGNED-PAYLOAD")
    expect(raw.send("PUT", raw.path(bucket, "object"), signed), 411, "MissingContentLength")
    spared()


def test_a_negative_length_is_refused(raw, bucket, spared, refused):
    headers = {"host": raw.to.authority, "content-length": "-5"}
    signed = raw.signer().authorize("PUT", raw.path(bucket, "object"), [], headers, "UNSIGNED-PAYLOAD")
    refused(raw.send("PUT", raw.path(bucket, "object"), signed, b"12345"))
    spared()


def flipped(signature: str) -> str:
    return ("0" if signature[0] != "0" else "1") + signature[1:]
