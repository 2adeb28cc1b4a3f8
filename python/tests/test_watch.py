"""Sketches of unusual models and passes: the gradients of each sequence by itself, or a clear error."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
import warnings

import pytest

torch = pytest.importorskip("torch")

import hds.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

DOMAINS, SEQUENCES, LENGTH, VOCABULARY, WIDTH = 3, 5, 7, 20, 12
IDS = [0, 1, 0, 2, 1]


class Model(nn.Module):
    """Words of one kind: `kind` picks what happens between the layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if kind == "tied":
            self.head.weight = self.embed.weight
        if kind == "tied linears":
            self.down.weight = self.up.weight
        if kind == "frozen":
            self.up.weight.requires_grad_(False)

    def middle(self, x):
        if self.kind == "inplace":
            return self.act(self.down(self.act(self.up(x))))
        if self.kind == "residual":
            y = self.up(x)
            y += x
            z = self.down(y)
            z.mul_(2.0)
            return z.tanh_()
        if self.kind == "twice":
            return self.down(torch.tanh(self.up(torch.tanh(self.up(x)))))
        if self.kind == "unused":
            return torch.tanh(self.up(x))
        return self.down(torch.tanh(self.up(x)))

    def forward(self, ids):
        x = self.embed(ids)
        if self.kind == "reentrant":
            x = checkpoint(self.middle, x, use_reentrant=True)
        elif self.kind == "recomputed":
            x = checkpoint(self.middle, x, use_reentrant=False)
        else:
            x = self.middle(x)
        if self.kind == "functional":
            return nn.functional.linear(x, self.embed.weight)
        return self.head(x)


def model_of(kind: str) -> Model:
    torch.manual_seed(1)
    return Model(kind)


def batch(seed: int = 3):
    return torch.randint(VOCABULARY, (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(seed))


def losses(model, ids):
    logits = model(ids[:, :-1]).float()
    flat = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return flat.view(ids.shape[0], -1).mean(1)


def products(means):
    width = max(len(mean) for mean in means)
    matrix = torch.tensor([mean or [0.0] * width for mean in means], dtype=torch.float64)
    return matrix @ matrix.T


def alone(model, layers, batches, dtype=torch.float32):
    """Products of the domains' mean gradients and mean squares, of a backward pass for each sequence."""
    gradients = [[] for _ in range(DOMAINS)]
    for ids in batches:
        for row, domain in enumerate(IDS):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = losses(model, ids[row : row + 1]).sum()
            loss.backward()
            weights = [model.get_submodule(name).weight for name in layers]
            flat = [torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in weights]
            gradients[domain].append(torch.cat(flat).double())
    model.zero_grad()
    means = [torch.stack(g).mean(0).tolist() for g in gradients]
    return products(means), [sum(float(g @ g) for g in all_) / len(all_) for all_ in gradients]


def watched(gradients, call, batches):
    for ids in batches:
        gradients.begin(IDS, scale=1 / (SEQUENCES * len(batches)))
        (losses(call, ids).sum() / (SEQUENCES * len(batches))).backward()
    return gradients.finish()


def agree(got, want, rtol=1e-4):
    torch.testing.assert_close(products(got["means"]), want[0], rtol=rtol, atol=1e-9)
    torch.testing.assert_close(torch.tensor(got["sequence_squares"]), torch.tensor(want[1]), rtol=rtol, atol=1e-9)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    # What is right is right without a word.
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


KINDS = ["plain", "inplace", "residual", "twice", "reentrant", "recomputed", "tied linears"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_each_sequence_alone(kind):
    model, batches = model_of(kind), [batch(3), batch(4)]
    layers = ["up"] if kind == "tied linears" else ["up", "down"]
    gradients = hds.torch.DomainGradients(model, layers, domains=DOMAINS)
    got = [watched(gradients, model, batches) for _ in range(2)]
    assert got[0] == got[1]
    gradients.remove()
    agree(got[0], alone(model, layers, batches))


@pytest.mark.parametrize("layer", ["embed", "head"])
@pytest.mark.parametrize("kind", ["plain", "tied"])
def test_embeddings_and_heads_with_their_weight_are_followed(kind, layer):
    model, batches = model_of(kind), [batch(3), batch(4)]
    assert (batches[0] == 0).any(), "padding is not tried"
    gradients = hds.torch.DomainGradients(model, [layer], domains=DOMAINS)
    got = watched(gradients, model, batches)
    gradients.remove()
    agree(got, alone(model, [layer], batches))


def test_a_frozen_layer_has_no_gradient():
    model = model_of("frozen")
    gradients = hds.torch.DomainGradients(model, ["up", "down"], domains=DOMAINS)
    with pytest.warns(RuntimeWarning, match=r"\['up'\]"):
        got = watched(gradients, model, [batch()])
    # Frozen and thawed on the way.
    model.up.weight.requires_grad_(True)
    thawed = watched(gradients, model, [batch()])
    gradients.remove()
    agree(thawed, alone(model, ["up", "down"], [batch()]))
    model.up.weight.requires_grad_(False)
    agree(got, alone(model, ["up", "down"], [batch()]))


def test_a_layer_that_is_not_used_in_a_step_has_a_gradient_of_zero():
    model = model_of("unused")
    gradients = hds.torch.DomainGradients(model, ["up", "down"], domains=DOMAINS)
    with pytest.warns(RuntimeWarning, match=r"\['down'\]"):
        got = watched(gradients, model, [batch()])
    model.kind = "plain"
    both = watched(gradients, model, [batch()])
    assert len(got["means"][0]) == len(both["means"][0])
    gradients.remove()
    agree(both, alone(model, ["up", "down"], [batch()]))
    model.kind = "unused"
    agree(got, alone(model, ["up", "down"], [batch()]))


@pytest.mark.parametrize("kind", ["plain", "inplace", "reentrant", "recomputed", "twice"])
@pytest.mark.parametrize("whole", [False, True])
def test_autocast(kind, whole):
    model = model_of(kind)
    gradients = hds.torch.DomainGradients(model, ["up", "down"], domains=DOMAINS)
    gradients.begin(IDS)
    with torch.autocast("cpu", torch.bfloat16):
        loss = losses(model, batch()).mean()
        if whole:
            loss.backward()
    if not whole:
        loss.backward()
    got = gradients.finish()
    gradients.remove()
    want = alone(model, ["up", "down"], [batch()], torch.bfloat16)
    size = want[0].diagonal().sqrt()
    far = (products(got["means"]) - want[0]).abs() / size.outer(size)
    assert far.max() < 0.02, far
    torch.testing.assert_close(torch.tensor(got["sequence_squares"]), torch.tensor(want[1]), rtol=0.02, atol=0.0)


class InPlaceInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.embed(ids)
        x.add_(self.up(x).float())
        return self.head(x)


def test_an_input_that_is_changed_in_place_afterwards():
    # Under autocast the layer computes with a copy, so that this is allowed.
    torch.manual_seed(1)
    model = InPlaceInput()
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    gradients.begin(IDS)
    with torch.autocast("cpu", torch.bfloat16):
        loss = losses(model, batch()).mean()
    loss.backward()
    got = gradients.finish()
    gradients.remove()
    flat = [[] for _ in range(DOMAINS)]
    for row, domain in enumerate(IDS):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = losses(model, batch()[row : row + 1]).mean()
        loss.backward()
        flat[domain].append(model.up.weight.grad.flatten().double())
    want = products([torch.stack(f).mean(0).tolist() for f in flat])
    torch.testing.assert_close(products(got["means"]), want, rtol=0.05, atol=1e-6)


def test_passes_may_be_interleaved():
    model, batches = model_of("plain"), [batch(3), batch(4)]
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    want = watched(gradients, model, batches)
    waiting = []
    for ids in batches:
        gradients.begin(IDS, scale=1 / (2 * SEQUENCES))
        waiting.append(losses(model, ids).sum() / (2 * SEQUENCES))
    for loss in waiting:
        loss.backward()
    assert gradients.finish() == want
    # Two backward passes of one graph: the gradient is their sum.
    gradients.begin(IDS)
    loss = losses(model, batches[0]).mean()
    (0.25 * loss).backward(retain_graph=True)
    (0.75 * loss).backward()
    got = gradients.finish()
    gradients.begin(IDS)
    losses(model, batches[0]).mean().backward()
    want = gradients.finish()
    torch.testing.assert_close(products(got["means"]), products(want["means"]))
    torch.testing.assert_close(torch.tensor(got["sequence_squares"]), torch.tensor(want["sequence_squares"]))


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_wrong_orders_are_refused(reentrant):
    kind = {None: "plain", False: "recomputed", True: "reentrant"}[reentrant]
    model = model_of(kind)
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)

    def loss(seed=3):
        return losses(model, batch(seed)).mean()

    def begin_once():
        gradients.begin(IDS)
        loss().backward()
        loss(4).backward()

    def begin_late():
        one = loss()
        gradients.begin(IDS)
        one.backward()

    def begin_between():
        gradients.begin(IDS)
        one = loss()
        gradients.begin(IDS)
        one.backward()

    def two_forward_passes():
        gradients.begin(IDS)
        (loss() + loss(4)).backward()

    def finish_early():
        gradients.begin(IDS)
        one = loss()
        with pytest.warns(RuntimeWarning, match="no backward pass"):
            gradients.finish()
        one.backward()

    def reentrant_passes_at_once():
        waiting = []
        for seed in (3, 4):
            gradients.begin(IDS)
            waiting.append(loss(seed))
        waiting[0].backward()

    wrong = [begin_once, begin_late, begin_between, two_forward_passes, finish_early]
    if reentrant:
        wrong = [*wrong[:-1], reentrant_passes_at_once]
        finish_early()  # was told
    for one in wrong:
        with pytest.raises(RuntimeError, match="begin\\(\\) (was called|once)"):
            one()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gradients.finish()
        assert any(watched(gradients, model, [batch()])["means"]), one
    # Passes that are none of ours, before, between and after.
    want = watched(gradients, model, [batch()])
    loss().backward()
    gradients.begin(IDS)
    with torch.no_grad():
        loss()
    loss().backward()
    with torch.no_grad():
        loss()
    assert gradients.finish() == want


def test_what_hooks_do_not_see_is_told():
    model = model_of("functional")
    gradients = hds.torch.DomainGradients(model, ["embed"], domains=DOMAINS)
    with pytest.warns(RuntimeWarning, match="layer embed: what its hooks saw differs"):
        watched(gradients, model, [batch()])
    watched(gradients, model, [batch()])  # once
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    gradients.begin(IDS)
    with pytest.warns(RuntimeWarning, match="the loss holds more"):
        (losses(model, batch()).mean() + model.up.weight.square().sum()).backward()
        gradients.finish()


def test_one_sequence_that_overflows_spoils_its_domain_alone():
    model = model_of("plain")
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    want = watched(gradients, model, [batch()])
    gradients.begin(IDS)
    scales = torch.tensor([1.0, 1.0, float("inf"), 1.0, 1.0])
    (losses(model, batch()) * scales).mean().backward()
    got = gradients.finish()
    assert got["means"][1:] == want["means"][1:] and got["sequence_squares"][1:] == want["sequence_squares"][1:]
    assert got["means"][0][0] != got["means"][0][0], "not a number"


def test_copies_of_a_model_have_no_hooks():
    model = model_of("plain")
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    want = watched(gradients, model, [batch()])
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False)]
    copies.append(torch.optim.swa_utils.AveragedModel(model).module)
    for other in copies:
        gradients.begin(IDS)
        losses(other, batch(9)).mean().backward()
        losses(model, batch()).mean().backward()
        losses(other, batch(8)).mean().backward()
        assert gradients.finish() == want
        # A copy may have hooks of its own.
        own = hds.torch.DomainGradients(other, ["up"], domains=DOMAINS)
        assert watched(own, other, [batch()]) == want
        assert watched(gradients, model, [batch()]) == want
    for spoil in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="make a new DomainGradients"):
            spoil(gradients)
    gradients.remove()
    losses(model, batch()).mean().backward()
    with pytest.raises(RuntimeError, match="taken away"):
        gradients.begin(IDS)


def test_layers_that_cannot_be_watched_are_named():
    class Kernel(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.kernel = weight

    model = model_of("tied linears")
    for layers, why in [
        (["up", "up"], "one weight"),
        (["up", "down"], "layers up and down have one weight"),
        (["act"], "layer act has no weight matrix"),
        ([], "no layer given"),
    ]:
        with pytest.raises(ValueError, match=why):
            hds.torch.DomainGradients(model, layers, domains=DOMAINS)
    model.other = Kernel(model.up.weight)
    with pytest.raises(ValueError, match="shares its weight with other.kernel"):
        hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    model.bag = nn.EmbeddingBag(4, 4)
    with pytest.raises(ValueError, match="layer bag"):
        hds.torch.DomainGradients(model, ["bag"], domains=DOMAINS)
    for wrong in ({"layers": "up"}, {"layers": [1]}, {"domains": 1.5}, {"domains": True}, {"rank": "a"}, {"model": 3}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            hds.torch.DomainGradients(**{"model": model, "layers": ["head"], "domains": 2, **wrong})


BACKENDS = ["aot_eager", "inductor"]


def compiled(model, backend, fullgraph):
    if backend == "inductor" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler for Inductor")
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=fullgraph)


@pytest.mark.parametrize("kind", ["plain", "inplace", "residual", "recomputed", "tied"])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_models(backend, fullgraph, kind):
    if backend == "inductor" and kind not in ("inplace", "tied"):
        pytest.skip("takes long; aot_eager tries this")
    model, batches = model_of(kind), [batch(3), batch(4)]
    layers = ["head", "down"] if kind == "tied" else ["up", "down"]
    gradients = hds.torch.DomainGradients(model, layers, domains=DOMAINS)
    call = compiled(model, backend, fullgraph)
    got = [watched(gradients, call, batches) for _ in range(3)]
    with torch.no_grad():
        losses(call, batches[0])
    losses(call, batches[0]).mean().backward()
    got.append(watched(gradients, call, batches))
    gradients.remove()
    losses(call, batches[0]).mean().backward()
    want = alone(model_of(kind), layers, batches)
    for one in got:
        agree(one, want)


def test_compiled_passes_that_cannot_be_followed_are_refused():
    model = model_of("twice")
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    call = compiled(model, "aot_eager", True)
    gradients.begin(IDS)
    with pytest.raises(RuntimeError, match="ran twice in one pass of a compiled model"):
        losses(call, batch())
    model = model_of("plain")
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    call = compiled(model, "aot_eager", True)
    gradients.begin(IDS)
    losses(call, batch()).mean().backward()
    with pytest.raises(RuntimeError, match="once for each"):
        losses(call, batch())
    # Compiled before there were hooks.
    model = model_of("plain")
    call = compiled(model, "aot_eager", True)
    losses(call, batch()).mean().backward()
    gradients = hds.torch.DomainGradients(model, ["up"], domains=DOMAINS)
    with pytest.warns(RuntimeWarning, match="compiled before"):
        watched(gradients, call, [batch()])


def test_a_compiled_model_is_watched_by_its_own_names_too():
    model = model_of("plain")
    call = compiled(model, "aot_eager", True)
    gradients = hds.torch.DomainGradients(call, ["_orig_mod.up"], domains=DOMAINS)
    got = watched(gradients, call, [batch()])
    gradients.remove()
    agree(got, alone(model_of("plain"), ["up"], [batch()]))
