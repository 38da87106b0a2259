#!/usr/bin/env bash
#! Owns how the suite is called: one endpoint's env file (as testbed/rgw.sh writes it), one record, the rest is pytest's.
#!
#!     run.sh ENV [--record FILE] [--reader ENV] [--via gateway] [--store rgw] [PYTEST ARGUMENTS…]
#!
#! ENV holds ENDPOINT, ACCESS_KEY, SECRET_KEY and, where there are virtual-host names, VHOST_DOMAIN; for the jobs in
#! clients/, ADMIN: the admin addresses of all gateways and workers that run there.
set -euo pipefail
HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

value() { sed -n "s/^$2=//p" "$1"; } # FILE NAME

[ $# -ge 1 ] || { sed -n '2,7s/^#! \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
S3_ENDPOINT=$(value "$1" ENDPOINT) S3_ACCESS_KEY=$(value "$1" ACCESS_KEY) S3_SECRET_KEY=$(value "$1" SECRET_KEY)
S3_VHOST_DOMAIN=$(value "$1" VHOST_DOMAIN) S3_ADMIN=$(value "$1" ADMIN)
export S3_ENDPOINT S3_ACCESS_KEY S3_SECRET_KEY S3_VHOST_DOMAIN S3_ADMIN
shift
while [ $# -gt 0 ]; do
  case $1 in
    --record) S3_RECORD=$(readlink -f "$2"); export S3_RECORD; shift 2 ;;
    --via) export S3_VIA=$2; shift 2 ;;
    --store) export S3_STORE=$2; shift 2 ;;
    --reader)
      S3_READER_ENDPOINT=$(value "$2" ENDPOINT) S3_READER_ACCESS_KEY=$(value "$2" ACCESS_KEY) S3_READER_SECRET_KEY=$(value "$2" SECRET_KEY)
      export S3_READER_ENDPOINT S3_READER_ACCESS_KEY S3_READER_SECRET_KEY
      shift 2 ;;
    *) break ;;
  esac
done
VENV=$("$HERE/../testbed/venv.sh")
[ $# -gt 0 ] || set -- "$HERE"
exec "$VENV/bin/python" -m pytest -c "$HERE/pytest.ini" "$@"
