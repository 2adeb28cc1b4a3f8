"""Follows layers through forward and backward passes, for :mod:`hds.torch`.

In: hooks of modules, in the order in which PyTorch calls them. Out: for each layer and pass, what was given to the layer
and the gradient of what came out. Always holds: a gradient goes to the pass whose forward run it belongs to; what
cannot be told apart is an error; copies of a model (``copy.deepcopy``, pickle) take no working hook along.

The gradient is taken by a hook of the output itself, so that the output may be changed in place. In a compiled graph that is
not possible; there a custom operation stands behind the layer, which the compiler does not look into.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

#: Called with the layer's place, the number of the pass, its input, and the gradient of its output.
Take = Callable[[int, "Pass", Tensor, Tensor], None]

_numbers = itertools.count()
_watches: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()

#: torch before 2.1 has no word for it.
is_compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

ORDER = "call begin() once for each forward and backward pass, before both"


def in_backward() -> bool:
    """Whether this is called by a backward pass, as the recomputation of activation checkpointing is."""
    return bool(torch._C._current_graph_task_id() != -1)


@contextlib.contextmanager
def plainly(device: torch.device) -> Iterator[None]:
    """Without gradients and without autocast."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


class Pass:
    """The sequences of one begin(), and what came of them."""

    def __init__(self, number: int, ids: Tensor, factor: float, layers: int) -> None:
        self.number, self.ids, self.factor = number, ids, factor
        self.rows: list[Tensor | None] = [None] * layers
        """Sketches [B, ...] of each layer's gradients, as the loss holds them."""
        self.ran = False
        self.received = False
        self.root: int | None = None
        self.roots = 0
        self.compiled: set[int] = set()
        self.unfollowed: set[int] = set()


class Watch:
    """The passes of a step and which of them is the current one."""

    def __init__(self, names: list[str], take: Take) -> None:
        """``names`` are those of the hooked modules, for messages."""
        self.names, self._take = names, take
        self.key = next(_numbers)
        self.current: Pass | None = None
        self.roots = 0
        self.removed = False
        self._open: dict[int, Pass] = {}
        _watches[self.key] = self

    def begin(self, ids: Tensor, factor: float, layers: int) -> list[Pass]:
        """A new pass; gives those that have ended by it."""
        ended = [one for one in self._open.values() if one.received]
        for one in ended:
            del self._open[one.number]
        self.current = Pass(next(_numbers), ids, factor, layers)
        self.current.roots = self.roots
        self._open[self.current.number] = self.current
        return ended

    def finish(self) -> list[Pass]:
        """No pass is open from here on; gives those that had a backward pass and were not given before."""
        ended = [one for one in self._open.values() if one.received]
        self._open.clear()
        self.current = None
        return ended

    def entered(self, at: int, followed: bool, compiled: bool = False) -> int:
        """A hooked module has run; gives the number of the pass it belongs to, or -1."""
        now = self.current
        if now is None or self.removed:
            return -1
        if in_backward():
            if not now.ran:
                raise RuntimeError(f"layer {self.names[at]} is computed again for an earlier begin(): {ORDER}")
            return now.number
        now.ran = True
        if not followed:
            now.unfollowed.add(at)
            return now.number
        if now.received:
            raise RuntimeError(
                f"layer {self.names[at]} has run again after its backward pass: {ORDER} (run others under "
                "torch.no_grad(), or after finish())"
            )
        if now.root not in (None, self.roots):
            raise RuntimeError(
                f"layer {self.names[at]} has run in two forward passes of the model: {ORDER} (run others under "
                "torch.no_grad())"
            )
        now.root = self.roots
        if compiled and at in now.compiled:
            raise RuntimeError(
                f"layer {self.names[at]} ran twice in one pass of a compiled model, where one forward pass that "
                f"uses it twice looks like two: {ORDER}; do not watch a layer that is used twice, or do not compile the model"
            )
        if compiled:
            now.compiled.add(at)
        return now.number

    def received(self, at: int, number: int, given: Tensor, gradient: Tensor, recomputed: bool = False) -> None:
        """A gradient has come; ``recomputed`` where the layer ran within the backward pass itself (reentrant checkpointing)."""
        now = self.current
        if self.removed or (number == -1 and (now is None or now.ran)):
            return  # of a pass that is none of ours
        name = self.names[at]
        if number == -1:
            raise RuntimeError(f"layer {name} has a backward pass whose forward pass came before begin(): {ORDER}")
        found = self._open.get(number)
        if found is None:
            raise RuntimeError(
                f"layer {name} has a backward pass after its sequences' step or pass has ended: {ORDER}, and "
                "finish() after the last backward pass"
            )
        if now is not None and not now.ran:
            raise RuntimeError(f"begin() was called between a forward and a backward pass of layer {name}: {ORDER}")
        if recomputed:
            others = [one for one in self._open.values() if one is not found and not one.received and at in one.unfollowed]
            if others or self.roots - found.roots > 1:
                raise RuntimeError(
                    f"layer {name} is computed again in a backward pass, for one of several forward passes: {ORDER} "
                    "(checkpointing with use_reentrant=False can be told apart)"
                )
        if given.dim() < 1 or given.shape[0] != found.ids.numel() or gradient.shape[:1] != given.shape[:1]:
            raise ValueError(
                f"layer {name}'s input is {list(given.shape)} and its output {list(gradient.shape)}; expected "
                f"{found.ids.numel()} sequences first, as given to begin()"
            )
        self._take(at, found, given.detach(), gradient.detach())
        found.received = True


def _no_hook(*_: Any, **__: Any) -> None:
    """What copies of a model have in place of its hooks."""


def _nothing() -> Any:
    return _no_hook


class RootHook:
    """Counts the forward passes of the whole model."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        if not is_compiling() and torch.is_grad_enabled() and not in_backward():
            self._watch.roots += 1

    def __reduce__(self) -> Any:
        return _nothing, ()


class LayerHook:
    """Follows a module's output to its gradient."""

    def __init__(self, watch: Watch, at: int) -> None:
        self._watch, self._key, self._at = watch, watch.key, at

    def __call__(self, module: nn.Module, inputs: Any, named: dict[str, Any], output: Any) -> Any:
        if is_compiling():
            return self._compiled(module, inputs, named, output)
        given, gives = _first((*inputs, *named.values())), _first(output)
        followed = _followed(module, gives)
        watch, at = self._watch, self._at
        number = watch.entered(at, followed)
        if not followed:
            return None
        given = given.detach()
        dtype = _autocast(given.device.type)
        if dtype is not None and given.is_floating_point():
            # What the layer computes with; its input itself may be changed in place afterwards.
            given = given.to(dtype)
        version, shape, recomputed = given._version, gives.shape, in_backward()

        def hook(gradient: Tensor) -> None:
            if given._version != version:
                raise RuntimeError(f"layer {watch.names[at]}'s input was changed in place after the layer had run")
            watch.received(at, number, given, gradient.reshape(shape), recomputed)

        _written(gives).register_hook(hook)
        return None

    def _compiled(self, module: nn.Module, inputs: Any, named: dict[str, Any], output: Any) -> Any:
        given, gives = _first((*inputs, *named.values())), _first(output)
        if not _followed(module, gives):
            return None
        if _tap is None:
            raise RuntimeError("DomainGradients of a compiled model need torch 2.4 or newer")
        tapped, _ = _tap(gives, given.detach(), self._key, self._at)
        if isinstance(output, Tensor):
            return tapped
        return type(output)([tapped, *output[1:]])

    def __reduce__(self) -> Any:
        return _nothing, ()


class WeightHook:
    """Passes on the gradient of a weight itself."""

    #: Not to be told of when a parameter is copied: the copy has none.
    __torch_unserializable__ = True

    def __init__(self, call: Callable[[Tensor], None]) -> None:
        self._call = call

    def __call__(self, gradient: Tensor) -> None:
        self._call(gradient)

    def __reduce__(self) -> Any:
        return _nothing, ()


def _autocast(device: str) -> torch.dtype | None:
    """The type that autocast computes in; None where it is off."""
    try:
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    except (AttributeError, TypeError):  # torch before 2.4
        if device == "cpu":
            return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def _first(values: Any) -> Any:
    """The first tensor of an output or of inputs."""
    if isinstance(values, Tensor):
        return values
    for value in values:
        if isinstance(value, Tensor):
            return value
    return None


def _written(output: Tensor) -> Tensor:
    """The tensor whose hooks see the gradient also where the output is changed in place: of a reshaped matrix, the matrix."""
    base = output._base
    whole = base is not None and base.numel() == output.numel() and base.is_contiguous() and output.is_contiguous()
    return base if whole and base.requires_grad else output


def _followed(module: nn.Module, gives: Any) -> bool:
    # A frozen weight has no gradient, whatever goes through the layer.
    return gives is not None and torch.is_grad_enabled() and gives.requires_grad and module.weight.requires_grad


def _make_tap() -> Any:
    """The operation behind a layer in compiled graphs: gives its first argument on, and the number of the pass for the way back."""
    library = torch.library
    if not hasattr(library, "custom_op"):
        return None
    # A replayed CUDA graph would run no Python.
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)
    tags = {"tags": (unsafe,)} if unsafe is not None else {}

    @library.custom_op("hds::tap", mutates_args=(), **tags)
    def tap(output: Tensor, given: Tensor, watch: int, at: int) -> tuple[Tensor, Tensor]:
        there = _watches.get(watch)
        number = -1 if there is None else there.entered(at, True, compiled=True)
        return output.clone(), torch.tensor(number, device="cpu")

    @tap.register_fake
    def _(output: Tensor, given: Tensor, watch: int, at: int) -> tuple[Tensor, Tensor]:
        return torch.empty_like(output), torch.empty((), dtype=torch.int64, device="cpu")

    @library.custom_op("hds::tap_gradient", mutates_args=(), **tags)
    def tap_gradient(gradient: Tensor, given: Tensor, number: Tensor, watch: int, at: int) -> Tensor:
        there = _watches.get(watch)
        if there is not None:
            there.received(at, int(number), given, gradient)
        return gradient.clone()

    @tap_gradient.register_fake
    def _(gradient: Tensor, given: Tensor, number: Tensor, watch: int, at: int) -> Tensor:
        return torch.empty_like(gradient)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        _, given, ctx.watch, ctx.at = inputs
        ctx.save_for_backward(given, output[1])

    def back(ctx: Any, gradient: Tensor, _: Any) -> Any:
        given, number = ctx.saved_tensors
        return tap_gradient(gradient, given, number, ctx.watch, ctx.at), None, None, None

    tap.register_autograd(back, setup_context=keep)
    return tap


_tap = _make_tap()
