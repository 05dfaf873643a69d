"""What is particular to the Numba backend: what it keeps, its memory, its threads."""

import gc
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from subtree_attention import subtree_attention
from subtree_attention.ops import machine
from subtree_attention.ops.kernels import cpu
from tests.ops.cases import FLOAT64_ERROR, assert_all_close, random_edges, random_inputs

pytestmark = pytest.mark.skipif(cpu._numba_problem() is not None, reason="needs Numba")

NODES, HOPS = 150, 3


def outcome(
    channels: tuple[int, int], dtype: torch.dtype, weighted: bool = True
) -> list[torch.Tensor]:
    """Output and gradients on a graph with rows of every length, hubs and isolated nodes."""
    graph = random_edges(NODES, 900, weighted=True).graph()
    inputs = random_inputs(NODES, 3, HOPS if weighted else None, channels).to(dtype)
    weights = inputs.hop_weights
    query, key, value = inputs.all()[:3]
    out = subtree_attention(query, key, value, graph, HOPS, weights, backend="numba")
    grad = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
    return [out, *torch.autograd.grad(out, inputs.all(), grad)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("channels", [(1, 1), (5, 3), (8, 4), (16, 7), (20, 2)])
def test_walking_again_equals_keeping_the_states(channels, weighted, monkeypatch):
    kept = outcome(channels, torch.float64, weighted)
    monkeypatch.setattr(cpu, "KEPT_BYTES", 0)
    assert_all_close(outcome(channels, torch.float64, weighted), kept, FLOAT64_ERROR)


@pytest.mark.parametrize("limit", [0, cpu.KEPT_BYTES])
@pytest.mark.parametrize("channels", [(5, 3), (8, 4), (16, 7)])
def test_the_same_bits_with_any_number_of_threads(channels, limit, monkeypatch):
    monkeypatch.setattr(cpu, "KEPT_BYTES", limit)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(outcome(channels, torch.float32))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))


def test_the_same_bits_wherever_the_memory_lies():
    """A sum beside a store was vectorised or not by the distance of their arrays."""
    first, elsewhere = outcome((8, 9), torch.float64), []
    for size in range(120):
        elsewhere.append(torch.empty(8 * size + 1))  # so that the next call gets other addresses
        assert all(map(torch.equal, outcome((8, 9), torch.float64), first))


def test_what_is_kept_survives_other_calls_and_a_second_backward():
    graph = random_edges(NODES, 900).graph()
    inputs = random_inputs(NODES, 2, HOPS, (8, 4))

    def run() -> torch.Tensor:
        return subtree_attention(*inputs.all()[:3], graph, HOPS, inputs.hop_weights)

    first = run()
    expected = torch.autograd.grad(first.sum(), inputs.all(), retain_graph=True)
    run().sum().backward()  # of the same shapes: takes memory that is free, and gives it back
    again = torch.autograd.grad(first.sum(), inputs.all())
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))


def test_memory_is_used_again_and_let_go_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(cpu, "POOL_BYTES", 1000)
    monkeypatch.setattr(cpu, "POOL_SHARE", 0)
    pool = cpu.Pool()
    first = pool.take((10, 20), torch.empty(0).numpy().dtype)
    part, address = first[3], first.data_ptr()
    assert address % cpu.ALIGNMENT == 0
    del first
    gc.collect()
    assert pool.free_bytes() == 0  # a slice still holds it
    del part
    assert pool.free_bytes() == 800
    assert pool.take((200,), torch.empty(0).numpy().dtype).data_ptr() == address
    pool.take((60,), torch.empty(0).numpy().dtype)
    assert pool.free_bytes() == 240  # 1040 bytes would be too many
    pool.take((300,), torch.empty(0).numpy().dtype)
    assert pool.free_bytes() == 240  # 1200 bytes alone would be


def test_of_memory_that_is_held_what_was_not_used_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(cpu, "POOL_BYTES", 1000)
    monkeypatch.setattr(cpu, "POOL_SHARE", 0)
    pool, byte = cpu.Pool(), torch.empty(0, dtype=torch.uint8).numpy().dtype
    for size in (300, 200, 400, 300, 350):  # the 300 are used again, so the 200 go, then the 400
        pool.take((size,), byte)
    assert pool.free_bytes() == 300 + 350


def test_it_holds_as_much_as_was_in_use_at_a_time_up_to_a_share_of_what_was_free(monkeypatch):
    monkeypatch.setattr(cpu, "POOL_BYTES", 100)
    byte = torch.empty(0, dtype=torch.uint8).numpy().dtype
    for free, most in ((10_000, 500), (1600, 400), (None, 100)):
        now = machine.Memory(free, "here")
        monkeypatch.setattr(cpu.machine, "memory", lambda _, now=now: now)
        pool = cpu.Pool()
        assert pool.most == 100
        both = pool.take((300,), byte), pool.take((200,), byte)
        assert pool.most == most
        del both
        assert pool.free_bytes() == {500: 500, 400: 300, 100: 0}[most]
        pool.take((50,), byte)
        assert pool.most == most
        pool.clear()
        assert pool.most == 100


def test_it_knows_whether_its_kernels_lie_on_disk(monkeypatch, tmp_path):
    outcome((8, 5), torch.float32)
    assert cpu.compiled()
    from subtree_attention.ops.kernels import _numba_kernels as kernels

    class Elsewhere:
        cache_path = str(tmp_path)

    monkeypatch.setattr(type(kernels.walk_home), "stats", Elsewhere())
    assert not cpu.compiled()


def made_of(file: Path) -> str:
    """Of the files that are compiled into one, those that these are made of included."""
    found: dict[str, bytes] = {}
    names = [file.stem]
    while names:
        text = file.with_name(f"{names.pop()}.py").read_bytes()
        for name in re.findall(rb"^from \.(_numba_\w+) import", text, re.M):
            if name.decode() not in found:
                found[name.decode()] = file.with_name(f"{name.decode()}.py").read_bytes()
                names.append(name.decode())
    # Without what only marks them, so that a mark does not ask for others.
    marked = [re.sub(rb'^MADE_OF = ".*"$', b"", found[name], flags=re.M) for name in sorted(found)]
    return hashlib.sha256(b"".join(marked)).hexdigest()[:12]


@pytest.mark.parametrize("name", ["kernels", "edges", "sampling", "subtree"])
def test_kernels_are_compiled_anew_when_what_is_compiled_into_them_changes(name):
    file = Path(cpu.__file__).with_name(f"_numba_{name}.py")
    wanted = made_of(file)
    assert f'MADE_OF = "{wanted}"' in file.read_text(), f"{file.name} needs MADE_OF = {wanted!r}"


def elsewhere(code: str) -> tuple[list[str], str]:
    """What a process of its own prints, line by line, and of what it warns.

    Its threads that wait sleep: they are more than there are cores. If it hangs, it ends by saying
    where each of them is.
    """
    hanging = "import faulthandler; faulthandler.dump_traceback_later(100, exit=True)\n"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", hanging + code]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


FORK = """
import multiprocessing, torch
from subtree_attention import Graph, subtree_attention

random = torch.Generator().manual_seed(0)
graph = Graph(torch.randint(3000, (2, 40_000), generator=random), 3000)
inputs = torch.randn(3, 3000, 4, 16, generator=random)


def call(backend):
    return subtree_attention(*inputs, graph, 2, backend=backend)


def child(sender, backend):
    try:
        sender.send(float((call(backend) - wanted).abs().max()))
    except ValueError as refused:
        sender.send(str(refused))


wanted = call("numba")
for backend in ("auto", "numba"):
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(sender, backend))
    process.start()
    print(receiver.recv() if receiver.poll(60) else "no answer")
    process.kill()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_computes_the_same_bits():
    """Its parent's threads are gone: before, OpenMP ended the child or waited for them for ever."""
    answers, warned = elsewhere(FORK)
    assert answers == ["0.0", "0.0"]
    assert not warned


THREADS = """
import threading, torch
from subtree_attention import Graph, subtree_attention

random = torch.Generator().manual_seed(0)
graph = Graph(torch.randint(500, (2, 4000), generator=random), 500)
inputs = torch.randn(3, 500, 4, 16, generator=random).requires_grad_()


def call():
    out = subtree_attention(*inputs, graph, 3, backend="numba")
    return out, *torch.autograd.grad(out.sum(), inputs)


def work():
    same.extend(all(map(torch.equal, call(), wanted)) for _ in range(20))


wanted, same = call(), []
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(same), all(same))
"""


def test_several_python_threads_may_call_at_once():
    assert elsewhere(THREADS)[0] == ["60 True"]


INTERRUPTED = """
import os, signal, threading, torch
from subtree_attention import Graph, subtree_attention

torch.set_num_threads(2)
random = torch.Generator().manual_seed(0)
graph = Graph(torch.randint(20_000, (2, 400_000), generator=random), 20_000)
inputs = torch.randn(3, 20_000, 4, 16, generator=random)


def call():
    return subtree_attention(*inputs, graph, 20, torch.ones(21), backend="numba")


wanted = call()
heard = threading.Event()


def interrupt():  # again, where a finalizer was under way, which swallows it
    while not heard.wait(0.05 if not interrupt.times else 5):
        interrupt.times += 1
        os.kill(os.getpid(), signal.SIGINT)


interrupt.times = 0
threading.Thread(target=interrupt, daemon=True).start()
try:
    for _ in range(1000):
        call()
except KeyboardInterrupt:
    heard.set()
    print(torch.equal(call(), wanted))
"""


def test_ctrl_c_leaves_it_as_it_was():
    assert elsewhere(INTERRUPTED)[0] == ["True"]


BITS = """
import torch
from subtree_attention import Graph, subtree_attention

random = torch.Generator().manual_seed(0)
index = torch.randint(20_000, (2, 60_000), generator=random)
index[1, :20_000] %= 3  # hubs: rows of more than one span
graph = Graph(index, 20_000)
inputs = [torch.randn(20_000, 2, c, generator=random).requires_grad_() for c in (8, 8, 5)]
weights = torch.rand(4, 2, generator=random).requires_grad_()
results = []
for threads in (1, 2, 3, 4):
    torch.set_num_threads(threads)
    out = subtree_attention(*inputs, graph, 3, weights, backend="numba")
    results.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, weights])])
print(*(all(map(torch.equal, result, results[0])) for result in results))
"""


def test_the_same_bits_with_more_threads_than_cores():
    """With enough rows for torch to share out its sums too."""
    assert elsewhere(BITS)[0] == ["True True True True"]
