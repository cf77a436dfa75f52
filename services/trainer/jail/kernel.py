"""System calls that Python 3.11 has no name for. Each raises `OSError` that says what could not be done."""

from __future__ import annotations

import ctypes
import os
from typing import Final

NEW_NS: Final = 0x00020000
NEW_UTS: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_USER: Final = 0x10000000
NEW_PID: Final = 0x20000000
NEW_NET: Final = 0x40000000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38

_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2
_MNT_DETACH = 2
_C = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    unsigned = [ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)]
    _checked(_C.prctl(option, *unsigned), f"prctl {option}")


def unshare(flags: int) -> None:
    """unshare(2): namespaces of one's own."""
    _checked(_C.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """mount(2)."""
    named = [text.encode() or None for text in (source, target, kind)]
    _checked(_C.mount(*named, ctypes.c_ulong(flags), data.encode() or None), f"mount {target}")


def protect(target: str) -> None:
    """Make a mount and all that is mounted below it read-only: mount_setattr(2), Linux 5.12."""
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call = ctypes.c_long(_MOUNT_SETATTR)
    _checked(_C.syscall(call, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, size), f"protect {target}")


def enter_root(folder: str) -> None:
    """Make a mounted folder the root and forget the old one: pivot_root(2), the way its manual page shows."""
    os.chdir(folder)
    _checked(_C.pivot_root(b".", b"."), "pivot_root")
    _checked(_C.umount2(b".", _MNT_DETACH), "umount the old root")
