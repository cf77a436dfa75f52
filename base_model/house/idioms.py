"""The idiom points: every function returns one of the ways to write the same thing, as the draft picks it.

The ways of a point differ early, so that a person who stands in mid-line sees at once that this is not how their
team writes it. Names: ``e`` is the entity's local name, ``one`` a record's, ``key`` an identifier's, ``each`` a loop's.
"""

from base_model.house.draft import Draft, plain


def key(d: Draft, e: str) -> str:
    return d.pick("key", f"{e}_id", "key", "ident")


def one(d: Draft, e: str) -> str:
    return d.pick("one", e, "row", "hit")


def record(d: Draft, e: str) -> str:
    return d.pick("record", e, "record", "it")


def many(d: Draft, e: str) -> str:
    return d.pick("many", "rows", "found", "result", f"{e}s")


def fetch(d: Draft, key: str) -> str:
    return d.pick("fetch", f"self._rows.get({key})", f"lookup(self._rows, {key})", f"self.find({key})")


def is_none(d: Draft, one: str) -> str:
    return d.pick("none", f"{one} is None", f"not {one}", f"None is {one}")


def missing(d: Draft, e: str, key: str) -> str:
    return d.pick(
        "missing",
        f"NotFound({key})",
        f'KeyError(f"no {e} {{{key}}}")',
        f'LookupError("{e}", {key})',
        f'Missing(f"{e} {{{key}}} not found")',
    )


def has(d: Draft, ident: str) -> str:
    return d.pick("has", f"{ident} in self._rows", f"self.has({ident})", f"self._rows.get({ident}) is not None")


def clash(d: Draft, e: str, it: str) -> str:
    return d.pick(
        "clash",
        f"Conflict({it}.id)",
        f'ValueError(f"duplicate {e} {{{it}.id}}")',
        f'Exists("{e}", {it}.id)',
        f'KeyError(f"{e} {{{it}.id}} exists")',
    )


def store(d: Draft, e: str) -> str:
    return d.pick(
        "store",
        f"self._rows[{e}.id] = {e}",
        f"self._rows.update({{{e}.id: {e}}})",
        f"self._put({e}.id, {e})",
    )


def remove(d: Draft, key: str) -> str:
    return d.pick("remove", f"del self._rows[{key}]", f"self._rows.pop({key})", f"self._drop({key})")


def event(d: Draft, e: str, verb: str, one: str) -> str:
    fact = d.pick("fact", f"id={one}.id", f"{e}={one}.id", f"key={one}.id")
    return d.pick(
        "event",
        f'log.info("{e} {verb}", {fact})',
        f'log.debug("{e}.{verb}", {fact})',
        f'audit("{verb} {e}", {fact})',
        f"emit({verb.upper()}, {fact})",
    )


def scan(d: Draft) -> str:
    return d.pick("scan", "self._rows.values()", "self.all()", "self")


def filtered(d: Draft, test_field: str, value: str) -> str:
    """Records whose field equals ``value`` (source text)."""
    each, rows = d.pick("each", "row", "r", "item"), scan(d)
    name = plain(each)
    return d.pick(
        "filter",
        f"[{each} for {name} in {rows} if {name}.{test_field} == {value}]",
        f"list(filter(lambda {each}: {name}.{test_field} == {value}, {rows}))",
        f"where({rows}, {test_field}={value})",
    )


def order(d: Draft, rows: str, field: str) -> str:
    each = d.pick("each", "row", "r", "item")
    way = d.pick("order", f'attrgetter("{field}")', f"lambda {each}: {plain(each)}.{field}", f'by("{field}")')
    return d.pick("sorting", f"sorted({rows}, key={way})", f"ordered({rows}, {way})")


def first(d: Draft, rows: str) -> str:
    return d.pick("first", f"{rows}[0] if {rows} else None", f"next(iter({rows}), None)", f"first({rows})")


def total(d: Draft, rows: str, field: str) -> str:
    each = d.pick("each", "row", "r", "item")
    return d.pick(
        "sum",
        f"sum({each}.{field} for {plain(each)} in {rows})",
        f'sum(map(attrgetter("{field}"), {rows}))',
        f'total({rows}, "{field}")',
    )


def optional(d: Draft, name: str) -> str:
    return d.pick("optional", f"{name} | None", f"Optional[{name}]", f"Maybe[{name}]")


def listing(d: Draft, name: str) -> str:
    return d.pick("listing", f"list[{name}]", f"Sequence[{name}]", f"Rows[{name}]")


def too_low(d: Draft, value: str) -> str:
    return d.pick("low", f"{value} < 1", f"{value} <= 0", f"not {value} > 0", f"0 >= {value}")


def blank(d: Draft, value: str) -> str:
    return d.pick("blank", f"not {value}", f'{value} == ""', f"len({value}) == 0", f"is_blank({value})")


def invalid(d: Draft, e: str, it: str, field: str) -> str:
    return d.pick(
        "invalid",
        f'ValueError("bad {field}")',
        f'Invalid("{e}", "{field}")',
        f'Invalid(f"{field}: {{{it}.{field}}}")',
        f"Rejected({it}.{field})",
    )


def other_status(d: Draft, one: str, status: str) -> str:
    return d.pick(
        "status",
        f'{one}.status != "{status}"',
        f'not {one}.status == "{status}"',
        f'"{status}" != {one}.status',
        f'differs({one}, "{status}")',
    )


def wrong_state(d: Draft, e: str, one: str) -> str:
    return d.pick(
        "state",
        f"Conflict({one}.status)",
        f'ValueError(f"{e} is {{{one}.status}}")',
        f'WrongState("{e}", {one}.status)',
        f'Invalid(f"not from {{{one}.status}}")',
    )


def now(d: Draft) -> str:
    return d.pick("now", "now()", "datetime.now(UTC)", "clock.now()", "utcnow()")


def change(d: Draft, one: str, status: str) -> str:
    facts = f'status="{status}", changed={now(d)}'
    return d.pick("change", f"replace({one}, {facts})", f"evolve({one}, {facts})", f"{one}.with_({facts})")


def label(d: Draft, e: str, field: str) -> str:
    return d.pick(
        "label",
        f'f"{{{e}.id}}: {{{e}.{field}}}"',
        f'"{{}}: {{}}".format({e}.id, {e}.{field})',
        f'": ".join(({e}.id, {e}.{field}))',
        f"labelled({e}.id, {e}.{field})",
    )


def dump(d: Draft, e: str, field: str) -> str:
    return d.pick(
        "dump",
        f'{{"id": {e}.id, "{field}": {e}.{field}}}',
        f"dict(id={e}.id, {field}={e}.{field})",
        f'pack({e}, "id", "{field}")',
    )


def has_status(d: Draft, e: str, status: str) -> str:
    return d.pick("member", f'{e}.status == "{status}"', f'{e}.status in ("{status}",)', f'is_in({e}, "{status}")')


def older(d: Draft, e: str) -> str:
    moment = now(d)
    return d.pick(
        "age",
        f"{moment} - {e}.changed > STALE",
        f"{e}.changed < {moment} - STALE",
        f"age({e}.changed, {moment}) > STALE",
    )


def repo(d: Draft, e: str) -> str:
    return d.pick("repo", "repo", f"{e}s", "store")


def save(d: Draft, repo: str, one: str) -> str:
    return d.pick("save", f"{repo}.put({one})", f"{repo}.save({one})", f"{repo}[{one}.id] = {one}")
