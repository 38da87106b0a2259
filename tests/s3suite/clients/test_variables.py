"""The table of variables in docs/clients.md: what each client takes from its environment, seen by servers that note it.

Not held: the columns of the SDKs, HTTPS_PROXY, and that `pyarrow.fs.S3FileSystem()` asks AWS.
"""

import json
import os
import re
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import JOBS, TESTBED, not_proven, prepared

PAGE = Path(__file__).parents[3] / "docs/clients.md"
COLUMNS = {"boto3": 1, "awscli": 1, "s3fs": 1, "pyarrow": 2, "s3torchconnector": 3}
REFUSED = "503"
UPLOAD = b"<InitiateMultipartUploadResult><Bucket>train</Bucket><Key>put</Key><UploadId>1</UploadId></InitiateMultipartUploadResult>"
UPLOADED = b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"


class NotedRequests(BaseHTTPRequestHandler):
    """Answers as an object of five bytes; notes who was asked for what."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.server.noted.append((self.server.role, self.path, {name.lower(): value for name, value in self.headers.items()}))
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while (length := int(self.rfile.readline().split(b";")[0], 16)) and self.rfile.read(length + 2):
                pass
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers.get("content-length", 0)))
        posted = UPLOAD if "?uploads" in self.path else UPLOADED
        body = {"GET": b"hello", "POST": posted}.get(self.command, b"")
        status = 503 if REFUSED in self.path else 404 if "metadata" in self.server.role else 206 if "range" in self.headers else 200
        self.send_response(status)
        if status == 206:
            self.send_header("content-range", "bytes 0-4/5")
        self.send_header("etag", '"5d41402abc4b2a76b9719d911017c592"')
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("content-length", "5" if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = answer

    def log_message(self, *_):
        pass


class NotingServer(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that distrusts the certificate is one of the cases."""


@pytest.fixture
def servers(tmp_path):
    """Role to URL, and what all of them have noted."""
    noted, urls, running = [], {}, []
    made = tmp_path / "authority.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "key.pem",
                    "-out", made, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    for role in ("gateway", "other", "proxy", "metadata", "metadata-off", "tls"):
        server = NotingServer(("127.0.0.1", 0), NotedRequests)
        server.role, server.noted = role, noted
        urls[role] = f"http://127.0.0.1:{server.server_port}"
        if role == "tls":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(made, tmp_path / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            urls[role] = f"https://localhost:{server.server_port}"
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield urls, noted
    for server in running:
        server.shutdown()
        server.server_close()


def environments(urls, authority):
    """By name."""
    nothing = {"PATH": os.environ["PATH"], "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    keys = {"AWS_ACCESS_KEY_ID": "AKTABLE", "AWS_SECRET_ACCESS_KEY": "a-secret"}
    off = {"AWS_EC2_METADATA_DISABLED": "true"}
    keyless = nothing | {"AWS_ENDPOINT_URL": urls["gateway"], "AWS_DEFAULT_REGION": "us-east-1"}
    plain = keyless | keys | off
    no_region = {name: value for name, value in plain.items() if name != "AWS_DEFAULT_REGION"}
    tls = plain | {"AWS_ENDPOINT_URL": urls["tls"], "AWS_MAX_ATTEMPTS": "1"}
    less = plain | {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required"}
    proxy = plain | {name: urls["proxy"] for name in ("HTTP_PROXY", "http_proxy")}
    return {
        "plain": plain,
        "put-plain": plain,
        "endpoint-s3": plain | {"AWS_ENDPOINT_URL_S3": urls["gateway"], "AWS_ENDPOINT_URL": urls["other"]},
        "session": plain | {"AWS_SESSION_TOKEN": "a-token"},
        "region": no_region | {"AWS_REGION": "eu-west-1"},
        "regions": no_region | {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-central-1"},
        "tries-503": plain | {"AWS_MAX_ATTEMPTS": "2"},
        "mode": plain | {"AWS_RETRY_MODE": "nonsense"},
        "less": less,
        "put-less": less,
        "bundle": tls | {"AWS_CA_BUNDLE": authority},
        "certificates": tls | {"SSL_CERT_FILE": authority},
        "metadata": keyless | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": urls["metadata"]},
        "metadata-off": keyless | off | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": urls["metadata-off"]},
        "proxy": proxy,
        "no-proxy": proxy | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
    }


def command_of(client, folder):
    """The program that has it, and its name for FOLDER."""
    if client == "s3torchconnector":
        if os.geteuid() != 0:
            not_proven("variables of s3torchconnector: its chroot needs root")
        return [str(TESTBED / "torch.sh"), "run", str(folder), "python3"], Path("/job")
    return [f"{prepared('venv.sh', 's3fs')}/bin/python" if client == "s3fs" else sys.executable], folder


def cells_of(could, noted):
    """Variable to what the table says of it, by what was seen."""

    def asked(name, role=None):
        """The headers of the requests of an environment."""
        return [headers for to, path, headers in noted if re.search(rf"/{name}(\?|$)", path) and role in (None, to)]

    def has_checksum(name):
        named = [value if header == "x-amz-trailer" else header for headers in asked(name) for header, value in headers.items()]
        return any(re.match("x-amz-checksum-(crc|mode)", each) for each in named)

    def regions(name):
        return {headers["authorization"].split("/")[2] for headers in asked(name)}

    alone = regions("region") == {"eu-west-1"}
    first = {("eu-west-1",): "AWS_REGION", ("eu-central-1",): "AWS_DEFAULT_REGION"}.get(tuple(regions("regions")))
    session = asked("session")
    read = {
        "AWS_ENDPOINT_URL_S3": asked("endpoint-s3", "gateway"),
        "AWS_ENDPOINT_URL": could["plain"] and asked("plain", "gateway"),
        "AWS_ACCESS_KEY_ID": session and all("AKTABLE" in each["authorization"] and each["x-amz-security-token"] == "a-token" for each in session),
        "AWS_REGION": alone,
        "AWS_DEFAULT_REGION": first == "AWS_DEFAULT_REGION",
        "AWS_MAX_ATTEMPTS": len(asked("tries-503")) == 2,
        "AWS_RETRY_MODE": not could["mode"],
        "AWS_REQUEST_CHECKSUM_CALCULATION": [has_checksum(name) for name in ("plain", "put-plain", "less", "put-less")] == [True, True, False, False],
        "AWS_CA_BUNDLE": could["bundle"],
        "SSL_CERT_FILE": could["certificates"],
        "AWS_EC2_METADATA_DISABLED": {to for to, *_ in noted if "metadata" in to} == {"metadata"},
        "HTTP_PROXY": asked("proxy", "proxy"),
        "NO_PROXY": could["no-proxy"] and not asked("no-proxy", "proxy"),
    }
    cells = {name: "yes" if each else "no" for name, each in read.items()}
    if alone and first == "AWS_DEFAULT_REGION":
        cells |= {"AWS_REGION": "second", "AWS_DEFAULT_REGION": "first"}
    return cells


def table():
    """First variable of a row to its cells, from the second column on."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        if found := re.match(r"\| `([A-Z0-9_]+)`", line):
            rows[found[1]] = [cell.strip(" *") for cell in line.strip("|").split("|")][1:]
    return rows


@pytest.mark.parametrize("client", COLUMNS)
def test_a_client_takes_the_variables_of_the_table(servers, tmp_path, client):
    urls, noted = servers
    program, folder = command_of(client, tmp_path)
    (tmp_path / "job.py").write_text((JOBS / "variables_job.py").read_text())
    (tmp_path / "environments.json").write_text(json.dumps(environments(urls, str(folder / "authority.pem"))))
    command = [*program, str(folder / "job.py"), client, str(folder / "environments.json")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    seen = cells_of(json.loads(done.stdout.splitlines()[-1]), noted)
    written = {name: cells[COLUMNS[client] - 1].replace("for `s3://…` alone", "yes") for name, cells in table().items()}
    told = {name: cell for name, cell in written.items() if cell not in ("not known", "–")}
    assert len(told) >= 10 and told == {name: seen[name] for name in told}, done.stderr
