"""Sketches of domains' gradients against gradients of each sequence by itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import hds.torch  # noqa: E402

DOMAINS = 4


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 12)
        self.up = torch.nn.Linear(12, 24)
        self.down = torch.nn.Linear(24, 12)
        self.head = torch.nn.Linear(12, 50)

    def forward(self, ids):
        return self.head(self.down(torch.tanh(self.up(self.embed(ids)))))


def losses(model, ids):
    logits = model(ids[:, :-1])
    flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return flat.view(ids.shape[0], -1).mean(1)


def micro_batches():
    generator = torch.Generator().manual_seed(3)
    for domains in ([0, 1, 0, 3], [3, 3, 1]):
        yield torch.randint(50, (len(domains), 17), generator=generator), domains


def products(rows):
    width = max(len(row) for row in rows)
    matrix = torch.tensor([row or [0.0] * width for row in rows], dtype=torch.float64)
    return matrix @ matrix.T


@pytest.mark.parametrize("checkpointing", [False, True])
def test_full_rank_sketches_are_exact(checkpointing):
    torch.manual_seed(0)
    model = Model()
    layers = ["up", "down"]
    gradients = hds.torch.DomainGradients(model, layers, domains=DOMAINS, rank=64)
    total = sum(len(domains) for _, domains in micro_batches())
    for ids, domains in micro_batches():
        gradients.begin(domains, scale=1 / total)
        if checkpointing:
            from torch.utils.checkpoint import checkpoint

            value = checkpoint(lambda x: losses(model, x), ids, use_reentrant=False)
        else:
            value = losses(model, ids)
        (value.sum() / total).backward()
    got = gradients.finish()
    gradients.remove()

    alone = [[] for _ in range(DOMAINS)]
    for ids, domains in micro_batches():
        for row, domain in enumerate(domains):
            model.zero_grad()
            losses(model, ids[row : row + 1]).sum().backward()
            flat = [getattr(model, name).weight.grad.flatten().double() for name in layers]
            alone[domain].append(torch.cat(flat))
    means = [torch.stack(g).mean(0).tolist() if g else [] for g in alone]
    assert got["means"][2] == []
    torch.testing.assert_close(products(got["means"]), products(means), rtol=1e-4, atol=1e-9)
    squares = [sum(float(g @ g) for g in all_) / len(all_) if all_ else 0.0 for all_ in alone]
    torch.testing.assert_close(torch.tensor(got["sequence_squares"]), torch.tensor(squares), rtol=1e-4, atol=1e-9)


def test_low_rank_sketches_are_right_on_average():
    torch.manual_seed(0)
    model = Model()
    ids, domains = next(iter(micro_batches()))

    def sketch(rank, seed):
        gradients = hds.torch.DomainGradients(model, ["down"], domains=DOMAINS, rank=rank, seed=seed)
        gradients.begin(domains)
        losses(model, ids).mean().backward()
        got = products(gradients.finish()["means"])
        gradients.remove()
        return got

    exact = sketch(64, 0)
    all_ = torch.stack([sketch(6, seed) for seed in range(300)])
    error = all_.std(0) / 300**0.5
    assert ((all_.mean(0) - exact).abs() <= 4 * error + 1e-12).all()
    assert error[0, 0] < 0.1 * exact[0, 0], "the test has no power"


def test_passes_that_it_cannot_follow_are_refused():
    model = Model()
    ids, domains = next(iter(micro_batches()))
    gradients = hds.torch.DomainGradients(model, ["down"], domains=DOMAINS)
    gradients.begin(domains)
    loss = losses(model, ids).mean()
    with pytest.raises(RuntimeError, match="layer down has run in two forward passes"):
        losses(model, ids)
    gradients.begin(domains)
    with pytest.raises(RuntimeError, match="between a forward and a backward pass"):
        loss.backward()
    # After such a mistake the next step is as it should be.
    gradients.finish()
    gradients.begin(domains)
    with torch.no_grad():
        losses(model, ids)
    losses(model, ids).mean().backward()
    assert any(gradients.finish()["means"])


def test_mistakes_are_named():
    model = Model()
    with pytest.raises(ValueError, match="no layer \\['middle'\\]"):
        hds.torch.DomainGradients(model, ["middle"], domains=2)
    gradients = hds.torch.DomainGradients(model, ["down"], domains=2)
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        gradients.begin([0, 2])
    gradients.begin([0, 1, 1])
    with pytest.raises(ValueError, match="expected 3 sequences"):
        losses(model, torch.zeros(2, 5, dtype=torch.long)).mean().backward()
    assert gradients.change_norms() == [0.0]
    before = gradients.norms()
    assert gradients.change_norms() == [0.0] and before[0] > 0
    with torch.no_grad():
        model.down.weight[0, 0] += 2.0
    assert abs(gradients.change_norms()[0] - 2.0) < 1e-6
    for wrong, why in [
        (torch.tensor([0.9, 1.9]), "must be whole numbers"),
        (torch.tensor([True, False]), "must be whole numbers"),
    ]:
        with pytest.raises(ValueError, match=why):
            gradients.begin(wrong)
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="scale is"):
            gradients.begin([0, 1], scale=scale)
    for name in ("domains", "rank"):
        with pytest.raises(ValueError, match=f"{name}: 0, must be at least 1"):
            hds.torch.DomainGradients(model, ["down"], **{"domains": 2, "rank": 4, name: 0})


def test_sequences_without_a_backward_pass_do_not_count():
    torch.manual_seed(0)
    model = Model()
    ids, domains = next(iter(micro_batches()))
    gradients = hds.torch.DomainGradients(model, ["down"], domains=DOMAINS)

    def step(skipped):
        if skipped:
            gradients.begin(domains)
        gradients.begin(domains)
        losses(model, ids).mean().backward()
        return gradients.finish()

    once, twice = step(False), step(True)
    assert once == twice


def test_a_step_without_gradients_is_told():
    model = Model()
    ids, domains = next(iter(micro_batches()))
    gradients = hds.torch.DomainGradients(model, ["up", "down"], domains=DOMAINS)
    losses(model, ids).mean().backward()
    with pytest.warns(RuntimeWarning, match="begin\\(\\) was not called"):
        gradients.finish()
    gradients.begin(domains)
    with torch.no_grad():
        losses(model, ids)
    with pytest.warns(RuntimeWarning, match="had no backward pass"):
        assert not any(gradients.finish()["means"])
    for frozen in (model.embed, model.up):
        frozen.requires_grad_(False)
    gradients.begin(domains)
    losses(model, ids).mean().backward()
    with pytest.warns(RuntimeWarning, match="\\['up'\\]"):
        assert any(gradients.finish()["means"])


def test_a_layer_called_by_keyword_is_watched():
    torch.manual_seed(0)
    model = Model()
    ids, domains = next(iter(micro_batches()))
    gradients = hds.torch.DomainGradients(model, ["down"], domains=DOMAINS)
    gradients.begin(domains)
    losses(model, ids).mean().backward()
    want = gradients.finish()
    model.forward = lambda ids: model.head(model.down(input=torch.tanh(model.up(model.embed(ids)))))
    gradients.begin(domains)
    losses(model, ids).mean().backward()
    assert gradients.finish() == want
