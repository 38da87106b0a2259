"""The first process of a node that is a virtual machine with a soft RDMA device: what a real machine's start would do, then what
node_machine.py does.

    virtual_node.py FILE      FILE: what real_cluster.py says of the node, as JSON. In a guest of tests/testbed/vm.sh"""

import json
import os
import subprocess
import sys
from pathlib import Path

from node_machine import find_programs, mount, prepare_network, run_node

# Of pods' networks, of Services by kube-proxy, of what the device plugin wants besides, and of the disk: nothing loads them by itself here.
MODULES = ("bridge", "br_netfilter", "veth", "nf_tables", "nft_chain_nat", "nft_ct", "nft_nat", "nft_masq", "nft_reject_inet", "nft_fib_inet",
           "nft_numgen", "nft_limit", "nft_hash", "nft_log", "ib_umad",
           "virtio_blk", "ext4")
# What udev gives everybody on a real machine: a process that opens one may use the device.
OPEN_DEVICES = ("rdma_cm", "uverbs*")


def load_modules() -> None:
    for name in MODULES:
        subprocess.run(["modprobe", "-d", os.environ["VM_MODULES"], "-S", os.environ["VM_KERNEL"], name], check=True)
    for pattern in OPEN_DEVICES:
        for path in Path("/dev/infiniband").glob(pattern):
            path.chmod(0o666)


def show_device_of_nic(place: Path) -> None:
    """The PCI function of eth0 as a NIC's with RDMA has it: the soft device belongs to no function, and plugins look for devices there."""
    function = Path("/sys/class/net/eth0/device").resolve().parent
    shown = place / function.name
    shown.mkdir(parents=True)
    for path in function.iterdir():
        (shown / path.name).symlink_to(path.resolve())
    device, = Path("/sys/class/infiniband").iterdir()
    for kind, name in (("net", "eth0"), ("infiniband", device.name)):
        (shown / kind / name).mkdir(parents=True)


def main(path: str) -> int:
    said = json.loads(Path(path).read_text())
    folder = Path(said["folder"])
    find_programs(said)
    mount("--make-rshared", "/")
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    load_modules()
    # With the images, unpacked.
    folder.mkdir(parents=True)
    mount("/dev/vda", folder)
    show_device_of_nic(Path(said["nics"]))
    prepare_network(said)
    return run_node(said, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
