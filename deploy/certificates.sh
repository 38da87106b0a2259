#!/usr/bin/env bash
# Makes an authority of its own and the certificates of an etcd for the coordinators, which then
# answers nobody without one.
#
#   certificates.sh FOLDER MEMBER...    MEMBER: host name of a member of etcd, as in its URLs
#
# FOLDER/ca.crt, ca.key         the authority: keep ca.key off the cluster
# FOLDER/members.crt, .key      of all members, for each other and for coordinators
# FOLDER/coordinators.crt, .key of the coordinators, who are no members
#
# What is there already stays: a second run adds what is missing. DAYS=N: how long they hold (825).
set -euo pipefail
[ $# -ge 2 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 2,12p >&2; exit 2; }
folder=$1; shift
days=${DAYS:-825}
umask 077
mkdir -p "$folder"

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

if [ ! -e "$folder/ca.crt" ]; then
    key "$folder/ca.key"
    openssl req -x509 -new -key "$folder/ca.key" -out "$folder/ca.crt" -days 3650 -subj "/CN=verbs3 etcd authority" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
fi

# certificate NAME COMMON_NAME USAGE SUBJECT_NAMES
certificate() {
    [ ! -e "$folder/$1.crt" ] || return 0
    key "$folder/$1.key"
    openssl req -new -key "$folder/$1.key" -subj "/CN=$2" |
        openssl x509 -req -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days "$days" \
            -extfile <(printf 'extendedKeyUsage=%s\nkeyUsage=critical,digitalSignature\nsubjectAltName=%s\n' "$3" "$4") \
            -out "$folder/$1.crt" 2>/dev/null
}

names=DNS:localhost,IP:127.0.0.1
for member; do names+=,DNS:$member; done
# etcd takes peers of this name alone: --peer-cert-allowed-cn=verbs3-etcd.
certificate members verbs3-etcd serverAuth,clientAuth "$names"
certificate coordinators verbs3-coordinator clientAuth DNS:verbs3-coordinator
openssl verify -CAfile "$folder/ca.crt" "$folder/members.crt" "$folder/coordinators.crt" >/dev/null
