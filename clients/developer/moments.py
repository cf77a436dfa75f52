"""When a developer who types a file pauses and a completion is asked for.

In: the source of one finished module and a seeded ``random.Random``. Out: the functions a person types, the columns
at which they pause, and for every pause the text left and right of the cursor, with the rest of the line they had
in mind. The base model's training data, its evaluation and the simulated developers all use these moments.

The rates, which are chosen and not measured on people:

- a line of a function gets a pause with probability ``PAUSE_RATE``, and a second one with ``SECOND_PAUSE_RATE``;
- a pause is at the line's start (after the indentation) in ``PLACE_WEIGHTS["start"]`` of the cases, after a space,
  bracket, dot or quote in ``"gap"``, and one to four characters into a word in ``"word"``;
- of several such places on a line the n-th is 1/n² as likely as the first: people pause where a thought starts;
- at least ``MIN_REST`` characters of the line are still to come;
- docstrings, decorators and blank lines get none; on a ``def`` line people pause after the opening bracket only,
  for nobody can guess a name;
- a function is a later edit, with the rest of its body already there, in ``EDIT_RATE`` of the cases.
"""

import ast
import random
from dataclasses import dataclass
from typing import Literal

PAUSE_RATE = 0.5
SECOND_PAUSE_RATE = 0.15
PLACE_WEIGHTS = {"start": 0.15, "gap": 0.65, "word": 0.2}
EDIT_RATE = 0.2
MIN_REST = 4

Kind = Literal["typing", "edit"]
Place = Literal["start", "gap", "word"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One pause. ``prefix + rest_of_line`` is the source up to the end of the line; ``suffix`` starts with a newline.

    ``line`` (0-based) and ``column`` (in characters) give the cursor in the finished source.
    """

    prefix: str
    suffix: str
    rest_of_line: str
    line: int
    column: int
    function: str
    kind: Kind
    place: Place


@dataclass(frozen=True, slots=True)
class FunctionSpan:
    """A function of a module: lines ``first`` up to, not including, ``end`` (0-based; decorators belong to it)."""

    name: str
    first: int
    end: int
    silent: frozenset[int]
    """Lines nobody pauses on: decorators and docstrings."""


@dataclass(frozen=True, slots=True)
class LineWalk:
    """One line to type: its number, its text without the newline, and the ascending columns of the pauses on it."""

    number: int
    text: str
    pauses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FunctionWalk:
    """One function to type, line by line. ``kind`` says whether its later lines are there already."""

    function: FunctionSpan
    kind: Kind
    lines: tuple[LineWalk, ...]


def functions(source: str) -> list[FunctionSpan]:
    """The functions and methods of a module in file order; nested ones belong to the outer one."""
    found: list[FunctionSpan] = []
    _collect(ast.parse(source).body, found)
    return found


def walk_function(source: str, function: FunctionSpan, rng: random.Random) -> FunctionWalk:
    """How one person types one function: draws its kind and the pauses on each line."""
    kind: Kind = "edit" if rng.random() < EDIT_RATE else "typing"
    texts = source.split("\n")
    lines = tuple(
        LineWalk(n, texts[n], () if n in function.silent else _draw_pauses(texts[n], rng))
        for n in range(function.first, function.end)
    )
    return FunctionWalk(function, kind, lines)


def walk_module(source: str, rng: random.Random) -> list[FunctionWalk]:
    """A walk through every function of the module, in file order."""
    return [walk_function(source, function, rng) for function in functions(source)]


def moment_at(source: str, walk: FunctionWalk, line: int, column: int) -> Moment:
    """What the editor holds when the cursor stands at ``line`` and ``column`` of the finished source.

    Typing: nothing of the function exists after the cursor, so the suffix is the file from the function's end on.
    Edit: the suffix is the next line onward. Raises ``ValueError`` where nothing is left of the line.
    """
    lines = source.split("\n")
    rest = lines[line][column:]
    if not rest:
        raise ValueError(f"nothing left of line {line} at column {column}")
    below = walk.function.end if walk.kind == "typing" else line + 1
    prefix = "\n".join([*lines[:line], lines[line][:column]])
    suffix = "\n" + "\n".join(lines[below:])
    return Moment(prefix, suffix, rest, line, column, walk.function.name, walk.kind, _place(lines[line], column))


def ask_moments(source: str, rng: random.Random, limit: int | None = None) -> list[Moment]:
    """Every moment of one walk through the module, in typing order; ``limit`` keeps a random few of them."""
    moments = [
        moment_at(source, walk, line.number, column)
        for walk in walk_module(source, rng)
        for line in walk.lines
        for column in line.pauses
    ]
    if limit is None or len(moments) <= limit:
        return moments
    return [moments[i] for i in sorted(rng.sample(range(len(moments)), limit))]


def _collect(body: list[ast.stmt], found: list[FunctionSpan]) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef):
            _collect(node.body, found)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(_span(node))


def _span(node: ast.FunctionDef | ast.AsyncFunctionDef) -> FunctionSpan:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    end = node.end_lineno or node.lineno
    silent = set(range(first, node.lineno - 1))
    if ast.get_docstring(node) is not None:
        doc = node.body[0]
        silent |= set(range(doc.lineno - 1, doc.end_lineno or doc.lineno))
    return FunctionSpan(node.name, first, end, frozenset(silent))


def _draw_pauses(text: str, rng: random.Random) -> tuple[int, ...]:
    if rng.random() >= PAUSE_RATE:
        return ()
    count = 2 if rng.random() < SECOND_PAUSE_RATE else 1
    drawn = {_draw_column(text, rng) for _ in range(count)}
    return tuple(sorted(column for column in drawn if column is not None))


def _draw_column(text: str, rng: random.Random) -> int | None:
    columns: dict[str, list[int]] = {"start": [], "gap": [], "word": []}
    for column in _candidates(text):
        columns[_place(text, column)].append(column)
    places = [place for place in PLACE_WEIGHTS if columns[place]]
    if not places:
        return None
    (place,) = rng.choices(places, [PLACE_WEIGHTS[p] for p in places])
    weights = [1 / n**2 for n in range(1, len(columns[place]) + 1)]
    return rng.choices(columns[place], weights)[0]


def _candidates(text: str) -> list[int]:
    if text.lstrip().startswith(("def ", "async def ")):
        return [text.find("(") + 1]
    start = len(text) - len(text.lstrip())
    return [c for c in range(start, len(text) - MIN_REST + 1) if _is_pause(text, c)]


def _is_pause(text: str, column: int) -> bool:
    """Whether a person might stop here: at the start, after a gap, or one to four characters into a word."""
    if not text[:column].strip() or text[column - 1] in ' (.["{':
        return text[column] not in " )]}:,"
    word = len(text[:column]) - len(text[:column].rstrip(_WORD))
    return 1 <= word <= 4 and text[column] in _WORD


def _place(text: str, column: int) -> Place:
    if not text[:column].strip():
        return "start"
    return "word" if text[column - 1] in _WORD else "gap"


_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
