"""The system calls that nothing in a sandbox may make: a program for the kernel (bubblewrap), and a profile (docker,
podman).

Refused are calls by which a process without rights gets new ones to try them with (user namespaces, mounts), those that
lead past the network namespace (vsock, foreign families of sockets), those of large and seldom needed parts of the
kernel (BPF, io_uring, keys, performance counters), and, where no control group counts them, those that take memory
which no other limit sees.
"""

from __future__ import annotations

import json
import platform
import struct
from dataclasses import dataclass
from functools import cache

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
#: Flags of clone and unshare that make a namespace; unshare alone knows the one of time.
_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_NEW_TIME = 0x80
#: Families of sockets: local, IPv4, IPv6 and, for the list of interfaces only, netlink.
_LOCAL, _NETLINK, _FAMILIES = 1, 16, (1, 2, 10, 16)
_LAST_FAMILY = 45
#: Options of SOL_SOCKET that make the buffers of a socket larger: SO_SNDBUF, SO_RCVBUF and both with FORCE.
_SOCKET_LEVEL, _BUFFERS = 1, (7, 8, 32, 33)
#: A SysV segment up to this may be made; PostgreSQL takes one of 56 bytes.
_SMALL_SEGMENT = 2**16
#: ioctl: put characters into the input of a terminal (TIOCSTI), and paste what was marked on a console (TIOCLINUX).
_TYPING = (0x5412, 0x541C)


@dataclass(frozen=True, slots=True)
class _If:
    """A condition on one argument of a call. `sign`: "==" and ">" look at its lower 32 bits, "&" for any bit of `value`
    in these, ">>" is ">" on all 64.
    """

    argument: int
    sign: str
    value: int


@dataclass(frozen=True, slots=True)
class _Call:
    """A refused call. `numbers`: on x86_64 and aarch64, -1 where there is none. `when`: it is refused where all
    conditions of one of these hold; empty = always. `error`: what the caller gets.
    """

    name: str
    numbers: tuple[int, int]
    error: int = _EPERM
    when: tuple[tuple[_If, ...], ...] = ()


def _any_flag(*flags: int) -> tuple[tuple[_If, ...], ...]:
    return tuple((_If(0, "&", flag),) for flag in flags)


#: Refused always. With ENOSYS programs take the older call, whose flags can be looked at, or do without.
_ALWAYS = (
    _Call("clone", (56, 220), when=_any_flag(*_NAMESPACES)),
    _Call("clone3", (435, 435), _ENOSYS),
    _Call("unshare", (272, 97), when=_any_flag(_NEW_TIME, *_NAMESPACES)),
    _Call("setns", (308, 268)),
    _Call("mount", (165, 40)),
    _Call("umount2", (166, 39)),
    _Call("pivot_root", (155, 41)),
    _Call("chroot", (161, 51)),
    _Call("open_tree", (428, 428)),
    _Call("move_mount", (429, 429)),
    _Call("fsopen", (430, 430)),
    _Call("fsconfig", (431, 431)),
    _Call("fsmount", (432, 432)),
    _Call("fspick", (433, 433)),
    _Call("mount_setattr", (442, 442)),
    _Call("open_by_handle_at", (304, 265)),
    _Call("bpf", (321, 280)),
    _Call("perf_event_open", (298, 241)),
    _Call("userfaultfd", (323, 282)),
    _Call("io_uring_setup", (425, 425), _ENOSYS),
    _Call("io_uring_enter", (426, 426), _ENOSYS),
    _Call("io_uring_register", (427, 427), _ENOSYS),
    _Call("add_key", (248, 217)),
    _Call("request_key", (249, 218)),
    _Call("keyctl", (250, 219)),
    _Call("kcmp", (312, 272)),
    _Call("memfd_secret", (447, 447), _ENOSYS),
    _Call("fanotify_init", (300, 262)),
    _Call("lookup_dcookie", (212, 18)),
    _Call("quotactl", (179, 60)),
    _Call("quotactl_fd", (443, 443)),
    _Call("acct", (163, 89)),
    _Call("swapon", (167, 224)),
    _Call("swapoff", (168, 225)),
    _Call("reboot", (169, 142)),
    _Call("kexec_load", (246, 104)),
    _Call("kexec_file_load", (320, 294)),
    _Call("init_module", (175, 105)),
    _Call("finit_module", (313, 273)),
    _Call("delete_module", (176, 106)),
    _Call("syslog", (103, 116)),
    _Call("settimeofday", (164, 170)),
    _Call("clock_settime", (227, 112)),
    _Call("vhangup", (153, 58)),
    _Call("ioctl", (16, 29), when=tuple((_If(1, "==", request),) for request in _TYPING)),
    _Call(
        "socket",
        (41, 198),
        _EAFNOSUPPORT,
        (
            *((_If(0, "==", family),) for family in range(_LAST_FAMILY + 1) if family not in _FAMILIES),
            (_If(0, ">", _LAST_FAMILY),),
            (_If(0, "==", _NETLINK), _If(2, ">", 0)),
        ),
    ),
    _Call("socketpair", (53, 199), _EAFNOSUPPORT, ((_If(0, "==", 0),), (_If(0, ">", _LOCAL),))),
)
#: Refused to programs that run beside their tests: looking into another process of the same user.
_LOOKING = (
    _Call("ptrace", (101, 117)),
    _Call("process_vm_readv", (310, 270)),
    _Call("process_vm_writev", (311, 271)),
    _Call("process_madvise", (440, 440)),
    _Call("pidfd_getfd", (438, 438)),
)
#: Refused where no control group counts memory: what these take is part of no process's size.
_UNCOUNTED = (
    _Call("memfd_create", (319, 279), _ENOSYS),
    _Call("shmget", (29, 194), when=((_If(1, ">>", _SMALL_SEGMENT),),)),
    _Call("msgget", (68, 186)),
    _Call(
        "setsockopt", (54, 208), when=tuple((_If(1, "==", _SOCKET_LEVEL), _If(2, "==", option)) for option in _BUFFERS)
    ),
)
#: Machine → the kernel's name for its calls (AUDIT_ARCH_*), and which of a call's numbers is meant.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: From here on x86_64 counts the calls of another convention (x32), with other numbers for the same things.
_X32 = 0x40000000

_LOAD, _EQUAL, _GREATER, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


def _refused(counted: bool, tracing: bool) -> tuple[_Call, ...]:
    return (*_ALWAYS, *(() if tracing else _LOOKING), *(() if counted else _UNCOUNTED))


@cache
def program(counted: bool, tracing: bool, machine: str | None = None) -> bytes | None:
    """The filter for the kernel (an array of `sock_filter`); None for a machine whose calls are not in the table.

    `counted`: a control group counts memory, so what else is uncounted need not be refused. `tracing`: processes may
    look into each other (debuggers, leak checkers). Calls of another architecture than the machine's own do not exist
    inside. `machine`: default this one.
    """
    kernel = _MACHINES.get(machine or platform.machine())
    if kernel is None:
        return None
    architecture, column = kernel
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ERROR | _ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    for call in _refused(counted, tracing):
        if call.numbers[column] >= 0:
            body = _body(call)
            code += [(_EQUAL, 0, len(body), call.numbers[column]), *body]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _body(call: _Call) -> list[tuple[int, int, int, int]]:
    """Instructions once the number fits: they look at arguments, and always return."""
    refuse = (_RETURN, 0, 0, _ERROR | call.error)
    if not call.when:
        return [refuse]
    code: list[tuple[int, int, int, int]] = []
    for conditions in call.when:
        tests = [_test(condition) for condition in conditions]
        rest = sum(map(len, tests)) + 1  # instructions up to the next alternative
        for test in tests:
            rest -= len(test)
            code += [(kind, yes, rest if no == _NEXT else no, value) for kind, yes, no, value in test]
        code.append(refuse)
    return [*code, (_RETURN, 0, 0, _ALLOW)]


_NEXT = 255  # stands for the way to the next alternative until that is known


def _test(condition: _If) -> list[tuple[int, int, int, int]]:
    """Falls through where the condition holds."""
    low = _ARGUMENTS + 8 * condition.argument  # both machines put the lower half first
    if condition.sign == ">>":
        return [(_LOAD, 0, 0, low + 4), (_GREATER, 2, 0, 0), (_LOAD, 0, 0, low), (_GREATER, 0, _NEXT, condition.value)]
    kind = {"==": _EQUAL, ">": _GREATER, "&": _BITS}[condition.sign]
    return [(_LOAD, 0, 0, low), (kind, 0, _NEXT, condition.value)]


def profile(counted: bool, tracing: bool) -> str:
    """The same for docker and podman: the text of a seccomp profile."""
    rules = []
    for call in _refused(counted, tracing):
        for conditions in call.when or ((),):
            rule = {"names": [call.name], "action": "SCMP_ACT_ERRNO", "errnoRet": call.error}
            rules.append({**rule, "args": [_argument(condition) for condition in conditions]})
    architectures = [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
    ]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "archMap": architectures, "syscalls": rules})


def _argument(condition: _If) -> dict[str, int | str]:
    if condition.sign in (">", ">>"):
        return {"index": condition.argument, "value": condition.value, "op": "SCMP_CMP_GT"}
    mask = condition.value if condition.sign == "&" else 2**32 - 1  # the kernel does not look at the upper half either
    return {"index": condition.argument, "value": mask, "valueTwo": condition.value, "op": "SCMP_CMP_MASKED_EQ"}
