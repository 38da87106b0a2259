#!/usr/bin/env bash
#! Owns which Debian mirror the chroots of tests are made from: the machine's own. Sourced. Knows no chroot.

# The first http(s) address in apt's sources that is not the security archive.
mirror() {
  local found
  found=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    sed -n -E 's/^(deb +(\[[^]]*\] +)?|URIs: *)(https?:[^ ]+).*/\3/p' | sed 's,/*$,,' | grep -E -m 1 '/debian$') ||
    { echo "mirror: no Debian mirror (an http address ending in /debian) in /etc/apt/sources.list or sources.list.d: add one" >&2; return 1; }
  echo "$found"
}

# What mmdebstrap is told of the machine's proxy, a word a line.
mirror_options() {
  apt-config dump 2>/dev/null | sed -n 's/^Acquire::http::Proxy "\(.*\)";/--aptopt=Acquire::http::Proxy "\1"/p'
}
