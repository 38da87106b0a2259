"""Circles of files: files of one crate that import each other, directly or by way of others.

An arrow between a module and its own descendants is not counted: a parent and its children may know each other.
"""

import re
from collections import defaultdict
from pathlib import Path

USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


def module_of(path):
    """("gateway", ("read", "fetch")) of gateway/src/read/object_fetch.rs."""
    parts = path.parts
    if "src" not in parts:
        return None
    at = parts.index("src")
    names = list(parts[at + 1 :])
    names[-1] = names[-1].removesuffix(".rs")
    if names[-1] in ("lib", "main", "mod"):
        names.pop()
    return "/".join(parts[:at]), tuple(names)


def leaves(tree):
    """The paths of a use tree: "a::{b, c::d}" has a::b and a::c::d."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [re.sub(r"\s+as\s+\w+$", "", tree)]
    prefix, found, depth, start = tree[:brace], [], 0, brace + 1
    for position in range(brace, len(tree)):
        if tree[position] == "{":
            depth += 1
        elif tree[position] == "}":
            depth -= 1
        if (tree[position] == "," and depth == 1) or (tree[position] == "}" and depth == 0):
            found += [prefix + leaf for leaf in leaves(tree[start:position]) if leaf]
            start = position + 1
    return found


def imports(source):
    for match in USE.finditer(source.code):
        yield from leaves(" ".join(match.group(1).split()))
    yield from PATH.findall(source.code)


def file_arrows(sources):
    modules = {}
    for source in sources:
        module = module_of(source.path)
        if module:
            modules[module] = source
    # What a module's `use child::Name` makes reachable under its own path.
    carried = defaultdict(dict)

    def absolute(crate, module, path):
        names = path.split("::")
        if names[0] == "crate":
            return tuple(names[1:])
        at = list(module)
        if names[0] == "self":
            names = names[1:]
        elif names[0] == "super":
            while names and names[0] == "super":
                if not at:
                    return None
                at, names = at[:-1], names[1:]
        elif (crate, module + (names[0],)) not in modules:
            return None
        return tuple(at) + tuple(names)

    targets = defaultdict(set)
    for (crate, module), source in modules.items():
        for path in imports(source):
            target = absolute(crate, module, path)
            if target:
                targets[(crate, module)].add(target)
                carried[(crate, module)][target[-1]] = target

    def file_of(crate, target, depth=0):
        for cut in range(len(target), -1, -1):
            module = (crate, target[:cut])
            if module in modules:
                if cut < len(target) and depth < 4:
                    further = carried[module].get(target[cut])
                    if further and further != target:
                        return file_of(crate, further, depth + 1)
                return module
        return None

    arrows = defaultdict(set)
    for (crate, module), wanted in targets.items():
        for target in wanted:
            found = file_of(crate, target)
            if not found or found[1] == module:
                continue
            one, other = sorted((module, found[1]), key=len)
            if other[: len(one)] == one:
                continue
            arrows[(crate, module)].add(found)
    return arrows, modules


def file_circles(sources):
    """Lists of paths that form a circle, largest first (Tarjan's strongly connected components)."""
    arrows, modules = file_arrows(sources)
    index, low, stack, circles = {}, {}, [], []

    def visit(node):
        work = [(node, iter(sorted(arrows[node])))]
        index[node] = low[node] = len(index)
        stack.append(node)
        while work:
            at, rest = work[-1]
            for following in rest:
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    work.append((following, iter(sorted(arrows[following]))))
                    break
                if following in stack:
                    low[at] = min(low[at], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    circle = []
                    while True:
                        member = stack.pop()
                        circle.append(member)
                        if member == at:
                            break
                    if len(circle) > 1:
                        circles.append(sorted(str(modules[member].path) for member in circle))

    for node in sorted(modules):
        if node not in index:
            visit(node)
    return sorted(circles, key=len, reverse=True)
