#!/usr/bin/python3
"""Checks who includes whom (the design's section 3, "Who may include whom").

    include_rules.py [ROOT]      prints one line a violation; exit status 1 if there is any

Four kinds of rule, each a table or a short function below:
  parts      daemon/PART may include only the parts listed for it
  walls      ctl/ never includes daemon/; daemon/ never includes ctl/; proto/ includes nothing of ours
  rooms      a vendor's headers stay in the folder that wraps the vendor
  cycles     no header includes itself in a roundabout way
"""
import fnmatch
import os
import pathlib
import re
import sys

# What each part of the daemon may include beside itself.
# The order is the design's: main → net → rpc → session → job → {replica, model, store} → backend → base.
PARTS = {
    "base": set(),
    "model": {"base"},
    "store": {"base"},
    "backend": {"model", "base"},
    "replica": {"backend", "model", "base"},
    # service/ starts trainers for job/ (job/launcher.h) and asks the store whether it is alive
    "service": {"job", "store", "base"},
    "job": {"replica", "model", "store", "backend", "base"},
    "session": {"job", "replica", "model", "store", "backend", "base", "proto"},
    "rpc": {"session", "job", "replica", "model", "store", "backend", "base", "proto"},
    "net": {"rpc", "base", "proto"},
}
# daemon/*.c, the program itself, puts all parts together.
PARTS["main"] = set(PARTS) | {"proto"}

# Header pattern → where it may be included.
ROOMS = [
    ("nghttp2/*", ["daemon/net/*", "ctl/client*"]),
    ("event2/*", ["daemon/net/*", "ctl/client*"]),
    ("openssl/*", ["daemon/net/*", "ctl/client*"]),
    ("sqlite3*.h", ["daemon/store/*"]),
    ("dnnl*", ["daemon/backend/onednn*"]),
    ("oneapi/dnnl/*", ["daemon/backend/onednn*"]),
    ("cuda*", ["daemon/backend/cuda*"]),
    ("cudnn*", ["daemon/backend/cuda*"]),
    ("cublas*", ["daemon/backend/cuda*"]),
    ("nccl*", ["daemon/backend/cuda*"]),
    ("systemd/*", ["daemon/service/*"]),
    ("zip.h", ["ctl/*"]),
    ("zlib.h", ["ctl/*"]),
    ("ini.h", ["daemon/*.c"]),
]
# fnmatch's "*" crosses "/"; the pattern above must not let a part include inih.
TOP_LEVEL_ONLY = {"daemon/*.c"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
SOURCES = (".c", ".h", ".cu", ".cuh")
FOLDERS = ("daemon", "ctl", "proto")


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES and path.is_file():
                yield path.relative_to(root)


def resolve(root, source, quote, name):
    """The file of ours that this include means, relative to root, or None for a foreign header."""
    here = [] if quote == "<" else [source.parent]
    for base in here + [pathlib.Path("daemon"), pathlib.Path("."), pathlib.Path("ctl")]:
        candidate = pathlib.Path(os.path.normpath(base / name))
        if (root / candidate).is_file():
            return candidate
    return None


def is_generated(name):
    return name.endswith((".pb-c.h", ".inc"))


def part_of(path):
    """daemon/net/x.h → net; daemon/main.c → main; proto/x.h → proto."""
    parts = path.parts
    if parts[0] != "daemon":
        return parts[0]
    return parts[1] if len(parts) > 2 else "main"


def check_parts(source, target, target_part):
    part = part_of(source)
    if part not in PARTS:
        return f"{source}: daemon/{part}/ is a part that tests/structure/include_rules.py does not know"
    allowed = PARTS[part]
    if target_part == part or target_part in allowed:
        return None
    return f"{source}: {part} may not include {target_part} ({target})"


def check_walls(source, target_part):
    top = source.parts[0]
    if top == "ctl" and target_part not in ("ctl", "proto"):
        return f"{source}: ctl never includes daemon ({target_part})"
    if top == "proto" and target_part != "proto":
        return f"{source}: proto includes nothing of ours ({target_part})"
    if top == "daemon" and target_part == "ctl":
        return f"{source}: daemon never includes ctl"
    return None


def room_allows(source, patterns):
    for pattern in patterns:
        if pattern in TOP_LEVEL_ONLY and len(source.parts) != 2:
            continue
        if fnmatch.fnmatchcase(str(source), pattern):
            return True
    return False


def check_rooms(source, name):
    for header, patterns in ROOMS:
        if fnmatch.fnmatchcase(name, header) and not room_allows(source, patterns):
            return f"{source}: <{name}> belongs into {' or '.join(patterns)}"
    return None


def check_include(root, source, quote, name):
    """Yields what is wrong with one include line, and last the file of ours that it means."""
    target = resolve(root, source, quote, name)
    if target is None and not is_generated(name):
        return check_rooms(source, name), None
    target_part = "proto" if target is None else part_of(target)
    where = target if target is not None else pathlib.Path("proto") / name
    problem = check_walls(source, target_part)
    if problem is None and source.parts[0] == "daemon":
        problem = check_parts(source, where, target_part)
    return problem, target


def find_cycles(graph):
    """Cycles of the include graph, each once, as lists of paths."""
    cycles, done, stack, on_stack = [], set(), [], set()

    def visit(node):
        stack.append(node)
        on_stack.add(node)
        for follower in sorted(graph.get(node, ())):
            if follower in on_stack:
                cycles.append(stack[stack.index(follower):] + [follower])
            elif follower not in done:
                visit(follower)
        stack.pop()
        on_stack.discard(node)
        done.add(node)

    for node in sorted(graph):
        if node not in done:
            visit(node)
    return cycles


def check(root):
    """All violations below root, as sentences."""
    problems, graph = [], {}
    for source in sources(root):
        text = (root / source).read_text(errors="replace")
        for quote, name in INCLUDE.findall(text):
            problem, target = check_include(root, source, quote, name)
            if problem:
                problems.append(problem)
            if target is not None:
                graph.setdefault(source, set()).add(target)
    for cycle in find_cycles(graph):
        problems.append("include cycle: " + " → ".join(str(p) for p in cycle))
    return problems


def main(argv):
    root = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
