#!/usr/bin/env bash
# Builds the documents as a site in target/book, and installs mdBook for it if it is missing.
#
#   docs/build.sh             target/book/index.html
#
# mdBook renders one folder. So docs/ and the documents beside the code are copied to target/book-src, where links between
# them lead to the same places as in the repository.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
version=0.4.52
tools=${VERBS3_CACHE_DIR:-$HOME/.cache/verbs3}/mdbook
source=$root/target/book-src
cd "$root"

mkdir -p "$tools"
exec 8>"$tools/lock"; flock 8
if [ "$("$tools/bin/mdbook" --version 2>/dev/null)" != "mdbook v$version" ]; then
    echo "docs: building mdBook $version, which takes minutes" >&2
    cargo install --locked mdbook --version "$version" --root "$tools"
fi

rm -rf "$source"
mkdir -p "$source"
# Parts of COMPATIBILITY.md and of PERFORMANCE.md, and no documents themselves. What is copied is what
# tests/readability/check_links.py lets documents link to.
parts=(':!gateway/compatibility.template.md' ':!loadtest/findings.md')
git ls-files -z '*.md' 'config/examples/*.toml' ':!docs/SUMMARY.md' "${parts[@]}" |
    xargs -0 cp --parents -t "$source"
{
    echo "# Summary"
    echo
    echo "[verbs3](README.md)"
    # Paths from the root instead of from docs/.
    sed -E '1d; s#\]\(#](docs/#' docs/SUMMARY.md
    echo
    echo "# Beside the code"
    echo
    git ls-files '*.md' ':!README.md' ':!docs/*' "${parts[@]}" | while read -r path; do
        echo "- [$(sed -n '/^# /{s///p;q}' "$path")]($path)"
    done
} >"$source/SUMMARY.md"

MDBOOK_BOOK__SRC=target/book-src "$tools/bin/mdbook" build --dest-dir "$root/target/book" "$root"
echo "target/book/index.html"
