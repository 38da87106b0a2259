"""Imports images into a folder of containerd's, for the disks of nodes whose emulated processors take minutes to unpack one.

    import_images.py FILE     FILE: what real_cluster.py says, as JSON. In mount and PID namespaces of its own"""

import json
import os
import signal
import sys
from pathlib import Path

from node_machine import find_programs, mount, start_containerd


def main(path: str) -> int:
    said = json.loads(Path(path).read_text())
    find_programs(said)
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    process = start_containerd(said, Path(said["folder"]))
    os.kill(process, signal.SIGTERM)
    os.waitpid(process, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
