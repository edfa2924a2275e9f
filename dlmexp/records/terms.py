"""`field=value` terms that choose among records, as `--by` of figures and `--where` of models take them."""

from collections.abc import Collection, Iterable

from dlmexp.errors import UserError, nearest


def parse_terms(
    option: str, terms: Iterable[str], valid: Collection[str], settings: Collection[str] = ()
) -> dict[str, list[str]]:
    """`field=value[,value...]` terms as a dictionary; UserError for a field that is not `valid`. `settings` are fields
    that only `--where` of figures takes."""
    wanted: dict[str, list[str]] = {}
    for term in terms:
        name, equals, values = term.partition("=")
        if not equals or not values:
            raise UserError(f"{option} {term}: write field=value, for instance dataset=flights")
        if name in settings:
            raise UserError(f"{option} {term}: {name} is a setting of training; say --where {name}={values}")
        if name not in valid:
            raise UserError(f"{option} {term}: a cell has no field '{name}': {nearest(name, list(valid))}")
        wanted.setdefault(name, []).extend(values.split(","))
    return wanted
