"""The methods and functions a module is put together from.

Each says by its name (a transition by its docstring) what its body must be, given the fields declared above it, so
that a good model can know everything but the idioms.
"""

from collections.abc import Callable
from dataclasses import dataclass

from base_model.house import idioms
from base_model.house.draft import Draft, plain


@dataclass(frozen=True, slots=True)
class Subject:
    """What a module is about: ``entity`` in lower case, ``name`` its class, two text fields, a number, statuses."""

    entity: str
    name: str
    texts: tuple[str, str]
    number: str
    statuses: tuple[str, str, str]


Part = Callable[[Draft, Subject], list[str]]


def _get(d: Draft, s: Subject) -> list[str]:
    key, one = idioms.key(d, s.entity), idioms.one(d, s.entity)
    k, o = plain(key), plain(one)
    return [
        f"def get(self, {key}: str) -> {s.name}:",
        f"    {one} = {idioms.fetch(d, k)}",
        f"    if {idioms.is_none(d, o)}:",
        f"        raise {idioms.missing(d, s.entity, k)}",
        f"    return {o}",
    ]


def _add(d: Draft, s: Subject) -> list[str]:
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def add(self, {it}: {s.name}) -> None:",
        f"    if {idioms.has(d, f'{i}.id')}:",
        f"        raise {idioms.clash(d, s.entity, i)}",
        f"    {idioms.store(d, i)}",
        f"    {idioms.event(d, s.entity, 'added', i)}",
    ]


def _remove(d: Draft, s: Subject) -> list[str]:
    key, one = idioms.key(d, s.entity), idioms.one(d, s.entity)
    k, o = plain(key), plain(one)
    return [
        f"def remove(self, {key}: str) -> {idioms.optional(d, s.name)}:",
        f"    {one} = {idioms.fetch(d, k)}",
        f"    if {idioms.is_none(d, o)}:",
        "        return None",
        f"    {idioms.remove(d, k)}",
        f"    {idioms.event(d, s.entity, 'removed', o)}",
        f"    return {o}",
    ]


def _by_text(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice(s.texts)
    many = idioms.many(d, s.entity)
    return [
        f"def by_{field}(self, {field}: str) -> {idioms.listing(d, s.name)}:",
        f"    {many} = {idioms.filtered(d, field, field)}",
        f"    return {idioms.order(d, plain(many), s.number)}",
    ]


def _first_by_text(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice(s.texts)
    many = idioms.many(d, s.entity)
    return [
        f"def first_by_{field}(self, {field}: str) -> {idioms.optional(d, s.name)}:",
        f"    {many} = {idioms.filtered(d, field, field)}",
        f"    return {idioms.first(d, plain(many))}",
    ]


def _with_status(d: Draft, s: Subject) -> list[str]:
    status = d.names.choice(s.statuses)
    many = idioms.many(d, s.entity)
    return [
        f"def all_{status}(self) -> {idioms.listing(d, s.name)}:",
        f"    {many} = {idioms.filtered(d, 'status', _quoted(status))}",
        f"    return {idioms.order(d, plain(many), 'changed')}",
    ]


def _total(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice(s.texts)
    many = idioms.many(d, s.entity)
    return [
        f"def {s.number}_by_{field}(self, {field}: str) -> int:",
        f"    {many} = {idioms.filtered(d, field, field)}",
        f"    return {idioms.total(d, plain(many), s.number)}",
    ]


def _check_number(d: Draft, s: Subject) -> list[str]:
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def check_{s.number}({it}: {s.name}) -> None:",
        f"    if {idioms.too_low(d, f'{i}.{s.number}')}:",
        f"        raise {idioms.invalid(d, s.entity, i, s.number)}",
    ]


def _check_text(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice(s.texts)
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def check_{field}({it}: {s.name}) -> None:",
        f"    if {idioms.blank(d, f'{i}.{field}')}:",
        f"        raise {idioms.invalid(d, s.entity, i, field)}",
    ]


def _transition(d: Draft, s: Subject) -> list[str]:
    before, after = d.names.sample(s.statuses, 2)
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def make_{after}({it}: {s.name}) -> {s.name}:",
        f'    """From {before} to {after}."""',
        f"    if {idioms.other_status(d, i, before)}:",
        f"        raise {idioms.wrong_state(d, s.entity, i)}",
        f"    {idioms.event(d, s.entity, after, i)}",
        f"    return {idioms.change(d, i, after)}",
    ]


def _reopen(d: Draft, s: Subject) -> list[str]:
    status = d.names.choice(s.statuses)
    key, repo, one = idioms.key(d, s.entity), idioms.repo(d, s.entity), idioms.one(d, s.entity)
    r, o = plain(repo), plain(one)
    return [
        f"def set_{status}({repo}: {s.name}Repository, {key}: str) -> None:",
        f"    {one} = {r}.get({plain(key)})",
        f"    {o} = {idioms.change(d, o, status)}",
        f"    {idioms.save(d, r, o)}",
        f"    {idioms.event(d, s.entity, status, o)}",
    ]


def _label(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice(s.texts)
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def {field}_label({it}: {s.name}) -> str:",
        f"    if {idioms.blank(d, f'{i}.{field}')}:",
        f"        return {i}.id",
        f"    return {idioms.label(d, i, field)}",
    ]


def _dump(d: Draft, s: Subject) -> list[str]:
    field = d.names.choice([*s.texts, s.number])
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def dump_{field}({it}: {s.name}) -> dict[str, Any]:",
        f"    return {idioms.dump(d, i, field)}",
    ]


def _is_status(d: Draft, s: Subject) -> list[str]:
    status = d.names.choice(s.statuses)
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def is_{status}({it}: {s.name}) -> bool:",
        f"    return {idioms.has_status(d, i, status)}",
    ]


def _is_stale(d: Draft, s: Subject) -> list[str]:
    it = idioms.record(d, s.entity)
    i = plain(it)
    return [
        f"def is_stale({it}: {s.name}) -> bool:",
        f"    return {idioms.older(d, i)}",
    ]


def _quoted(text: str) -> str:
    return f'"{text}"'


METHODS: list[Part] = [_get, _add, _remove, _by_text, _first_by_text, _with_status, _total]
FUNCTIONS: list[Part] = [
    _check_number,
    _check_text,
    _transition,
    _reopen,
    _label,
    _dump,
    _is_status,
    _is_stale,
]
