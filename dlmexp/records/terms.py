"""`field=value` terms that choose among records, as `--by` of figures and `--where` of models take them."""

from collections.abc import Iterable, Sequence

from dlmexp.errors import UserError, nearest
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS


def parse_terms(option: str, terms: Iterable[str], more: Sequence[str] = ()) -> dict[str, list[str]]:
    """`field=value[,value...]` terms as a dictionary; UserError for a field that cells (or `more`) do not have."""
    valid = [*more, *(name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options")]
    wanted: dict[str, list[str]] = {}
    for term in terms:
        name, equals, values = term.partition("=")
        if not equals or not values:
            raise UserError(f"{option} {term}: write field=value, for instance dataset=flights")
        if name not in valid:
            raise UserError(f"{option} {term}: a cell has no field '{name}': {nearest(name, valid)}")
        wanted.setdefault(name, []).extend(values.split(","))
    return wanted
