"""The system calls that code in the sandbox may not make, as a program for the kernel's filter (seccomp, classic BPF).

Bubblewrap isolates by namespaces; this filter blocks what namespaces do not limit: processes, signals between calls,
memory that is not counted, and rarely used parts of the kernel in which escapes were found. A refused call fails with
EPERM; a call with another architecture's numbers kills the process. Numbers: x86_64, and the table that aarch64 shares
with all newer architectures (Linux `asm-generic/unistd.h`); others have no filter, and so no strong sandbox.
"""

from __future__ import annotations

import platform
import struct
import sys

REFUSED: dict[str, tuple[int, int | None]] = {
    # start processes or threads, become another program
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # signal, look into or slow down another process
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # network, and memory that no limit counts or that outlives the process
    "socket": (41, 198),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "io_uring_setup": (425, 425),
    # other namespaces and file systems
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    # rarely used parts of the kernel
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "acct": (163, 89),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    # the limits
    "setrlimit": (160, 164),
}
"""Numbers on (x86_64, aarch64) by the call's name; None if the call does not exist there."""
PRLIMIT = {"x86_64": 302, "aarch64": 261}
"""System call that is allowed only to read the process's own limits."""
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of `REFUSED` and AUDIT_ARCH of the kernel, by machine."""
X32 = 0x40000000
"""First number of a second table for the same calls on x86_64."""

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050001
NUMBER, ARCHITECTURE, FIRST, THIRD = 0, 4, 16, 32
"""Offsets in `struct seccomp_data` of the number, the architecture and two arguments (8 bytes, little-endian)."""

Instruction = tuple[int, int, int, int]
"""Code, number of instructions to skip if true, number to skip if false, constant."""


def program(machine: str | None = None) -> bytes | None:
    """Return the filter for this machine, 8 bytes per instruction; None if this machine has no filter."""
    machine = machine or platform.machine()
    if sys.platform != "linux" or machine not in ARCHITECTURES:
        return None
    column, architecture = ARCHITECTURES[machine]
    numbers = [pair[column] for pair in REFUSED.values()]
    refused = [number for number in numbers if number is not None]
    lines: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        lines += [(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)]
    lines += [(EQUAL, len(refused) + 1 - index, 0, number) for index, number in enumerate(refused)]
    lines += [
        (EQUAL, 2, 0, PRLIMIT[machine]),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, EPERM),
        # prlimit: of oneself (0), and nothing new to set (a null pointer)
        (LOAD, 0, 0, FIRST),
        (EQUAL, 0, 5, 0),
        (LOAD, 0, 0, THIRD),
        (EQUAL, 0, 3, 0),
        (LOAD, 0, 0, THIRD + 4),
        (EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, EPERM),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)
