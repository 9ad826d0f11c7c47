"""Run inside a sandbox: tries one thing after the other, each in a process of its own, and compares with what was
promised.

Sent as a unit (`main(data)`) or started with the data as JSON on stdin; prints or raises what came out otherwise.
Standard library only.
"""

# ruff: noqa: PTH123
import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, SIGNAL = 0x10000000, signal.SIGCHLD


def call(number, *arguments):
    """A bare system call; raises `OSError`."""
    ctypes.set_errno(0)
    result = LIBC.syscall(*(ctypes.c_long(word) for word in (number, *arguments, *[0] * (6 - len(arguments)))))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def number(name):
    x86 = {
        "clone": 56,
        "clone3": 435,
        "unshare": 272,
        "setns": 308,
        "socket": 41,
        "ioctl": 16,
        "shmget": 29,
        "msgget": 68,
        "ptrace": 101,
    }
    arm = {
        "clone": 220,
        "clone3": 435,
        "unshare": 97,
        "setns": 268,
        "socket": 198,
        "ioctl": 29,
        "shmget": 194,
        "msgget": 186,
        "ptrace": 117,
    }
    return (x86 if platform.machine() == "x86_64" else arm)[name]


def unshare(flags):
    return call(number("unshare"), flags)


def clone(flags):
    if call(number("clone"), flags | SIGNAL) == 0:
        os._exit(0)
    os.wait()


def nested_user_namespace():
    """As it was done: become dumpable, a namespace with all capabilities, a tmpfs without bound."""
    LIBC.prctl(4, 1, 0, 0, 0)
    user, group = os.getuid(), os.getgid()
    unshare(NEW_USER | 0x00020000)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    mount_tmpfs()


def mount_tmpfs():
    ctypes.set_errno(0)
    if LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, b"size=100g"):
        raise OSError(ctypes.get_errno(), "mount")


def vsock():
    with socket.socket(40, socket.SOCK_STREAM) as made:
        made.bind((socket.VMADDR_CID_ANY, 7731))


def families():
    """Those that a socket can be made of, beyond the four that programs need."""
    more = []
    for family in (*range(47), 255, 4096):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            for protocol in range(22):
                try:
                    call(number("socket"), family, kind, protocol)
                except OSError:
                    continue
                if family not in (1, 2, 10) and (family, protocol) != (16, 0):
                    more.append((family, kind, protocol))
    assert not more, more


def i386():
    """A call in the way of 32-bit programs, whose numbers mean other things."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(
        b"\xb8\x36\x01\x00\x00\xbb\x00\x00\x00\x10\xcd\x80\xc3"
    )  # mov eax, 310 (unshare); mov ebx, CLONE_NEWUSER; int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, "int 0x80")


def buffers():
    a, _ = socket.socketpair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**22)


def pipes():
    for _ in range(64):
        fcntl.fcntl(os.pipe()[1], 1031, 2**20)


def interfaces():
    socket.if_nameindex()
    socket.getaddrinfo("127.0.0.1", 80)
    a, b = socket.socketpair()
    a.send(b"x")
    assert b.recv(1) == b"x"


def semaphores():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


def subprocesses():
    import subprocess
    import threading

    done = []
    threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert subprocess.run([sys.executable, "-S", "-c", "print(7)"], capture_output=True).stdout == b"7\n"
    assert len(done) == 8


PROBES = {
    "nested user namespace with a tmpfs": nested_user_namespace,
    **{
        f"unshare {flag:#x}": lambda flag=flag: unshare(flag)
        for flag in (0x80, *(1 << n for n in (17, 25, 26, 27, 28, 29, 30)))
    },
    **{f"clone {flag:#x}": lambda flag=flag: clone(flag) for flag in (1 << n for n in (17, 25, 26, 27, 28, 29, 30))},
    "unshare with a dirty upper half": lambda: unshare(NEW_USER | 1 << 40),
    "clone3": lambda: call(number("clone3"), 0, 88),
    "setns": lambda: call(number("setns"), os.open("/proc/self/ns/user", os.O_RDONLY), 0),
    "mount": mount_tmpfs,
    "open_tree": lambda: call(428, -100, 0, 1),
    "fsopen": lambda: call(430, 0, 0),
    "vsock": vsock,
    "vsock with a dirty upper half": lambda: call(number("socket"), 40 | 1 << 32, 1, 0),
    "other families of sockets": families,
    "io_uring": lambda: call(425, 8, ctypes.addressof(ctypes.create_string_buffer(120))),
    "bpf": lambda: call(321 if platform.machine() == "x86_64" else 280, 0, 0, 0),
    "perf": lambda: call(
        298 if platform.machine() == "x86_64" else 241, ctypes.addressof(ctypes.create_string_buffer(128)), 0, -1, -1
    ),
    "keyctl": lambda: call(250 if platform.machine() == "x86_64" else 219, 0, -3, 1),
    "add_key": lambda: call(248 if platform.machine() == "x86_64" else 217, 0, 0, 0, 0, -3),
    "userfaultfd": lambda: call(323 if platform.machine() == "x86_64" else 282, 1),
    "memfd_secret": lambda: call(447, 0),
    "typing": lambda: call(number("ioctl"), -1, 0x5412),
    "typing with a dirty upper half": lambda: call(number("ioctl"), -1, 0x5412 | 1 << 32),
    "x32": lambda: call(0x40000000 | 39),
    "i386": i386,
    "memfd_create": lambda: os.close(os.memfd_create("x")),
    "a large SysV segment": lambda: call(number("shmget"), 0, 2**30, 0o1600),
    "a huge SysV segment": lambda: call(number("shmget"), 0, 2**32, 0o1600),
    "a small SysV segment": lambda: call(number("shmget"), 0, 4096, 0o1600),
    "messages": lambda: call(number("msgget"), 0, 0o1600),
    "large buffers": buffers,
    "trace me": lambda: call(number("ptrace"), 0),
    "another ioctl": lambda: call(number("ioctl"), -1, 0x5413),
    "interfaces and names": interfaces,
    "pool with semaphores": semaphores,
    "threads and a subprocess": subprocesses,
    "a fork": lambda: clone(0),
    "files of its own": lambda: unshare(0x400),
}


def outcome(name):
    """ "done", the name of the error, "killed", or what else was raised."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            PROBES[name]()
            said = "done"
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error))
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(theirs, said.encode())
        os._exit(0)
    os.close(theirs)
    said = os.read(ours, 4096).decode()
    os.close(ours)
    os.waitpid(child, 0)
    return said or "killed"


def main(data):
    """`data`: name of a probe → the outcomes that were promised."""
    found = {name: said for name, wanted in data.items() if (said := outcome(name)) not in wanted}
    assert not found, found


if __name__ == "__main__":
    main(json.load(sys.stdin))
