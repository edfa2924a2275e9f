"""Settings of a user's table as an error advises them: words that a shell and `dlmexp run` take as they are."""

import re
import shlex

PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[a-z_][\w.-]*", re.ASCII | re.IGNORECASE)


def setting(name: str, *values: str) -> str:
    """`csv.drop=[age]`; in quotes where a name needs them: `"csv.drop=['age, in years']"`."""
    if all(map(PLAIN.fullmatch, values)):
        return f"csv.{name}=[{','.join(values)}]"
    text = f"csv.{name}=[{','.join(map(in_quotes, values))}]"
    return f'"{text}"' if not set(text) & set('"$`\\!') else shlex.quote(text)


def in_quotes(value: str) -> str:
    """Text in the quotes of an override, in which backslashes count only before a quote."""
    escaped = re.sub(r"(\\*)('|\Z)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{escaped}'"
