"""Per-domain gradients of a PyTorch model, from mixed batches, in the ordinary backward pass.

In: the linear layers to watch and the domain of each sequence. Out: sketches of the domains' mean
gradients for :class:`hds.Observation`, and the layers' norms. No backward pass is added, and no gradient
is ever kept whole: a layer's gradient of one sequence, G = dᵀ x over its tokens, is projected from both
sides, Qᵀ G P = (d Q)ᵀ (x P), whose inner products are those of G in expectation.

Only hooks of modules are used, so that wrapping by DDP or FSDP2 does not matter.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["DomainGradients"]


class DomainGradients:
    """Sums the sketches of each domain's sequences over the micro-batches of a step.

    Example::

        gradients = hds.torch.DomainGradients(model, ["gpt_neox.layers.11.mlp.dense_4h_to_h"], domains=22)
        for micro_batch in step:
            gradients.begin(micro_batch["domain_ids"], scale=1 / sequences_of_the_step)
            loss.backward()
        observation = hds.Observation(..., sketches=gradients.finish(), weight_norms=gradients.norms(), ...)
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
        [B, L, F] and output [B, L, H].

        ``rank`` bounds the projections on both sides; ``group`` is the process group whose ranks share a
        step (the default one if torch.distributed is initialised).

        Raises:
            ValueError: if a layer does not exist or has no weight matrix, or ``domains`` or ``rank`` is below 1.
        """
        for name, number in (("domains", domains), ("rank", rank)):
            if number < 1:
                raise ValueError(f"{name} is {number}, must be 1 or more")
        modules = dict(model.named_modules())
        missing = [name for name in layers if name not in modules]
        if missing or not layers:
            likely = [n for n, m in modules.items() if isinstance(m, nn.Linear)]
            raise ValueError(f"no layer {missing or 'given'}; linear layers are {likely[-6:]}")
        self._names = list(layers)
        self._modules = [modules[name] for name in layers]
        for name, module in zip(layers, self._modules):
            if getattr(module, "weight", None) is None or module.weight.dim() != 2:
                raise ValueError(f"layer {name} has no weight matrix")
        self.domains, self._rank, self._seed, self._group = domains, rank, seed, group
        self._projections: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
        self._inputs: list[Tensor | None] = [None] * len(layers)
        self._ids: Tensor | None = None
        self._factor = 1.0
        self._sums: list[Tensor | None] = [None] * len(layers)
        self._squares: Tensor | None = None
        self._counts: Tensor | None = None
        # Sequences given to begin(), until a backward pass of theirs comes.
        self._begun: Tensor | None = None
        self._before: list[Tensor] | None = None
        self._loaded: list[float] | None = None
        self._handles: list[Any] = []
        for at, module in enumerate(self._modules):
            self._handles.append(module.register_forward_hook(self._forward_hook(at), with_kwargs=True))
            self._handles.append(module.register_full_backward_hook(self._backward_hook(at)))

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
        self._ids = ids
        self._inputs = [None] * len(self._modules)
        self._factor = float(ids.numel()) if scale is None else 1.0 / scale
        self._begun = torch.bincount(ids.cpu(), minlength=self.domains).double()

    def finish(self) -> dict[str, list[Any]]:
        """The sketches of the step, over all ranks of the group; begins the next one empty.

        Warns where nothing of a watched layer came: a scheduler would learn from nothing.

        Raises:
            RuntimeError: if layers that one rank saw were not seen by another.
        """
        silent = [name for name, s in zip(self._names, self._sums) if s is None]
        if len(silent) == len(self._names):
            why = "begin() was not called" if self._ids is None else "they had no backward pass (frozen, or unused?)"
            warnings.warn(f"no gradients of the watched layers {silent}: {why}", RuntimeWarning, stacklevel=2)
        elif silent:
            why = "the others alone make the sketches of this step"
            warnings.warn(f"no gradients of the watched layers {silent}: {why}", RuntimeWarning, stacklevel=2)
        counts = self._counts if self._counts is not None else torch.zeros(self.domains).double()
        sums = [s for s in self._sums if s is not None]
        total = torch.cat(sums, 1).double().cpu() if sums else torch.zeros(self.domains, 0).double()
        squares = torch.zeros(self.domains).double() if self._squares is None else self._squares.double().cpu()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            size = torch.tensor([total.shape[1]], dtype=torch.long)
            device = self._device()
            size = self._reduce(size.to(device), torch.distributed.ReduceOp.MAX).cpu()
            wrong = torch.tensor([total.shape[1] not in (0, int(size))], dtype=torch.long)
            if int(self._reduce(wrong.to(device), torch.distributed.ReduceOp.MAX)):
                raise RuntimeError("the ranks did not run the same watched layers in this step")
            if total.shape[1] == 0:
                total = torch.zeros(self.domains, int(size)).double()
            flat = torch.cat([counts, squares, total.flatten()]).to(device)
            flat = self._reduce(flat, torch.distributed.ReduceOp.SUM).cpu()
            counts, squares = flat[: self.domains], flat[self.domains : 2 * self.domains]
            total = flat[2 * self.domains :].view(self.domains, -1)
        there = counts > 0
        means = total / counts.clamp(min=1).unsqueeze(1)
        self._sums = [None] * len(self._modules)
        self._squares, self._counts, self._ids, self._begun = None, None, None, None
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
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

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

    def _forward_hook(self, at: int) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any], _output: Tensor) -> None:
            # Also called by the recomputation of activation checkpointing, with the same input.
            if self._ids is None or not torch.is_grad_enabled():
                return
            if self._inputs[at] is not None and torch._C._current_graph_task_id() == -1:
                self._inputs[at] = None
                raise RuntimeError(
                    f"layer {self._names[at]} ran twice before a backward pass: DomainGradients can neither watch a "
                    "layer that is used twice nor one of two forward passes (run others under torch.no_grad())"
                )
            given = [*inputs, *named.values()]
            self._inputs[at] = next(value for value in given if isinstance(value, Tensor)).detach()

        return hook

    def _backward_hook(self, at: int) -> Any:
        def hook(_module: nn.Module, _inputs: Any, outputs: tuple[Tensor | None, ...]) -> None:
            x, d = self._inputs[at], outputs[0]
            self._inputs[at] = None
            if self._ids is None or d is None:
                return
            if x is None:
                raise RuntimeError(
                    f"layer {self._names[at]} has a backward pass without its forward pass: call begin() before the "
                    "forward pass, and once for each backward pass"
                )
            if x.dim() != 3 or x.shape[0] != self._ids.numel():
                raise ValueError(
                    f"a layer's input is {list(x.shape)}; expected {self._ids.numel()} sequences as given to begin()"
                )
            with torch.no_grad():
                self._add(at, x, d)

        return hook

    def _add(self, at: int, x: Tensor, d: Tensor) -> None:
        assert self._ids is not None
        if self._begun is not None:
            self._counts = self._begun if self._counts is None else self._counts + self._begun
            self._begun = None
        if self._projections[at] is None:
            self._projections[at] = (
                self._orthonormal(2 * at, d.shape[-1]).to(x.device),
                self._orthonormal(2 * at + 1, x.shape[-1]).to(x.device),
            )
        q, p = self._projections[at]  # type: ignore[misc]
        left = (d.float() @ q).transpose(1, 2)
        sketches = (left @ (x.float() @ p)).flatten(1) * self._factor
        ids = self._ids.to(x.device)
        # A product, not a scatter: the same order of additions on every run, on GPUs too.
        member = nn.functional.one_hot(ids, self.domains).to(sketches.dtype).T
        added = member @ sketches
        self._sums[at] = added if self._sums[at] is None else self._sums[at] + added
        squares = member @ sketches.square().sum(1)
        self._squares = squares if self._squares is None else self._squares + squares

    def _orthonormal(self, side: int, size: int) -> Tensor:
        """[size, rank] with orthonormal columns times sqrt(size / rank), the same on every rank."""
        rank = min(self._rank, size)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + side)
        q, r = torch.linalg.qr(torch.randn(size, rank, generator=generator, dtype=torch.float64))
        return (q * r.diagonal().sign() * (size / rank) ** 0.5).float()
