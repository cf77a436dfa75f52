"""Equal and nearly equal files. In: files in order. Out: those that are the first of their kind, and the counts. Pure.

Near: MinHash (Broder 1997) over word 5-grams, looked up by locality-sensitive hashing, as Lee et al. 2022,
Deduplicating Training Data Makes Language Models Better (arXiv 2107.06499), do; computed by datasketch. The later one
of two is dropped, so that what is held out is nowhere nearly repeated in what is trained on.
"""

from __future__ import annotations

import re
from typing import Final

from datasketch import MinHash, MinHashLSH

from services.trainer.warmstart.files import SourceFile, digest

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_SHINGLE: Final = 5
_PERMUTATIONS: Final = 128


class Duplicates:
    """What has been seen so far."""

    def __init__(self, threshold: float | None) -> None:
        """`threshold`: Jaccard similarity from which on two files count as one; None: equal ones only."""
        self._threshold = threshold
        self._seen: set[str] = set()
        self._hashes: dict[str, MinHash] = {}
        self._index = MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS) if threshold is not None else None

    def reason(self, file: SourceFile) -> str | None:
        """`duplicate`, `near_duplicate`, or None for a file that is new; that is remembered."""
        key = digest(file.text)
        if key in self._seen:
            return "duplicate"
        self._seen.add(key)
        if self._index is None:
            return None
        return self._near(key, signature(file.text), self._index)

    def _near(self, key: str, own: MinHash, index: MinHashLSH) -> str | None:
        if any(own.jaccard(self._hashes[other]) >= (self._threshold or 0) for other in index.query(own)):
            return "near_duplicate"
        index.insert(key, own)
        self._hashes[key] = own
        return None


def signature(text: str) -> MinHash:
    """Of the set of a text's word 5-grams; of all its words where it has fewer."""
    words = _WORD.findall(text)
    starts = range(max(1, len(words) - _SHINGLE + 1))
    shingles = {" ".join(words[start : start + _SHINGLE]).encode("utf-8", "surrogatepass") for start in starts}
    made = MinHash(num_perm=_PERMUTATIONS)
    made.update_batch(shingles)
    return made
