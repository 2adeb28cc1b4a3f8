"""Per-domain gradients of a PyTorch model, from mixed batches, in the ordinary backward pass.

In: the linear layers to watch and the domain of each sequence. Out: sketches of the domains' mean
gradients for :class:`hds.Observation`, and the layers' norms. No backward pass is added, and no gradient
is ever kept whole: a layer's gradient of one sequence, G = dᵀ x over its tokens, is projected from both
sides, Qᵀ G P = (d Q)ᵀ (x P), whose inner products are those of G in expectation.

Only hooks of modules and their outputs are used, so that wrapping by DDP or FSDP2 does not matter. What they see is held against
the weights' own gradients in the first step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import arguments
from ._watch import LayerHook, Pass, RootHook, Watch, WeightHook, plainly

__all__ = ["DomainGradients"]

#: Part of a weight's gradient that sketches may miss without a word: 16-bit arithmetic.
UNSEEN = 0.1


class DomainGradients:
    """Sums the sketches of each domain's sequences over the micro-batches of a step.

    Example::

        gradients = hds.torch.DomainGradients(model, ["gpt_neox.layers.11.mlp.dense_4h_to_h"], domains=22)
        for micro_batch in step:
            gradients.begin(micro_batch["domain_ids"], scale=1 / sequences_of_the_step)
            loss.backward()
        observation = hds.Observation(..., sketches=gradients.finish(), weight_norms=gradients.norms(), ...)

    Make it before the model first runs compiled. What it does with layers that are frozen, tied, used twice or not at all,
    and with copies of the model, is in docs/agent.md.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str],
        *,
        domains: int,
        rank: int = 64,
        seed: int = 0,
        group: Any = None,
    ) -> None:
        """Watches the modules named in ``layers`` (as in ``model.named_modules()``), whose input is
        [B, ..., F] and output [B, ..., H], and embeddings of ids [B, ...].

        ``rank`` bounds the projections on both sides; ``group`` is the process group whose ranks share a
        step (the default one if torch.distributed is initialised).

        Raises:
            TypeError: if an argument is of another kind.
            ValueError: if a layer does not exist or has no weight matrix, or one that it shares with a module whose part of the
                gradient cannot be followed; if ``domains`` or ``rank`` is below 1.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"model: {arguments.shown(model)}, must be a torch.nn.Module")
        self.domains = arguments.whole("domains", domains, least=1)
        self._rank, self._group = arguments.whole("rank", rank, least=1), group
        self._seed = arguments.whole("seed", seed)
        self._names, self._modules = _layers(model, layers)
        self._projections: list[tuple[Tensor, Tensor] | None] = [None] * len(self._names)
        self._clear()
        self._before: list[Tensor] | None = None
        self._loaded: list[float] | None = None
        self._handles: list[Any] = []
        # A weight may have several modules: the sketches of all of them are summed.
        hooked = [(slot, module) for slot, named in enumerate(self._modules) for module in _owners(model, named, self._names[slot])]
        self._slots = [slot for slot, _ in hooked]
        self._embeds = [module if isinstance(module, nn.Embedding) else None for _, module in hooked]
        self._watch = Watch([self._names[slot] for slot in self._slots], self._take)
        self._handles.append(model.register_forward_pre_hook(RootHook(self._watch)))
        for at, (_, module) in enumerate(hooked):
            self._handles.append(module.register_forward_hook(LayerHook(self._watch, at), with_kwargs=True))
        # Of the first step: sketches of the weights' own gradients, and the sums of what the hooks saw.
        self._own: list[Tensor | None] = [None] * len(self._names)
        self._seen: list[Tensor | None] = [None] * len(self._names)
        self._checks = [self._check(slot, module) for slot, module in enumerate(self._modules)]

    def begin(self, domain_ids: Tensor | Sequence[int], scale: float | None = None) -> None:
        """Says whose sequences the next forward and backward pass are of; call it before both.

        ``scale`` is the factor by which the loss that is differentiated holds each sequence's own mean loss:
        1 / (sequences of the step on this rank) for a mean over a step, the default 1 / B for a mean over the
        micro-batch alone. With a gradient scaler it is that times the scaler's scale. Sequences whose backward pass never comes
        do not count.

        Raises:
            ValueError: if a domain is not a whole number below ``domains``, or ``scale`` is not a finite number above 0.
        """
        ids = torch.as_tensor(domain_ids).flatten()
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise ValueError(f"domain_ids are of {ids.dtype}, must be whole numbers")
        ids = ids.long()
        if scale is not None and not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale is {scale}, must be a finite number above 0")
        if ids.numel() == 0 or int(ids.min()) < 0 or int(ids.max()) >= self.domains:
            raise ValueError(f"domain_ids are {ids.tolist()}, must be from 0 to {self.domains - 1}")
        if self._watch.removed:
            raise RuntimeError("the hooks were taken away by remove(); make a new DomainGradients")
        self._begun = True
        factor = float(ids.numel()) if scale is None else 1.0 / scale
        for ended in self._watch.begin(ids, factor, len(self._names)):
            self._fold(ended)

    def finish(self) -> dict[str, list[Any]]:
        """The sketches of the step, over all ranks of the group; begins the next one empty.

        Warns where nothing of a watched layer came: a scheduler would learn from nothing.
        """
        for ended in self._watch.finish():
            self._fold(ended)
        self._warn()
        counts, squares, total = self._counts, torch.zeros(self.domains, dtype=torch.float64, device="cpu"), []
        for slot, (summed, square) in enumerate(zip(self._sums, self._squares)):
            if summed is None:
                # The gradient of a layer that was not used is zero.
                total.append(torch.zeros(self.domains, self._width(slot), dtype=torch.float64, device="cpu"))
            else:
                total.append(summed.double().cpu())
                squares = squares + square.double().cpu()
        flat = torch.cat([counts.unsqueeze(1), squares.unsqueeze(1), *total], 1)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            device = self._device()
            flat = self._reduce(flat.to(device), torch.distributed.ReduceOp.SUM).cpu()
        self._clear()
        counts, squares = flat[:, 0], flat[:, 1]
        there = counts > 0
        means = flat[:, 2:] / counts.clamp(min=1).unsqueeze(1)
        return {
            "means": [m.tolist() if t else [] for m, t in zip(means, there.tolist())],
            "sequence_squares": (squares / counts.clamp(min=1)).tolist(),
        }

    def norms(self) -> list[float]:
        """Norm of each layer's weight. Call it before the optimizer's step; it also keeps the weights for
        :meth:`change_norms`."""
        self._before = [self._whole(m.weight).detach().clone() for m in self._modules]
        return [float(w.float().norm()) for w in self._before]

    def change_norms(self) -> list[float]:
        """Norm of each layer's change since :meth:`norms`, so by the last step if called after it; before the
        first step 0, or what :meth:`load_change_norms` was given."""
        if self._before is None:
            return list(self._loaded or [0.0] * len(self._modules))
        now = [self._whole(m.weight).detach() for m in self._modules]
        return [float((n.float() - b.float()).norm()) for n, b in zip(now, self._before)]

    def load_change_norms(self, norms: Sequence[float]) -> None:
        """Goes on from what :meth:`change_norms` gave when a checkpoint was written."""
        self._loaded = [float(norm) for norm in norms]

    def remove(self) -> None:
        """Takes the hooks away."""
        self._watch.removed = True
        for handle in [*self._handles, *self._checks]:
            if handle is not None:
                handle.remove()
        self._handles.clear()
        self._checks.clear()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a DomainGradients cannot be copied or saved: it belongs to its model's layers. Copies of the model have no hooks; "
            "make a new DomainGradients for one that is to be watched"
        )

    def _clear(self) -> None:
        self._sums: list[Tensor | None] = [None] * len(self._names)
        self._squares: list[Any] = [0.0] * len(self._names)
        self._counts = torch.zeros(self.domains, dtype=torch.float64, device="cpu")
        self._begun = False

    def _warn(self) -> None:
        silent = [name for name, s in zip(self._names, self._sums) if s is None]
        if silent:
            why = "the others alone make the sketches of this step"
            if len(silent) == len(self._names):
                why = "they had no backward pass (frozen, unused, or compiled before DomainGradients was made?)"
                why = why if self._begun else "begin() was not called"
            warnings.warn(f"no gradients of the watched layers {silent}: {why}", RuntimeWarning, stacklevel=3)
        if not self._begun or not self._checks:
            return
        for name, own, seen in zip(self._names, self._own, self._seen):
            if own is None:
                continue
            missed = float((own - (0.0 if seen is None else seen)).norm() / own.norm().clamp(min=1e-30))
            if missed > UNSEEN:
                warnings.warn(
                    f"layer {name}: what its hooks saw differs from its weight's gradient by {missed:.0%} of it. The weight is "
                    "used where the module itself is not called, the loss holds more than the sequences given to begin(), or "
                    "the model was compiled before DomainGradients was made; sketches are of what was seen",
                    RuntimeWarning,
                    stacklevel=3,
                )
        for handle in self._checks:
            if handle is not None:
                handle.remove()
        self._checks, self._own, self._seen = [], [], []

    def _device(self) -> torch.device:
        backend = torch.distributed.get_backend(self._group)
        return self._modules[0].weight.device if backend == "nccl" else torch.device("cpu")

    def _reduce(self, tensor: Tensor, operation: Any) -> Tensor:
        torch.distributed.all_reduce(tensor, operation, group=self._group)
        return tensor

    @staticmethod
    def _whole(weight: Tensor) -> Tensor:
        # FSDP2 keeps weights as distributed tensors.
        return weight.full_tensor() if hasattr(weight, "full_tensor") else weight

    def _width(self, slot: int) -> int:
        rows, columns = self._modules[slot].weight.shape
        return min(self._rank, rows) * min(self._rank, columns)

    def _check(self, slot: int, module: nn.Module) -> Any:
        """Sketches the weight's own gradient in the first step; None where it is not seen here, or not as a matrix."""
        weight = module.weight
        plain = isinstance(module, (nn.Linear, nn.Embedding)) and type(weight) is nn.Parameter
        if not plain or not weight.requires_grad or not weight.is_leaf:
            return None

        def own(gradient: Tensor) -> None:
            if self._watch.current is None or not self._own:
                return
            with plainly(gradient.device):
                gradient = gradient.to_dense() if gradient.is_sparse else gradient
                q, p = self._sides(slot, *gradient.shape, gradient.device)
                sketch = (q.T @ gradient.detach().float() @ p).cpu()
            self._own[slot] = sketch if self._own[slot] is None else self._own[slot] + sketch

        return weight.register_hook(WeightHook(own))

    def _take(self, at: int, one: Pass, x: Tensor, d: Tensor) -> None:
        """Adds a module's gradients to the pass: of a layer that is used twice they are summed before anything is squared."""
        slot, embedding, sequences = self._slots[at], self._embeds[at], one.ids.numel()
        with plainly(d.device):
            d = d.reshape(sequences, -1, d.shape[-1])
            if embedding is None:
                x = x.reshape(sequences, -1, x.shape[-1])
                q, p = self._sides(slot, d.shape[-1], x.shape[-1], d.device)
                left, right = d.float() @ q, x.float() @ p
            else:
                q, p = self._sides(slot, embedding.weight.shape[0], d.shape[-1], d.device)
                ids = x.reshape(sequences, -1)
                left, right = q[ids], d.float() @ p
                if embedding.padding_idx is not None:
                    left = left * (ids != embedding.padding_idx).unsqueeze(-1)
            rows = (left.transpose(1, 2) @ right).flatten(1)
        there = one.rows[slot]
        one.rows[slot] = rows if there is None else there + rows

    def _fold(self, one: Pass) -> None:
        """Adds a pass to the sums of the step."""
        self._counts += torch.bincount(one.ids.cpu(), minlength=self.domains).double()
        for slot, rows in enumerate(one.rows):
            if rows is None:
                continue
            with plainly(rows.device):
                if self._seen:
                    seen = rows.sum(0).view(self._projections[slot][0].shape[1], -1).cpu()  # type: ignore[index]
                    self._seen[slot] = seen if self._seen[slot] is None else self._seen[slot] + seen
                # A product, not a scatter: the same order of additions on every run, on GPUs too.
                member = nn.functional.one_hot(one.ids.to(rows.device), self.domains).to(rows.dtype).T
                finite = rows.isfinite().all(1)
                rows = torch.where(finite.unsqueeze(1), rows, 0.0) * one.factor
                # A sequence that overflowed spoils its own domain, and no other by 0 times infinity.
                spoilt = torch.where(member @ (~finite).to(rows.dtype) > 0, math.nan, 0.0)
                added, squares = member @ rows + spoilt.unsqueeze(1), member @ rows.square().sum(1) + spoilt
            there = self._sums[slot]
            self._sums[slot] = added if there is None else there + added
            self._squares[slot] = self._squares[slot] + squares

    def _sides(self, slot: int, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """The projections of a weight of [rows, columns]."""
        there = self._projections[slot]
        if there is None:
            there = self._orthonormal(2 * slot, rows), self._orthonormal(2 * slot + 1, columns)
        if there[0].device != device:
            there = there[0].to(device), there[1].to(device)
        self._projections[slot] = there
        return there

    def _orthonormal(self, side: int, size: int) -> Tensor:
        """[size, rank] with orthonormal columns times sqrt(size / rank), the same on every rank."""
        rank = min(self._rank, size)
        generator = torch.Generator("cpu").manual_seed(self._seed * 1_000_003 + side)
        normal = torch.randn(size, rank, generator=generator, dtype=torch.float64, device="cpu")
        q, r = torch.linalg.qr(normal)
        return (q * r.diagonal().sign() * (size / rank) ** 0.5).float()


def _layers(model: nn.Module, layers: Sequence[str]) -> tuple[list[str], list[nn.Module]]:
    """The named modules, each with a weight matrix of its own."""
    if isinstance(layers, (str, bytes)) or not all(isinstance(name, str) for name in layers):
        raise TypeError(f"layers: {arguments.shown(layers)}, must be a list of names of modules")
    there = dict(model.named_modules(remove_duplicate=False))
    missing = [name for name in layers if name not in there]
    if missing or not layers:
        likely = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
        raise ValueError(f"no layer {missing or 'given'}; linear layers are {likely[-6:]}")
    by_weight: dict[int, str] = {}
    for name in layers:
        weight = getattr(there[name], "weight", None)
        if not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(there[name], nn.EmbeddingBag):
            raise ValueError(f"layer {name} has no weight matrix that multiplies its input")
        other = by_weight.setdefault(id(weight), name)
        if other != name or list(layers).count(name) > 1:
            raise ValueError(f"layers {other} and {name} have one weight; give one of them")
    return list(layers), [there[name] for name in layers]


def _owners(model: nn.Module, named: nn.Module, name: str) -> list[nn.Module]:
    """The modules that have the weight of a layer, itself first."""
    weight: Any = named.weight
    found = [named]
    for where, module in model.named_modules():
        for what, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter is not weight or (module is named and what == "weight"):
                continue
            both = all(isinstance(one, (nn.Linear, nn.Embedding)) for one in (named, module))
            if not both or what != "weight":
                raise ValueError(
                    f"layer {name} shares its weight with {where}.{what} ({type(module).__name__}), whose part of the gradient "
                    "cannot be followed; watch another layer"
                )
            found.append(module)
    for module in found:
        if getattr(module, "scale_grad_by_freq", False):
            raise ValueError(f"layer {name} is of an embedding with scale_grad_by_freq, which cannot be followed")
    return found
