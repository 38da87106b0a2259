"""The first process of a node: what it mounts, then containerd, kubelet and kube-proxy. It ends, and with it the node, when one of
them does.

    node_machine.py FILE      FILE: what real_cluster.py says of the node, as JSON"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

# What kubelet wants of the kernel. It writes them for the whole machine unless they are so: it sees files that say they are.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
           "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
# Of cgroup v1. Each kubelet has a cgroup of its own, as its machine's root.
CONTROLLERS = ("cpuset", "cpu", "cpuacct", "memory", "devices", "freezer", "blkio", "pids", "systemd")

CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
                    "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE no process may be made less likely to be killed.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{programs}/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def mount(*words) -> None:
    subprocess.run(["mount", *(str(word) for word in words)], check=True)


def prepare_folders(said: dict, folder: Path) -> None:
    mount("--make-rshared", "/")
    for place in ("/var/log", "/var/lib/cni"):
        (folder / place.lstrip("/")).mkdir(parents=True)
        mount("--bind", folder / place.lstrip("/"), place)
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name, value in SYSCTLS.items():
        seen = folder / name.replace("/", "_")
        seen.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            mount("--bind", seen, f"/proc/sys/{name}")
    # For the chart's own etcd: what a storage class would make.
    for name in said["volumes"]:
        Path(name).mkdir(parents=True)


def prepare_cgroups(name: str) -> None:
    for controller in CONTROLLERS:
        path = Path("/sys/fs/cgroup", controller)
        for part in name.strip("/").split("/"):
            above, path = path, path / part
            path.mkdir(exist_ok=True)
            if controller == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (path / file).write_text((above / file).read_text())


def prepare_network(said: dict) -> None:
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    subprocess.run(["hostname", said["name"]], check=True)
    ip("link", "set", "lo", "up")
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True).returncode != 0:
        time.sleep(0.05)
    ip("addr", "replace", f"{said['address']}/24", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    for pods, node in said["routes"]:
        ip("route", "add", pods, "via", node)
    ip("route", "add", "default", "via", said["hub"])
    # The second: what goes from pod to pod of one node by a Service is translated back on its way, too.
    for name in ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"):
        if Path("/proc/sys", name).exists():
            Path("/proc/sys", name).write_text("1")


def write_configurations(said: dict, folder: Path) -> None:
    (folder / "cni").mkdir(exist_ok=True)
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
              "ipam": {"type": "host-local", "ranges": [[{"subnet": said["pods"]}]], "routes": [{"dst": "0.0.0.0/0"}]}}
    (folder / "cni/10.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}))
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": said["authority"]}},
        "authorization": {"mode": "Webhook"}, "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs", "cgroupRoot": said["cgroup"], "failSwapOn": False, "failCgroupV1": False, "enforceNodeAllocatable": ["none"],
        "clusterDNS": [said["hub"]], "clusterDomain": "cluster.local", "resolvConf": "",
        "podLogsDir": str(folder / "pod-logs"), "volumePluginDir": str(folder / "volume-plugins"), "serializeImagePulls": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        # So that a volume which changed is there within seconds.
        "syncFrequency": "5s", "configMapAndSecretChangeDetectionStrategy": "Watch",
    }
    (folder / "kubelet.json").write_text(json.dumps(kubelet))


def start(name: str, said: dict, *words) -> int:
    with Path(said["logs"], f"{name}.log").open("ab") as log:
        return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid


def start_containerd(said: dict, folder: Path) -> int:
    (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, pause=said["pause"], programs=said["containerd"]))
    process = start("containerd", said, "containerd", "--config", folder / "containerd.toml")
    ctr = ["ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io"]
    while subprocess.run([*ctr, "version"], capture_output=True).returncode != 0:
        time.sleep(0.2)
    for path, repository in said["images"]:
        told = subprocess.run([*ctr, "images", "import", "--digests", "--base-name", repository, path], capture_output=True, text=True)
        print(told.stdout, told.stderr, flush=True)
        if told.returncode != 0:
            raise SystemExit(f"image {path} is not taken")
    return process


def run_node(said: dict, folder: Path) -> int:
    """Until one of its programs has ended."""
    write_configurations(said, folder)
    programs, config = said["kubernetes"], folder / "kubelet.json"
    running = {start_containerd(said, folder): "containerd"}
    running[start("kubelet", said, f"{programs}/kubelet", f"--config={config}", f"--kubeconfig={said['kubelet_access']}",
                  f"--root-dir={said['kubelet_root']}", f"--node-ip={said['address']}", f"--hostname-override={said['name']}",
                  f"--register-with-taints={said['taints']}", "--v=2")] = "kubelet"
    # Without the settings of connection tracking, which are the whole machine's.
    running[start("kube-proxy", said, f"{programs}/kube-proxy", "--proxy-mode=nftables", f"--kubeconfig={said['proxy_access']}",
                  f"--hostname-override={said['name']}", "--cluster-cidr=10.88.0.0/16", "--conntrack-max-per-core=0",
                  "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")] = "kube-proxy"
    while True:
        # Whatever lost its parent is this process' to wait for.
        process, status = os.wait()
        if process in running:
            print(f"{running[process]} has ended: {status}", flush=True)
            return 1


def find_programs(said: dict) -> None:
    os.environ["PATH"] = f"{said['containerd']}/usr/bin:{said['containerd']}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(path: str) -> int:
    said = json.loads(Path(path).read_text())
    folder = Path(said["folder"])
    find_programs(said)
    prepare_folders(said, folder)
    prepare_cgroups(said["cgroup"])
    prepare_network(said)
    return run_node(said, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
