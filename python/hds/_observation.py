"""What a training step showed, as it is given and as it is sent to ``hds-agent``.

In: what a user has: lists, arrays, tensors, NaN where nothing is known. Out: plain numbers of JSON. Always holds: an error names the
field and the place in it; a number that is not finite is never sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from . import arguments


@dataclass
class Observation:
    """What one optimizer step showed. K domains, S watched layers."""

    samples: Sequence[int]
    """Sequences drawn per domain, over all ranks; length K."""
    losses: Sequence[float | None]
    """Mean training loss per domain, nats per token; None (or NaN) where none was drawn; length K."""
    mtld: Sequence[float | None] | None = None
    """Mean MTLD of each domain's sequences; length K."""
    sketches: Mapping[str, Any] | None = None
    """What :meth:`hds.torch.DomainGradients.finish` gave."""
    weight_norms: Sequence[float] = field(default_factory=list)
    """Norm of each watched layer's weight before the update; length S."""
    weight_change_norms: Sequence[float] = field(default_factory=list)
    """Norm of each watched layer's last change; length S."""
    weights: Sequence[float] | None = None
    """The weights that governed the step, where they were not the agent's last."""


def request(step: int, observation: Observation, domains: Sequence[str]) -> dict[str, Any]:
    """The request of a step."""
    if not isinstance(observation, Observation):
        raise TypeError(f"observation: {arguments.shown(observation)}, must be an hds.Observation")
    weights = None
    if observation.weights is not None:
        weights = finite("weights", arguments.weights(observation.weights, domains), "must be finite")
    return {
        "type": "step",
        "step": step,
        "samples": wholes("samples", observation.samples),
        "losses": _known("losses", observation.losses),
        "mtld": None if observation.mtld is None else _known("mtld", observation.mtld),
        "sketches": None if observation.sketches is None else _sketches(observation.sketches),
        "weight_norms": finite("weight_norms", observation.weight_norms),
        "weight_change_norms": finite("weight_change_norms", observation.weight_change_norms),
        "weights": weights,
    }


def finite(name: str, values: Any, why: str = "the model's weights are not finite") -> list[float]:
    """Numbers, all of which must be finite."""
    numbers = [_number(name, at, value) for at, value in enumerate(_list(name, values))]
    for at, number in enumerate(numbers):
        if not math.isfinite(number):
            raise ValueError(f"{name}[{at}] is {number}: {why}")
    return numbers


def wholes(name: str, values: Any) -> list[int]:
    """Whole numbers, also as floats or one-element arrays; a fraction is none."""
    numbers = []
    for at, value in enumerate(_list(name, values, "whole numbers")):
        number = _number(name, at, value)
        if not math.isfinite(number) or number < 0 or number != int(number) or number > arguments.U64:
            raise ValueError(f"{name}[{at}] is {value}, must be a whole number, 0 or more")
        numbers.append(int(value))
    return numbers


def options(name: str, given: Any) -> dict[str, Any]:
    """Options of the agent, as they can be sent."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: {arguments.shown(given)}, must be a dict of options, such as {{'policy': 'hds'}}")
    try:
        json.dumps(dict(given), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    return dict(given)


def text(name: str, value: Any) -> str:
    """Text that can be sent."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {arguments.shown(value)}, must be a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {value!r} is not Unicode text") from None
    return value


def _list(name: str, values: Any, what: str = "numbers") -> Iterable[Any]:
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: {arguments.shown(values)}, must be a list of {what}")
    return values.tolist() if hasattr(values, "tolist") and getattr(values, "ndim", 1) == 1 else values


def _number(name: str, at: int, value: Any) -> float:
    try:
        if isinstance(value, (str, bytes)) or arguments.is_bool(value):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}[{at}] is {arguments.shown(value)}, which is no number") from None


def _known(name: str, values: Any) -> list[float | None]:
    """JSON has no NaN: a number that is not finite is one that is not known."""
    numbers = [None if v is None else _number(name, at, v) for at, v in enumerate(_list(name, values, "numbers and None"))]
    return [None if v is None or not math.isfinite(v) else v for v in numbers]


def _sketches(sketches: Any) -> dict[str, list[Any]]:
    """A domain whose numbers are not all finite (a step that overflowed) is one without gradients."""
    what = "must be what DomainGradients.finish() gave: a dict of means and sequence_squares"
    if not isinstance(sketches, Mapping):
        raise TypeError(f"sketches: {arguments.shown(sketches)}, {what}")
    unknown = sorted(map(str, set(sketches) - {"means", "sequence_squares"}))
    if unknown or "means" not in sketches:
        raise ValueError(f"sketches: {unknown[0] + ' is unknown' if unknown else 'means is missing'}; {what}")
    name = "sketches.sequence_squares"
    given = sketches.get("sequence_squares")
    squares = [] if given is None else [_number(name, at, v) for at, v in enumerate(_list(name, given))]
    means = []
    for domain, mean in enumerate(_list("sketches.means", sketches["means"], "lists of numbers")):
        name = f"sketches.means[{domain}]"
        mean = list(_list(name, mean))
        try:
            means.append(mean if all(map(math.isfinite, mean)) else [])
        except TypeError:
            means.append([_number(name, at, value) for at, value in enumerate(mean)])
    sent: dict[str, list[Any]] = {}
    if squares:
        ok = [math.isfinite(square) for square in squares]
        means = [m if ok else [] for m, ok in zip(means, ok)] if len(ok) == len(means) else means
        sent["sequence_squares"] = [s if ok else 0.0 for s, ok in zip(squares, ok)]
    sent["means"] = means
    return sent
