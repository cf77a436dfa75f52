"""The files of one commit of a git repository: local, or cloned from a URL. No `git` command is needed (dulwich)."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dulwich import porcelain
from dulwich.errors import GitProtocolError, HangupException, NotGitRepository
from dulwich.object_store import iter_tree_contents
from dulwich.objects import Blob, Commit, Tag
from dulwich.objectspec import parse_commit
from dulwich.repo import Repo

from services.trainer.warmstart.config import GitSource
from services.trainer.warmstart.files import RawFile, digest
from services.trainer.warmstart.licences import LicenceFiles, is_licence_file
from services.trainer.warmstart.sources.patterns import wanted
from shared.kit.errors import SettingsError


def read(source: GitSource, where: str, cache: Path) -> Iterator[RawFile]:
    """By order of path. Raises `SettingsError` where repository or revision cannot be had.

    `cache`: folder for clones of URLs.
    """
    with _open(source, where, cache) as repo:
        blobs = _blobs(repo, _commit(repo, source, where))
        licences = LicenceFiles(
            {path: partial(_content, repo, sha) for path, sha in blobs if is_licence_file(path.rpartition("/")[2])}
        )
        for path, sha in blobs:
            if wanted(path, source.include, source.exclude):
                yield RawFile(
                    path=path,
                    read=partial(_content, repo, sha),
                    repo=_name(source.repository),
                    licence=partial(licences.nearest, path),
                )


def _open(source: GitSource, where: str, cache: Path) -> Repo:
    try:
        return Repo(_clone(source.repository, cache) if _is_url(source.repository) else source.repository)
    except (NotGitRepository, GitProtocolError, HangupException, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SettingsError(f"{where}.repository: {source.repository} cannot be read ({reason})") from error


def _is_url(repository: str) -> bool:
    return "://" in repository or (":" in repository and not Path(repository).exists())


def _clone(url: str, cache: Path) -> str:
    """Clone, or fetch what is new. Returns the bare repository's folder."""
    target = cache / f"{_name(url)}-{digest(url)}"
    if target.is_dir():
        porcelain.fetch(str(target), url, outstream=io.StringIO(), errstream=porcelain.NoneStream())
        return str(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.tmp")
    porcelain.clone(url, str(draft), bare=True, errstream=porcelain.NoneStream()).close()
    draft.rename(target)
    return str(target)


def _commit(repo: Repo, source: GitSource, where: str) -> Commit:
    """Of a hash, a tag, a branch here, or a branch of the server that was cloned."""
    for name in (source.revision, f"origin/{source.revision}"):
        try:
            found = parse_commit(repo, name.encode())
        except (KeyError, ValueError):
            continue
        return found
    raise SettingsError(f"{where}.revision: {source.repository} has no commit, branch or tag {source.revision!r}")


def _blobs(repo: Repo, commit: Commit | Tag) -> list[tuple[str, bytes]]:
    """(path, id) of all plain files; links and submodules are none."""
    assert isinstance(commit, Commit)
    found = []
    for entry in iter_tree_contents(repo.object_store, commit.tree):
        if entry.mode is not None and stat.S_ISREG(entry.mode) and entry.path is not None and entry.sha is not None:
            found.append((entry.path.decode("utf-8", "replace"), entry.sha))
    return sorted(found)


def _content(repo: Repo, sha: bytes) -> bytes:
    blob = repo[sha]
    assert isinstance(blob, Blob)
    return blob.data


def _name(repository: str) -> str:
    return repository.rstrip("/").removesuffix(".git").rpartition("/")[2].rpartition(":")[2]
