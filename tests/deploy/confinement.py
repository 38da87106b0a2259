"""Takes from the calling process what a container runtime takes: capabilities, the way to new privileges, and the system calls that
`RuntimeDefault` refuses. Knows no manifest beyond a container's rights."""

import ctypes
import errno
import os
import platform
import struct

LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38
SECCOMP_MODE_FILTER = 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
ARCHITECTURE_X86_64 = 0xC000003E

# Numbers of linux/capability.h.
CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8,
                "NET_BIND_SERVICE": 10, "NET_RAW": 13, "IPC_LOCK": 14, "SYS_CHROOT": 18, "MKNOD": 27, "AUDIT_WRITE": 29, "SETFCAP": 31}
CAPABILITY_LAST = 40

# System calls of x86_64 that containerd's default profile refuses a container without capabilities. Among them are those that a
# cache might want: io_uring, memory policies, userfaultfd, keyrings.
REFUSED = {
    "acct": 163, "add_key": 248, "bpf": 321, "clock_settime": 227, "delete_module": 176, "fanotify_init": 300, "finit_module": 313,
    "fsconfig": 431, "fsmount": 432, "fsopen": 430, "get_mempolicy": 239, "init_module": 175, "io_uring_enter": 426,
    "io_uring_register": 427, "io_uring_setup": 425, "ioperm": 173, "iopl": 172, "kcmp": 312, "kexec_load": 246, "keyctl": 250,
    "mbind": 237, "mount": 165, "mount_setattr": 442, "move_mount": 429, "move_pages": 279, "open_by_handle_at": 304,
    "open_tree": 428, "perf_event_open": 298, "pivot_root": 155, "quotactl": 179, "reboot": 169, "request_key": 249,
    "set_mempolicy": 238, "setdomainname": 171, "sethostname": 170, "setns": 308, "settimeofday": 164, "swapoff": 168, "swapon": 167,
    "syslog": 103, "umount2": 166, "unshare": 272, "userfaultfd": 323, "vhangup": 153,
}


def checked(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def seccomp_filter() -> None:
    instructions = [(LOAD_WORD, 0, 0, 4), (JUMP_IF_EQUAL, 1, 0, ARCHITECTURE_X86_64), (RETURN, 0, 0, ALLOW), (LOAD_WORD, 0, 0, 0)]
    for number in REFUSED.values():
        instructions += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | errno.EPERM)]
    instructions.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in instructions))
    program = struct.pack("HL", len(instructions), ctypes.addressof(code))
    checked(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0))


def confine(container, user: int) -> None:
    """The calling process goes on as USER, with the container's rights: to be called between fork and exec."""
    kept = {CAPABILITIES[name] for name in container.capabilities}
    for number in range(CAPABILITY_LAST + 1):
        if number not in kept:
            checked(LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    os.setuid(user)
    if not container.may_gain_privileges or container.has_seccomp:
        checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if container.has_seccomp and platform.machine() == "x86_64":
        seccomp_filter()
