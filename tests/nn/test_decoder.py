"""Decoders of pairs, and the network around one."""

import pytest
import torch

from subtree_attention import STAGNN
from subtree_attention.nn import LinkNetwork, PairDecoder
from subtree_attention.nn.decoder import DECODERS, DotDecoder

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
PAIRS = torch.tensor([[0, 1, 2, 4, 4], [1, 3, 0, 2, 4]])


def network(decoder: str | PairDecoder = "mlp") -> LinkNetwork:
    return LinkNetwork(STAGNN(4, 8, 8, hops=2, heads=2), 8, decoder)


@pytest.mark.parametrize("name", DECODERS)
def test_a_pair_and_its_reverse(name: str) -> None:
    decoder, z = DECODERS[name](8), torch.randn(5, 8)
    assert decoder(z, PAIRS).shape == (5,)
    same = torch.equal(decoder(z, PAIRS), decoder(z, PAIRS.flip(0)))
    assert same == (name != "directed")


def test_the_inner_product() -> None:
    decoder, z = DotDecoder(8), torch.randn(5, 8)
    torch.testing.assert_close(decoder(z, PAIRS), (z @ z.T)[PAIRS[0], PAIRS[1]])


def test_two_logits_of_each_pair() -> None:
    model, x = network().eval(), torch.randn(5, 4)
    logits = model(x, EDGES, PAIRS)
    assert logits.shape == (5, 2)
    assert logits[:, 0].eq(0).all()
    assert torch.equal(logits[:, 1], model.decoder(model.encoder(x, EDGES), PAIRS))


def test_fresh_pairs_are_drawn_in_training_only() -> None:
    model, x = network(), torch.randn(5, 4)
    fresh = torch.tensor([False, False, True, True, True])
    first, second = (model(x, EDGES, PAIRS, fresh)[:, 1] for _ in range(2))
    assert torch.equal(first[:2], second[:2])
    assert not torch.equal(first[2:], second[2:])
    model.eval()
    assert torch.equal(model(x, EDGES, PAIRS, fresh), model(x, EDGES, PAIRS))


def test_a_decoder_of_ones_own() -> None:
    class Distance(PairDecoder):
        def score(self, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
            return 1 - (start - end).norm(dim=-1)

    model = network(Distance(8))
    assert model(torch.randn(5, 4), EDGES, PAIRS)[4, 1] == 1  # a node and itself
    with pytest.raises(ValueError, match=r"made for width=4, but the layer has width=8"):
        network(Distance(4))
    with pytest.raises(ValueError, match="unknown decoder 'dto'"):
        network("dto")
