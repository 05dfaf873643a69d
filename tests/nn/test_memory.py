"""A budget of memory: the same numbers whatever the budget, what is planned, what is refused."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subtree_attention import STAGNN, Graph, STAConv, STAFormer
from subtree_attention.nn import Linear, memory, set_memory
from subtree_attention.nn.memory import Call, Way
from subtree_attention.nn.models import keeping_to
from subtree_attention.ops import backends, walk
from tests.ops.cases import FLOAT64_ERROR, random_edges

CPU = torch.device("cpu")
NODES = 40
BACKENDS = [name for name in ("torch", "numba") if name in backends.BACKENDS]
WAYS = [
    Way(4, False, 2_000, walk.READOUTS),
    Way(4, False, 2_000, walk.NOTHING),
    Way(4, False, 10**9, walk.NOTHING),
    Way(4, True, 10**9, walk.STATES_TOO),
    Way(3, True, 2_000, walk.READOUTS),
    Way(1, True, 2_000, walk.NOTHING),
]


def graph(**how: Any) -> Graph:
    return random_edges(NODES, 160, weighted=True).graph(**how)


def layer(**options: Any) -> STAConv:
    torch.manual_seed(0)
    return STAConv(6, 8, hops=3, heads=4, value_channels=3, **options).double()


def grads_of(model: nn.Module, x: Tensor, graph: Graph) -> list[Tensor]:
    """The output, and the gradients of x and of every parameter."""
    x = x.clone().requires_grad_()
    out = model(x, graph)
    wanted = [x, *model.parameters()]
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
    return [out, *torch.autograd.grad((out * noise).sum(), wanted)]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=FLOAT64_ERROR, atol=FLOAT64_ERROR)


# ------------------------------------------------------------------------------- the same numbers


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_gives_the_same_numbers(way: Way, backend: str) -> None:
    for options in ({}, {"readout": "power", "gate": "plain"}, {"feature_map": "unit"}):
        model, x = layer(backend=backend, **options), torch.randn(NODES, 6).double()
        wanted = grads_of(model, x, graph())
        model.way = way
        assert_same(grads_of(model, x, graph()), wanted)
        with torch.no_grad():
            assert_same([model(x, graph())], wanted[:1])


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_levels_and_global_attention_do_not_come_apart(way: Way) -> None:
    for options in ({"aggregation": "attention"}, {"global_attention": True}):
        model, x = layer(**options), torch.randn(NODES, 6).double()
        assert not memory._comes_apart(model)
        wanted = grads_of(model, x, graph())
        model.way = way
        assert_same(grads_of(model, x, graph()), wanted)


def test_a_way_is_the_same_under_a_compiler() -> None:
    """Where operators are watched, custom ops stand for the walk."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore
            return function(*args, **(kwargs or {}))

    model, x = layer(), torch.randn(NODES, 6).double()
    wanted = grads_of(model, x, graph())
    model.way = Way(4, False, 2_000, walk.NOTHING)
    with Watching():
        assert_same(grads_of(model, x, graph()), wanted)


def models() -> list[Any]:
    torch.manual_seed(0)
    deep = {"layers": 2, "dropout": 0.2, "input_dropout": 0.1}
    return [
        STAGNN(6, 8, 5, hops=3, heads=4, dropout=0.5).double(),
        STAFormer(6, 8, 5, transition="rw", self_loops=False, **deep).double(),
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_models_under_a_budget_learn_the_same(number: int) -> None:
    """Dropout too: the random numbers are those of the whole layer."""
    model, x = models()[number], torch.randn(NODES, 6).double()
    torch.manual_seed(2)
    wanted = grads_of(model, x, graph())
    for way in WAYS[1], WAYS[5]:
        for module in model.modules():
            if isinstance(module, STAConv):
                module.way = way._replace(heads=min(way.heads, module.heads))
        torch.manual_seed(2)
        assert_same(grads_of(model, x, graph()), wanted)


# --------------------------------------------------------------------------------------- the plan


def call(nodes: int = 100_000, training: bool = True) -> Call:
    return Call(nodes, 10 * nodes, CPU, torch.float32, training, True)


def test_less_memory_takes_more_time_and_never_more_than_there_is() -> None:
    model = STAGNN(64, 64, 40, dropout=0.5)
    for training in (True, False):
        at = call(training=training)
        full = memory.make(model, at, 10**11)
        assert (full.times, full.ways) == (1.0, (Way(4),))
        times = []
        for share in (1, 2, 3, 4):
            plan = memory.make(model, at, full.bytes // share)
            assert plan.bytes <= plan.budget == full.bytes // share
            times.append(plan.times)
        assert times == sorted(times)
        assert times[-1] < 2


def test_some_heads_at_a_time_are_computed_from_the_input_on() -> None:
    model = STAGNN(64, 64, 40)
    for training in (True, False):
        ways = list(memory._ways(model.conv, call(training=training)))
        assert all(way.again for way in ways if way.heads < 4)
        assert training or not any(way.again for way in ways if way.heads == 4)


def test_what_is_planned_is_said() -> None:
    model = STAGNN(64, 64, 40)
    whole, parts, nothing, again = (
        str(memory.make(model, call(), size * 10**6)) for size in (9000, 1200, 700, 600)
    )
    assert whole.endswith("at most; all at once, as without a budget")
    assert "states in 8 parts" in parts
    assert "nothing is kept of a walk" in nothing
    assert "heads 1 at a time, layers are computed again in the backward pass" in again
    assert "times the time" in again


def test_a_layer_plans_at_its_call_and_says_what() -> None:
    model, x = layer(memory="300MB"), torch.randn(NODES, 6).double()
    assert model.way is None
    plan = model.memory_plan(x, graph())
    assert plan.budget == 300_000_000
    model(x, graph())
    assert model.way == plan.ways[0]
    with pytest.raises(ValueError, match="there is no budget to plan for: give memory="):
        layer().memory_plan(x, graph())


def test_free_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.machine, "memory", lambda _: memory.machine.Memory(10**9, "here"))
    assert memory.make(STAGNN(64, 64, 40), call(10), "free").budget == 8 * 10**8
    monkeypatch.setattr(
        memory.machine, "memory", lambda _: memory.machine.Memory(None, "(who knows)")
    )
    with pytest.raises(ValueError, match=r"memory='free': \(who knows\): give a size"):
        memory.make(STAGNN(64, 64, 40), call(10), "free")


def test_too_little_is_refused_and_the_least_is_named() -> None:
    model = STAGNN(64, 64, 40)
    with pytest.raises(ValueError, match="is the least that would") as refused:
        memory.make(model, call(), 10**6)
    least = int(str(refused.value).split("(")[1].split()[0])
    assert memory.make(model, call(), least).bytes == least
    with pytest.raises(ValueError, match="is the least that would; fewer channels or heads"):
        memory.make(model, call(), least - 1)
    there = call()._replace(device=torch.device("cuda"))
    model.conv.backend = "torch"
    with pytest.raises(ValueError, match=r"states='bfloat16' .* take less"):
        memory.make(model, there, 10**6)


def test_a_model_without_sta_layers_is_counted_and_has_no_budget() -> None:
    model = Linear(64, 8)
    assert memory.count(model, call()) > 2 * 4 * 8 * call().nodes
    with pytest.raises(ValueError, match="memory is for STA layers, and Linear has none"):
        memory.make(model, call(), "1GB")


def test_a_model_may_be_given_a_budget_later() -> None:
    for model in models():
        x = torch.randn(NODES, 6).double()
        set_memory(model, "1GB")
        model(x, graph())
        assert str(model.memory_plan(x, graph())).startswith("memory 954 MiB: ")


@pytest.mark.parametrize(
    ("given", "bytes"),
    [("8GB", 8 * 10**9), ("8GiB", 2**33), ("512 mb", 512 * 10**6), ("1.5KiB", 1536), ("77", 77)],
)
def test_sizes(given: str, bytes: int) -> None:
    assert layer(memory=given).budget.memory == bytes  # type: ignore[union-attr]
    assert layer(memory=bytes).budget.memory == bytes  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"memory": "lots"}, ValueError, "memory must be a size such as '8GB' or '512MiB'"),
        ({"memory": "8XB"}, ValueError, "memory must be a size such as '8GB'"),
        ({"memory": "0GB"}, ValueError, "memory must be at least 1, got 0"),
        ({"memory": -5}, ValueError, "memory must be at least 1, got -5"),
        ({"memory": 1.5}, TypeError, "memory must be an integer, got 1.5"),
        ({"memory": "1GB", "feature_map": "softmax"}, ValueError, "cannot bound the exact softmax"),
        ({"memory": "1GB", "edge_dim": 3}, ValueError, "does not count gates of edges"),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        layer(**options)


def test_what_is_compiled_is_not_planned() -> None:
    model, x = layer(memory="1GB"), torch.randn(NODES, 6).double()
    with pytest.raises(ValueError, match="bound states by state_bytes instead"):
        torch.func.jvp(lambda some: model(some, graph()), (x,), (x,))


@pytest.mark.parametrize("bias", [True, False])
def test_without_gradients_heads_are_mixed_some_at_a_time(bias):
    graph, x = random_edges(40, 160).graph(), torch.randn(40, 6)
    layer = STAConv(6, 5, hops=2, heads=4, value_channels=3, bias=bias).eval()
    with torch.no_grad():
        wanted = layer(x, graph)
        for heads in (1, 2, 3):
            layer.way = Way(heads, again=True)
            torch.testing.assert_close(layer(x, graph), wanted)
    assert layer.head_mix.comes_apart
    layer.head_mix.register_forward_hook(lambda *given: None)
    assert not layer.head_mix.comes_apart  # whoever listens is to hear of it


def test_an_attend_or_project_of_somebodys_own_is_called_whatever_the_budget() -> None:
    class Nothing(STAConv):
        def attend(self, *given: Any, **more: Any) -> Tensor:
            return 0 * super().attend(*given, **more)

    torch.manual_seed(0)
    model, given = Nothing(64, 64, hops=3, heads=4, bias=False), call()
    with pytest.raises(ValueError, match=r"is the least that would") as refused:
        memory.make(model, given, "100MB")
    least = int(re.findall(r"\((\d+) bytes\)", str(refused.value))[0])
    assert not memory.make(model, given, least).ways[0].again
    assert memory.make(STAConv(64, 64, hops=3, heads=4), given, least - 10**6).ways[0].again


def test_low_precision_counts_as_what_the_operator_computes_in() -> None:
    x, model = torch.randn(NODES, 6), STAConv(6, 8, hops=3, heads=4)
    wanted = Call.of(x, graph(), model)
    assert Call.of(x.bfloat16(), graph(), model.bfloat16()) == wanted
    model.requires_grad_(False)
    assert not Call.of(x, graph(), model).training
    assert Call.of(x.requires_grad_(), graph(), model).training


def test_global_attention_within_graphs_is_counted() -> None:
    model = STAConv(64, 64, hops=3, heads=4, global_attention=True)
    states = 100_000 * 4 * 16 * 17 * 4  # nodes, heads, d, c + 1, bytes
    for training in (True, False):
        given = call(training=training)
        more = memory.count(model, given._replace(batched=True)) - memory.count(model, given)
        assert more >= 2 * states


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"return_attention_weights": True}, "attention weights along edges"),
        ({"edge_weight": torch.ones(30, requires_grad=True)}, "weights of edges that learn"),
    ],
)
def test_what_is_not_counted_is_refused(more: dict[str, Any], words: str) -> None:
    model = STAConv(6, 8, hops=2, heads=2, memory="1GB")
    with pytest.raises(ValueError, match=f"memory= does not count {words}"):
        model(torch.randn(9, 6), torch.randint(9, (2, 30)), **more)


def test_a_budget_for_a_while_leaves_all_as_it_was() -> None:
    model, bounded = STAGNN(6, 8, 3, memory="1GB"), memory.POOL.bounded
    own = model.budget
    with keeping_to(model, "2GB"):
        assert model.budget is not own
        model(torch.randn(NODES, 6), graph())
        assert memory.POOL.bounded is not None
    assert model.budget is own
    assert memory.POOL.bounded == bounded


def test_a_layer_takes_its_size_from_x_before_it_plans() -> None:
    x, walked = torch.randn(NODES, 6), graph()
    plans = [STAConv(size, 8, memory="1GB").memory_plan(x, walked) for size in (-1, 6)]
    assert plans[0] == plans[1]
    with pytest.raises(ValueError, match="x has no columns"):
        STAConv(-1, 8)(x[:, :0], walked)


def test_without_hops_there_is_a_plan_too() -> None:
    for model in (STAConv(6, 8, hops=0, memory="1GB"), STAGNN(6, 8, 3, hops=0, memory="1GB")):
        assert model(torch.randn(NODES, 6), graph()).isfinite().all()
