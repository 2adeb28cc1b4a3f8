"""The dataset: arguments, weights, state. Reading itself is Rust's (``hds._native``)."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _files, _native, _torch, arguments
from ._torch import torch
from .batch import DATASETS, Batch

#: Arrays of a batch where ``keys`` is not given.
DEFAULT_KEYS = (
    "input_ids",
    "labels",
    "position_ids",
    "cu_seqlens",
    "domain_ids",
    "mtld",
    "loss_mask",
)
#: Numbers of a batch that may be among ``keys``.
FACTS = ("step", "weights_version")
#: Everything that ``keys`` may name.
ALL_KEYS = (*DEFAULT_KEYS, "sample_ids", *FACTS)


class StreamingDataset(_torch.IterableDataset):  # type: ignore[misc]
    """Batches of an index under live mixture weights.

    An item is a whole batch (this rank's part of it), so a ``torch.utils.data.DataLoader`` takes it with
    ``batch_size=None``. L is ``seq_len``, R the rows of this rank.

    index: folder that ``hds-index build`` wrote, or where it was uploaded: ``s3://``, ``gs://``, ``az://`` or
        ``http(s)://``, with credentials from the environment (AWS_ACCESS_KEY_ID and so on).
    seq_len: tokens that a sequence trains on, L.
    batch_size: sequences of the GLOBAL batch, over all ranks; ranks share it, so that the stream does not
        depend on their number.
    weights: {domain: weight} for every domain, or a sequence in the order of ``domains``; not negative, sum 1.
        "natural" (the default: by tokens) and "uniform" need no numbers.
    seed: of the draws and the order.
    rank, world_size: this process's part; torch.distributed's (or torchrun's) where not given.
    draws: "independent", or "stratified" (counts of a batch within one of B * weight).
    minimum_per_domain: least sequences of each domain with weight in every batch.
    order: "permutation" (every window once an epoch), or "independent" (drawn with replacement).
    domain_end: "restart" in another order, "stop" with DomainEnded (which says how to go on), or a number of epochs
        after which a domain's weight goes to the others (``batch.ended`` says which).
    packing: "windows" of L + 1 tokens across documents, or "documents", one a sequence, padded with
        ``padding_token`` (the end-of-document id where not given).
    labels: "next", the token after each input (plain cross-entropy, Megatron), or "same" as the inputs, for models that
        shift them themselves (Hugging Face).
    ignore_index: label of padding, and with ``mask_boundaries`` of the first token of a document.
    reset_position_ids: positions begin again with each document.
    keys: which arrays a batch has (all but "sample_ids" where not given); also "step" and "weights_version".
    length: batches of an epoch, after which iteration ends; the next one goes on. Endless where not given.
    read_ahead: batches that the system is asked for beforehand. access: "map", or "read" where maps are a problem.
    cache_dir, cache_limit, cache_piece, fetch: for an index behind a URL: folder that keeps what was fetched (unset:
        $HDS_CACHE, $XDG_CACHE_HOME/hds or ~/.cache/hds), its most bytes ("100GB" or a number), bytes fetched
        together, and whether they are used at once ("pieces") or when their file was found whole ("files").
    weights_file: take the weights that another process publishes there (``hds.WeightsWriter``).
    replay: take the weights of this log. weight_log: write one (rank 0).
    output: "torch", "numpy", or "auto": torch where it is installed.
    """

    def __init__(
        self,
        index: str | os.PathLike[str],
        *,
        seq_len: int,
        batch_size: int,
        weights: Any = "natural",
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        draws: str = "independent",
        minimum_per_domain: int = 0,
        order: str = "permutation",
        domain_end: str | int = "restart",
        packing: str = "windows",
        padding_token: int | None = None,
        labels: str = "next",
        ignore_index: int = -100,
        mask_boundaries: bool = False,
        reset_position_ids: bool = False,
        keys: Sequence[str] | None = None,
        length: int | None = None,
        read_ahead: int = 2,
        access: str = "map",
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | str = "100GB",
        cache_piece: int | str = "1MiB",
        fetch: str = "pieces",
        weights_file: str | os.PathLike[str] | None = None,
        replay: str | os.PathLike[str] | None = None,
        weight_log: str | os.PathLike[str] | None = None,
        output: str = "auto",
    ) -> None:
        super().__init__()
        output = arguments.word("output", output, ("auto", "torch", "numpy"))
        if output == "torch" and torch is None:
            raise ValueError('output: "torch" is not installed')
        self.length = arguments.maybe_whole("length", length, least=1, most=arguments.I64)
        if weights_file is not None and replay is not None:
            raise ValueError("weights come from weights_file or from replay, not from both")
        batch_size = arguments.whole("batch_size", batch_size, least=1)
        self.rank, self.world_size = _torch.place(rank, world_size)
        if self.world_size > batch_size:
            raise ValueError(
                f"batch_size: {batch_size} sequences for world_size {self.world_size} ranks; it is the global batch, of "
                "which each needs one at least"
            )
        domain_end, cap = _domain_end(domain_end)
        self._arguments: dict[str, Any] = {
            "index": arguments.path("index", index),
            "sequence_length": arguments.whole("seq_len", seq_len, least=1),
            "batch_size": batch_size,
            "seed": arguments.whole("seed", seed),
            "rank": self.rank,
            "world_size": self.world_size,
            "draws": arguments.word("draws", draws, ("independent", "stratified")),
            "minimum_per_domain": arguments.whole("minimum_per_domain", minimum_per_domain, most=arguments.U32),
            "order": arguments.word("order", order, ("permutation", "independent")),
            "domain_end": domain_end,
            "cap": cap,
            "packing": arguments.word("packing", packing, ("windows", "documents")),
            "padding_token": arguments.maybe_whole("padding_token", padding_token, most=arguments.U32),
            "read_ahead_batches": arguments.whole("read_ahead", read_ahead, most=1024),
            "access_by": arguments.word("access", access, ("map", "read")),
            "cache": arguments.maybe_path("cache_dir", cache_dir),
            "cache_limit": arguments.size("cache_limit", cache_limit),
            "cache_piece": arguments.size("cache_piece", cache_piece),
            "fetch": arguments.word("fetch", fetch, ("pieces", "files")),
        }
        wanted = arguments.names("keys", DEFAULT_KEYS + FACTS if keys is None else keys, ALL_KEYS)
        self._facts = tuple(key for key in wanted if key in FACTS)
        self._stream_options: dict[str, Any] = {
            "keys": [key for key in wanted if key not in FACTS],
            "labels": arguments.word("labels", labels, ("next", "same")),
            "ignore_index": arguments.whole("ignore_index", ignore_index, -arguments.I64, arguments.I64),
            "mask_boundaries": arguments.flag("mask_boundaries", mask_boundaries),
            "reset_position_ids": arguments.flag("reset_position_ids", reset_position_ids),
        }
        self._tensors = torch is not None and output != "numpy"
        self._weights_file = arguments.maybe_path("weights_file", weights_file)
        self._replay = arguments.maybe_path("replay", replay)
        self._weight_log = arguments.maybe_path("weight_log", weight_log)
        if self._weight_log is not None:
            _files.check_log(self._weight_log)
            if self._replay is not None and os.path.realpath(self._weight_log) == os.path.realpath(self._replay):
                raise ValueError(f"weight_log: {self._weight_log} is the log that replay reads; give it another name")
        self._core = _native.Core(**self._arguments)
        self._running: Any = None
        #: Counts states that were loaded, and iterations that were begun: those before are over.
        self._generation = self._iteration = 0
        #: Whether the next iteration is the one that hds.DataLoader began.
        self._lent = False
        self._token = ""
        numbers = None if self._is_foreign() and isinstance(weights, str) else self._numbers(weights)
        self._begin_at(0, 1, None if self._is_foreign() else numbers)

    # Weights

    @property
    def domains(self) -> list[str]:
        """Names of the domains, in the order of every sequence of weights; ``domain_ids`` point into it."""
        return self._core.domains

    def set_weights(self, weights: Any) -> int:
        """Puts weights in force for every batch not drawn yet, and returns their version.

        In process, and with ``hds.DataLoader``, that is the very next batch. Call it on every rank with the
        same weights.
        """
        if os.getpid() != self._process:
            raise RuntimeError("weights are set in the process that made the dataset, not in its workers")
        return self._core.set_weights(self._numbers(weights))

    @property
    def weights(self) -> dict[str, float]:
        """The weights that the next batch would be drawn from."""
        return dict(zip(self.domains, self._core.weights_at(self._where())[1]))

    @property
    def weights_version(self) -> int:
        """Their version."""
        return self._core.weights_at(self._where())[0]

    def _numbers(self, weights: Any) -> list[float]:
        names = self.domains
        if isinstance(weights, str):
            arguments.word("weights", weights, ("natural", "uniform"))
            return self._core.natural_weights() if weights == "natural" else [1.0 / len(names)] * len(names)
        return arguments.weights(weights, names)

    # State

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Where the stream stands, as plain JSON values: the same on every rank.

        step: number of batches that were trained on since the run began. Needed where something reads
        ahead of the training loop: a plain torch ``DataLoader`` with workers, accelerate, Lightning.
        """
        step = arguments.maybe_whole("step", step, most=arguments.I64)
        if step is None:
            step = self._where()
            if step != self._position and not self._arrivals:
                # Another thread draws a batch: the stream is ahead of what it has handed over.
                step = self._position
            if step != self._position and not self._at_end(step):
                raise ValueError(
                    f"batches up to {step} have arrived from worker processes, and nobody told how many were "
                    "trained on: say state_dict(step=number of batches trained on), or use hds.DataLoader"
                )
        return json.loads(self._core.state(step))

    def load_state_dict(self, state: Mapping[str, Any] | str) -> None:
        """Goes on where a state was taken, on any number of ranks and workers, with the weights then in force.

        A state of another index, seed or sequence length is refused with the reason.
        """
        if not isinstance(state, (str, Mapping)):
            raise TypeError(
                f"state: {arguments.shown(state)}, must be what state_dict() gave: a dict, or its JSON as a str"
            )
        try:
            text = state if isinstance(state, str) else json.dumps(dict(state))
        except (TypeError, ValueError) as error:
            raise ValueError(f"state: this is no state of a dataset, whose values are plain: {error}") from None
        step, version, weights = self._core.restore(text, not self._is_foreign())
        self._begin_at(step, version, None if self._is_foreign() else weights)

    @property
    def samples(self) -> dict[str, int]:
        """Sequences taken of each domain so far, over all ranks."""
        return dict(zip(self.domains, self._core.samples_before(self._where())))

    @property
    def epochs(self) -> dict[str, float]:
        """How often each domain was gone through so far, in part."""
        counts = self._core.samples_before(self._where())
        windows = self._core.domain_samples
        return {n: c / max(w, 1) for n, c, w in zip(self.domains, counts, windows)}

    @property
    def domain_tokens(self) -> dict[str, int]:
        """Training tokens of each domain."""
        return dict(zip(self.domains, self._core.domain_tokens))

    @property
    def fingerprint(self) -> str:
        """Digest of everything in the index."""
        return self._core.fingerprint

    @property
    def vocabulary(self) -> int:
        """Ids are below this."""
        return self._core.vocabulary

    @property
    def cache_troubles(self) -> dict[str, int]:
        """What the cache of an index behind a URL went through in this process, each mended by fetching again: files
        that were ``damaged``, times the disk was full (``disk_full``), pieces that could not be kept (``not_kept``)."""
        return self._core.cache_troubles

    @property
    def rows(self) -> int:
        """Sequences of each batch that this rank reads."""
        return self._core.rows

    # Iteration

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("the stream is endless; give length=batches of an epoch")
        return self.length

    def __iter__(self) -> Iterator[Batch]:
        worker = _torch.worker()
        if worker is None:
            return self._run()
        return self._run_as_worker(*worker)

    def _run(self) -> Iterator[Batch]:
        now = self._begin_iteration()
        begin = self._where()
        self._position = begin
        self._arrivals = False
        stream = self._stream(begin, 0, 1)
        while True:
            self._check_iteration(now)
            batch = self._make(stream.next())
            if batch is None:
                return
            if not self._counting:  # else hds.DataLoader counts what it hands over
                self._taken()
            yield batch

    def _begin_iteration(self) -> tuple[int, int]:
        """Ends the iterations before, but for hds.DataLoader's where this one is its own."""
        if not self._lent:
            self._iteration += 1
            if self._counting:
                # It was left open: its workers wait for batches that are this iteration's now.
                self._core.stop_readers()
                self._core.set_horizon(None)
                self._counting = False
        self._lent = False
        return self._generation, self._iteration

    def _check_iteration(self, begun: tuple[int, int]) -> None:
        generation, iteration = begun
        if generation != self._generation:
            raise RuntimeError("a state was loaded since this iteration began; begin another")
        if iteration != self._iteration:
            raise RuntimeError(
                "another iteration of this dataset was begun, which goes on where this one stood: a dataset is one "
                "stream. Iterate over one at a time, or make a StreamingDataset for each"
            )

    def _run_as_worker(self, worker: int, workers: int) -> Iterator[Batch]:
        if self._weight_log is not None and not self._counted:
            raise RuntimeError("weight_log is written with hds.DataLoader, or without workers")
        if self._running is not None:
            # A worker that is kept goes on behind the epoch that all of them have read.
            stream, end = self._running
            if end is None:
                raise RuntimeError("persistent workers need length=batches of an epoch")
            stream.go_on(end, self._end(end))
            self._running = (stream, self._end(end))
        else:
            begin = self._where()
            stream = self._stream(begin, worker, workers)
            self._running = (stream, self._end(begin))
        while (batch := self._make(stream.next())) is not None:
            yield batch

    def _stream(self, begin: int, worker: int, workers: int) -> Any:
        return self._core.stream(
            begin=begin,
            end=self._end(begin),
            worker=worker,
            workers=workers,
            packed=self._tensors and _torch.worker() is not None,
            **self._stream_options,
        )

    def _make(self, item: Any) -> Batch | None:
        if item is None:
            return None
        arrays, (step, version, samples, ended), packed = item
        if self._tensors:
            from_numpy = torch.from_numpy
            batch = Batch({key: from_numpy(array) for key, array in arrays.items()})
            if packed is not None:
                batch._packed = (from_numpy(packed[0]), packed[1])
        else:
            batch = Batch(arrays)
        batch.step, batch.weights_version = step, version
        batch.samples, batch.ended = tuple(samples), tuple(ended)
        for fact in self._facts:
            batch[fact] = step if fact == "step" else version
        batch._token = self._token
        return batch

    # Where the stream stands

    def _begin_at(self, step: int, version: int, weights: list[float] | None) -> None:
        """Starts anew at a step; with weights where they are this process's to publish."""
        self._process = os.getpid()
        DATASETS.pop(self._token, None)
        self._token = uuid.uuid4().hex
        DATASETS[self._token] = self
        #: Batches trained on, as far as this process knows.
        self._position = step
        #: Whether every batch trained on was counted here, and whether one that arrives now is.
        self._counted = self._counting = self._arrivals = False
        self._running = None
        self._generation += 1
        self._logged = False
        if self._replay is not None:
            self._core.replay(self._replay)
        elif self._weights_file is not None:
            self._core.read_from(self._weights_file)
        else:
            assert weights is not None
            memory = Path("/dev/shm")
            if not os.access(memory, os.W_OK) or not self._publish_in(memory, weights, version, step):
                folder = Path(tempfile.gettempdir())
                if not self._publish_in(folder, weights, version, step):
                    raise OSError(errno.ENOSPC, f"no space for the weights in {memory} and {folder}")

    def _publish_in(self, folder: Path, weights: list[float], version: int, step: int) -> bool:
        """Makes the file through which weights reach workers; False where there is no space for it."""
        _files.remove_left(folder)
        handle, self._control = tempfile.mkstemp(prefix=_files.LIVE_PREFIX, dir=folder)
        os.close(handle)
        weakref.finalize(self, _files.remove, self._control, os.getpid())
        try:
            self._core.publish_at(self._control, weights, version, step)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _files.remove(self._control, os.getpid())
            return False
        return True

    def _is_foreign(self) -> bool:
        return self._replay is not None or self._weights_file is not None

    def _where(self) -> int:
        """The next batch: after the last one counted, or else after the last one that arrived from a worker. One that was
        read here but not handed out, as the call was interrupted, comes again."""
        return self._position if self._counted or not self._arrivals else self._core.unbroken(self._position)

    def _end(self, begin: int) -> int | None:
        """The end of the epoch that a batch is in."""
        return None if self.length is None else (begin // self.length + 1) * self.length

    def _at_end(self, step: int) -> bool:
        return self.length is not None and step == self._end(self._position)

    def _taken(self) -> None:
        """Counts a batch as handed to the training loop, and logs its weights."""
        step = self._position
        if self._weight_log is not None and self.rank == 0:
            if not self._logged:
                self._core.log_to(self._weight_log, step)
                self._logged = True
            # Before the batch counts: one whose weights cannot be noted comes again.
            self._core.log_batch(step)
        self._position = step + 1

    def _arrived(self, batch: Batch) -> None:
        """Notes a batch that came from a worker process."""
        self._arrivals = True
        if not self._counting:
            self._counted = False
        self._core.note(batch.step, list(batch.samples))

    # Copies for workers that are started anew

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_core", "_running"):
            state.pop(name)
        state["_state"] = self._core.state(self._where())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        text = state.pop("_state")
        self.__dict__.update(state)
        self._running = None
        self._core = _native.Core(**self._arguments)
        self._position = self._core.restore(text, False)[0]
        if self._replay is not None:
            self._core.replay(self._replay)
        else:
            self._core.read_from(self._weights_file or self._control)


def _domain_end(value: Any) -> tuple[str, int | None]:
    """What happens at a domain's end, and the number of epochs until then where that is it."""
    words = '"restart", "stop" or a whole number of epochs, at least 1'
    if isinstance(value, str):
        if value not in ("restart", "stop"):
            raise ValueError(f"domain_end: {value!r}, must be {words}")
        return value, None
    try:
        return "restart", arguments.whole("domain_end", value, least=1)
    except TypeError:
        raise TypeError(f"domain_end: {arguments.shown(value)}, must be {words}") from None
    except ValueError:
        raise ValueError(f"domain_end: {value}, must be {words}") from None
