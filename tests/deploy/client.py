"""Owns the client that these tests read and write as: its key, and what it may do."""

ACCESS_KEY, SECRET_KEY = "CLIENT", "a-secret-of-a-client"

IDENTITIES = f"""\
[[identity]]
name = "client"
access_key = "{ACCESS_KEY}"
secret_key = "{SECRET_KEY}"
allow = [{{ mount = "*", rights = ["read", "write", "list", "delete"] }}]
"""
