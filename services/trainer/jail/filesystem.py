"""What the command sees of the disk: programs read-only, a copy of the project, and with namespaces nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from services.trainer.jail import kernel
from services.trainer.jail.task import HOME, Task

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def enter_project(task: Task) -> None:
    """Make the project's copy the current folder; with namespaces, in a file system of its own."""
    if task["namespaces"]:
        _enter_own_root(task)
        os.chdir(HOME)
        return
    copy = f"{task['folder']}/project"
    _copy_project(task, copy)
    os.chdir(copy)


def _enter_own_root(task: Task) -> None:
    root = task["folder"]
    kernel.unshare(kernel.NEW_NS)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    _ram_disk(root, "size=1m,mode=755")
    Path(f"{root}/tmp").mkdir()
    _ram_disk(f"{root}/tmp", f"size={task['disk_bytes']},mode=1777")
    for path in outermost([*_SYSTEM, *_DEVICES, *task["readable"]]):
        _show(path, root)
    Path(f"{root}/dev/shm").symlink_to("/tmp")
    _copy_project(task, root + HOME)
    Path(f"{root}/proc").mkdir()
    with suppress(OSError):  # a container that hides parts of its own /proc is given no new one
        kernel.mount("proc", f"{root}/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV)
    kernel.enter_root(root)


def _ram_disk(target: str, options: str) -> None:
    kernel.mount("sandbox", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def outermost(paths: Iterable[str]) -> list[str]:
    """Those that are there and not inside another one."""
    there = sorted({path.rstrip("/") for path in paths if os.path.lexists(path)}, key=len)
    return [path for at, path in enumerate(there) if not any(path.startswith(f"{other}/") for other in there[:at])]


def _show(source: str, root: str) -> None:
    """A folder, file or symbolic link, read-only at the same path below `root`."""
    target = Path(root + source)
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_symlink():
        target.symlink_to(Path(source).readlink())
        return
    if Path(source).is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    kernel.mount(source, str(target), "", kernel.MS_BIND | kernel.MS_REC)
    kernel.protect(str(target))


def _copy_project(task: Task, to: str) -> None:
    if task["project"]:
        shutil.copytree(task["project"], to, symlinks=True, ignore=shutil.ignore_patterns(*task["left_out"]))
    else:
        Path(to).mkdir()
    for name, text in task["files"].items():
        _put(Path(to), name, text)
    if task["user"] is not None:
        _give(to, task["user"])


def _put(project: Path, name: str, text: str) -> None:
    file = project / name
    if not file.resolve().is_relative_to(project.resolve()):
        raise OSError(0, f"{name} is not in the project")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(errors="replace"))


def _give(folder: str, user: int) -> None:
    for inside, folders, names in os.walk(folder):
        for name in ("", *folders, *names):
            os.chown(f"{inside}/{name}".rstrip("/"), user, user, follow_symlinks=False)
