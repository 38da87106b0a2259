"""Who has had how much of this host's CPUs: a run's servers, the engine with all its processes, and
everybody else.
"""

import os

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# Where these stand behind the name in /proc/PID/stat (proc_pid_stat(5)): the parent, and times: its
# own, and those of children that are gone.
PARENT, TIMES = 1, slice(11, 15)


def process_table():
    """Parent and CPU seconds of every process."""
    table = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            # It has ended meanwhile.
            continue
        table[int(entry)] = int(fields[PARENT]), sum(map(int, fields[TIMES])) / TICKS_A_SECOND
    return table


def tree_seconds(table, root):
    """Of a process and all below it, those that are gone included."""
    below = [child for child, (parent, _) in table.items() if parent == root]
    return table.get(root, (0, 0.0))[1] + sum(tree_seconds(table, child) for child in below)


def cpu_seconds(servers):
    """CPU seconds so far of each of `servers` (names to pids) and of the engine, of which this
    process is; of all CPUs, and idle ones.
    """
    table = process_table()
    with open("/proc/stat") as file:
        total = [int(field) for field in file.readline().split()[1:9]]
    seconds = {name: tree_seconds(table, pid) for name, pid in servers.items()}
    # This process was started by the launcher, and so were the other ranks.
    seconds["engine"] = tree_seconds(table, os.getppid())
    seconds["all"] = sum(total) / TICKS_A_SECOND
    seconds["idle"] = (total[3] + total[4]) / TICKS_A_SECOND
    return seconds
