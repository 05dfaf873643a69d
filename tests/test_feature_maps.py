"""Feature maps: non-negative, and the random ones estimate their kernels."""

import math

import pytest
import torch
from torch import nn

from subtree_attention import feature_maps
from subtree_attention.feature_maps import FEATURE_MAPS, RBFFeatures, SoftmaxFeatures
from tests.ops.cases import shifted_square


@pytest.mark.parametrize("name", [name for name in FEATURE_MAPS if name != "softmax"])
def test_every_named_map_is_non_negative_and_keeps_leading_shape(name):
    x = 3 * torch.randn(50, 2, 6)
    features = feature_maps.build(name, 6)(x)
    assert features.shape[:-1] == x.shape[:-1]
    assert (features >= 0).all()


def test_the_exact_softmax_is_a_similarity_and_no_map():
    assert feature_maps.build("softmax", 4) is feature_maps.build(feature_maps.softmax, 4)
    assert feature_maps.is_softmax("softmax")
    assert feature_maps.is_softmax(feature_maps.softmax)
    assert not feature_maps.is_softmax("elu")
    with pytest.raises(TypeError, match="no finite feature map: SoftmaxFeatures"):
        feature_maps.softmax(torch.ones(1))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("elu", lambda x: torch.where(x > 0, x + 1, x.exp())),
        ("relu", lambda x: x.clamp(min=0)),
        ("softplus", lambda x: torch.log1p(x.exp())),
    ],
)
def test_plain_maps_equal_their_formula(name, formula):
    x = torch.linspace(-5, 5, 41, dtype=torch.float64)
    # The rounding of 1 + exp(-5) in float64, with slack for exp itself.
    torch.testing.assert_close(feature_maps.build(name, 1)(x), formula(x), rtol=0, atol=1e-15 * 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("recorded", [False, True])
def test_elu_is_exact_to_rounding_with_its_gradient(dtype, recorded):
    """elu(x) + 1 itself is 20 % off at -16 in float32, and 0 from -18 on."""
    x = torch.linspace(-100, 100, 20_001, dtype=dtype).requires_grad_(recorded)
    exact = x.detach().double()
    wanted = torch.where(exact > 0, exact + 1, exact.exp())
    rounding = torch.finfo(dtype)
    # One rounding; exp may be off by another. What is smaller than a normal number has fewer bits.
    close = {"rtol": 2 * rounding.eps, "atol": rounding.smallest_normal * rounding.eps}
    phi = feature_maps.elu(x)
    torch.testing.assert_close(phi.double(), wanted, **close)
    if recorded:
        (grad,) = torch.autograd.grad(phi.sum(), x)
        torch.testing.assert_close(grad.double(), wanted.clamp(max=1), **close)


@pytest.mark.parametrize("recorded", [False, True])
def test_elu_of_what_is_no_number_is_none(recorded):
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0]).requires_grad_(recorded)
    wanted = torch.tensor([math.nan, math.inf, 0.0, 1.0, 1.0])
    torch.testing.assert_close(feature_maps.elu(x).detach(), wanted, equal_nan=True)


def softmax_kernel(query, key):
    return torch.exp(query @ key.t() / math.sqrt(query.size(-1)))


def rbf_kernel(query, key):
    return torch.exp(-torch.cdist(query, key).square() / (2 * math.sqrt(query.size(-1))))


@pytest.mark.parametrize(
    ("features", "kernel"), [(SoftmaxFeatures, softmax_kernel), (RBFFeatures, rbf_kernel)]
)
def test_random_features_estimate_their_kernel(features, kernel):
    query, key = torch.randn(2, 20, 5).mul(0.7).unbind()
    exact = kernel(query, key)

    def mean_error(num_features: int) -> float:
        errors = []
        for seed in range(8):
            torch.manual_seed(seed)
            phi = features(5, num_features)
            errors.append((phi(query) @ phi(key).t() - exact).abs().mean() / exact.mean())
        return float(torch.stack(errors).mean())

    few, many = mean_error(64), mean_error(4096)
    assert many < few / 4  # like 1/sqrt(m): an eighth, half of which is asked for
    assert many < 0.05  # and to the right kernel


@pytest.mark.parametrize("features", [SoftmaxFeatures, RBFFeatures])
def test_projections_are_saved_and_redrawn(features):
    first, second = features(4, 10), features(4, 10)
    x = torch.randn(3, 4)
    assert not torch.equal(first(x), second(x))
    assert first.state_dict().keys() == {"projection"}
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    second.reset_parameters()
    assert not torch.equal(first(x), second(x))


def test_directions_are_orthogonal_within_blocks_of_as_many_as_channels():
    projection = SoftmaxFeatures(6, 15).projection
    for block in projection.split(6):
        gram = block @ block.t()
        off_diagonal = gram - torch.diag(gram.diagonal())
        # Rounding of float32 dot products of six numbers of norm sqrt(6).
        assert off_diagonal.abs().max() < 1e-5


def test_random_features_refuse_another_width():
    with pytest.raises(ValueError, match="made for 4 channels, got 5"):
        SoftmaxFeatures(4)(torch.randn(2, 5))


@pytest.mark.parametrize(
    ("arguments", "message"), [((0,), "channels must be"), ((4, 0), "num_features must be")]
)
def test_random_features_refuse_sizes_below_one(arguments, message):
    with pytest.raises(ValueError, match=message):
        RBFFeatures(*arguments)


def test_a_users_map_is_kept_as_it_is():
    assert feature_maps.build(shifted_square, 3) is shifted_square


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_users_module_is_tried_in_its_own_dtype(dtype):
    module = nn.Sequential(nn.Linear(3, 5), nn.Softplus()).to(dtype)
    assert feature_maps.build(module, 3) is module


@pytest.mark.parametrize("phi", [torch.sin, nn.Linear(3, 200), lambda x: x])
def test_a_negative_map_is_refused_with_what_it_gave(phi):
    with pytest.raises(ValueError, match=r"must not be negative .* this one gave -\d"):
        feature_maps.build(phi, 3)


def test_a_negative_value_is_named_also_while_gradients_are_recorded():
    with pytest.raises(ValueError, match="this one gave -2"):
        feature_maps.check_non_negative(torch.tensor([1.0, -2.0], requires_grad=True))


@pytest.mark.parametrize(
    ("phi", "gave"),
    [
        (lambda x: x.sum((1, 2)), r"\[8\]"),
        (lambda x: x[..., :0], r"\[8, 1, 0\]"),
        (lambda x: x.sum(), r"\[\]"),
        (lambda x: None, "NoneType"),
    ],
)
def test_a_map_of_the_wrong_shape_is_refused(phi, gave):
    asked = r"takes \[8, 1, 3\] to \[..., m\] with m of at least 1, this one gave "
    with pytest.raises(ValueError, match=asked + gave):
        feature_maps.build(phi, 3)


def test_unknown_names_come_with_a_suggestion():
    with pytest.raises(ValueError, match=r"unknown feature map 'elo'\. Did you mean 'elu'"):
        feature_maps.build("elo", 3)


@pytest.mark.parametrize("name", feature_maps.RANDOM)
def test_a_random_name_is_refused_in_a_functional_call(name):
    with pytest.raises(ValueError, match=f"'{name}' draws random projections"):
        feature_maps.fixed(name)


def test_what_is_no_map_is_refused():
    with pytest.raises(TypeError, match=r"must be a name .* or a function of a tensor, got 3"):
        feature_maps.build(3, 3)
