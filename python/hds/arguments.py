"""What a caller gave, checked where it is given: each error begins with the argument's name.

In: a name and a value. Out: the value as a plain int, str, list of floats. ``TypeError`` for what is of another
kind, ``ValueError`` for what is out of its range. Always holds: no bool is taken for a number, and no string for a
sequence of its letters.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

#: Largest numbers of the Rust side.
U32, I64, U64 = 2**32 - 1, 2**63 - 1, 2**64 - 1


def shown(value: Any) -> str:
    """A value for a message, not too long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(words: Sequence[str]) -> str:
    """Words for a message."""
    quoted = [f'"{word}"' for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]


def is_bool(value: Any) -> bool:
    """Whether it is True or False, of Python, NumPy or torch: numbers in name only."""
    if isinstance(value, bool):
        return True
    return str(getattr(value, "dtype", "")) in ("bool", "torch.bool") and value.ndim == 0


def whole(name: str, value: Any, least: int = 0, most: int = U64, *, or_none: bool = False) -> int:
    """A whole number from ``least`` to ``most``."""
    other = " or None" if or_none else ""
    try:
        if is_bool(value):
            raise TypeError
        number = operator.index(value)
    except (TypeError, ValueError):
        text = f"{name}: {shown(value)} is no whole number; give an int{other}"
        raise TypeError(text) from None
    if not least <= number <= most:
        wanted = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{name}: {number}, must be {wanted}{other}")
    return number


def maybe_whole(name: str, value: Any, least: int = 0, most: int = U64) -> int | None:
    """As :func:`whole`, or None."""
    return None if value is None else whole(name, value, least, most, or_none=True)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not is_bool(value):
        raise TypeError(f"{name}: {shown(value)}, must be True or False")
    return bool(value)


def word(name: str, value: Any, words: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {shown(value)}, must be {listed(words)}")
    if value not in words:
        raise ValueError(f"{name}: {value!r}, must be {listed(words)}")
    return str(value)


def path(name: str, value: Any) -> str:
    """A path, or the URL of an index."""
    try:
        text = os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{name}: {shown(value)} is no path; give a str or an os.PathLike") from None
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {text!r} is no path; it has characters that no file name can have") from None
    if not text or "\0" in text:
        raise ValueError(f"{name}: {text!r} is no path")
    return text


def maybe_path(name: str, value: Any) -> str | None:
    """As :func:`path`, or None."""
    return None if value is None else path(name, value)


def size(name: str, value: Any) -> str:
    """A number of bytes, as a number or with a unit."""
    if isinstance(value, str):
        return value
    try:
        return str(whole(name, value))
    except TypeError:
        text = f'{name}: {shown(value)} is no size; give a whole number of bytes, or text such as "100GB"'
        raise TypeError(text) from None


def names(name: str, value: Any, known: Sequence[str]) -> list[str]:
    """Some of the known names, once at least."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name}: {value!r} is one name; give a list: {name}=[{value!r}]")
    if not isinstance(value, Iterable):
        raise TypeError(f"{name}: {shown(value)}, must be a list of names: {listed(known)}")
    given = list(value)
    if not given:
        raise ValueError(f"{name}: there are none; name at least one of {listed(known)}")
    for one in given:
        if not isinstance(one, str):
            raise TypeError(f"{name}: {shown(one)} is no name; there are {listed(known)}")
        if one not in known:
            raise ValueError(f"{name}: no {one!r}; there are {listed(known)}")
    return list(dict.fromkeys(given))


def weights(value: Any, domains: Sequence[str]) -> list[float]:
    """Weights as one number a domain, in the order of ``domains``; their range and sum are Rust's to check."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in domains]
        missing = [name for name in domains if name not in value]
        if unknown or missing:
            raise ValueError(
                f"weights: no domain is named {unknown}; there are {list(domains)}"
                if unknown
                else f"weights: nothing for {missing}; give 0 to what is not to be drawn"
            )
        value = [value[name] for name in domains]
    if hasattr(value, "tolist"):
        try:
            value = value.tolist()
        except (RuntimeError, NotImplementedError) as error:  # a tensor that is sparse, or on no device
            raise TypeError(f"weights: {type(value).__name__} has no list of numbers: {error}") from None
    if isinstance(value, (str, bytes, Set)) or not isinstance(value, Iterable):
        text = f"weights: {shown(value)}, must be a dict of a weight for each domain, or a sequence of as many"
        raise TypeError(text)
    # Set at every step: the usual kind costs next to nothing.
    return [w if type(w) is float else _number(w, number, domains) for number, w in enumerate(value)]


def _number(value: Any, number: int, domains: Sequence[str]) -> float:
    try:
        if is_bool(value) or isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        domain = f"domain {domains[number]!r}" if number < len(domains) else f"place {number}"
        raise TypeError(f"weights: {domain} has {shown(value)}, which is no number") from None
