"""A pass that is written down and played again, with kernels that are Python functions."""

import ctypes
import threading
from contextlib import nullcontext

import pytest
import torch

from subtree_attention.ops.kernels.cuda import launch, tape
from subtree_attention.ops.kernels.cuda.tape import Repeated

ARGUMENTS = launch.structure(pointers="left right out counter", ints="count")


def floats(address, count):
    return (ctypes.c_float * count).from_address(address)


def add(a):
    left, right, out = (floats(at, a.count) for at in (a.left, a.right, a.out))
    for i in range(a.count):
        out[i] = left[i] + right[i]


def double(a):
    left, out = floats(a.left, a.count), floats(a.out, a.count)
    ctypes.c_int.from_address(a.counter).value += 1
    for i in range(a.count):
        out[i] = 2 * left[i]


KERNELS = [add, double]


class Module:
    """A driver that runs a kernel when it is queued."""

    def function(self, name):
        return [kernel.__name__ for kernel in KERNELS].index(name)

    def launch(self, name, grid, threads, arguments):
        KERNELS[self.function(name)](arguments)

    def entered(self):
        return nullcontext()

    def stream(self):
        return 0


@pytest.fixture
def played(monkeypatch):
    """How many kernels were queued from a tape."""
    calls = []

    def queue(function, grid, threads, stream, parameters):
        calls.append(function)
        argument = ctypes.c_void_p.from_address(parameters).value
        KERNELS[function](ARGUMENTS.from_address(argument))

    monkeypatch.setattr(tape, "queue", queue)
    monkeypatch.setattr(tape, "capturing", lambda: False)
    monkeypatch.setattr(tape, "raw_stream", lambda index: 0)
    monkeypatch.setattr(tape, "_LASTING", {})
    monkeypatch.setattr(tape, "PATIENCE", 1)
    return calls


CPU, LASTING = torch.device("cpu"), torch.arange(16.0)


def work(left, right):
    """2 (left + right) + LASTING, [N], by way of memory of its own; and the rest of that memory."""
    counters = tape.zeros(1, CPU)
    kernels = launch.Bound(Module(), ARGUMENTS, count=left.numel(), counter=counters)
    room = left.new_empty(2, left.numel())
    kernels("add", (1, 1, 1), 1, left=left, right=right, out=room[1])
    kernels("double", (1, 1, 1), 1, left=room[1], out=room[0])
    out = torch.empty_like(left)
    kernels("add", (1, 1, 1), 1, left=room[0], right=LASTING, out=out)
    return out, None, room[1]


def repeated(pass_=work, lasting=(LASTING,)):
    """A pass that was done once: the next one is written down."""
    again = Repeated(pass_, 1, CPU, list(lasting))
    again(*some(99))
    assert again.tape is None
    return again


def check(made, left, right):
    out, nothing, total = made
    assert nothing is None
    assert torch.equal(total, left + right)
    assert torch.equal(out, 2 * (left + right) + LASTING)


def some(seed, size=16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator), torch.randn(size, generator=generator)


def test_it_is_done_once_and_then_played(played):
    again, kept = repeated(), []
    for seed in range(4):
        given = some(seed)
        made = again(*given)
        check(made, *given)
        kept.append((made, given))
        assert len(played) == 3 * seed
    for made, given in kept:  # each has memory of its own
        check(made, *given)


def test_every_stream_has_its_own_counters(played, monkeypatch):
    again = repeated()
    for stream in (0, 0, 1, 1, 1):
        monkeypatch.setattr(tape, "raw_stream", lambda index, stream=stream: stream)
        again(*some(0))
    counts = {place[1]: int(counters[0]) for place, counters in tape._LASTING.items()}
    assert counts == {0: 3, 1: 3}


def test_counters_may_grow(played):
    again = repeated()
    again(*some(0))
    first = tape._lasting_zeros(1, CPU)
    assert tape._lasting_zeros(first.numel() + 1, CPU) is not first
    check(again(*some(1)), *some(1))
    assert int(first[0]) == 2


def test_what_lies_otherwise_is_done_anew(played):
    again = repeated()
    again(*some(0))
    wide = torch.randn(16, 2)
    left = wide[:, 0]
    made = again(left.contiguous(), some(1)[1])
    assert len(played) == 3
    assert made[0].is_contiguous()
    assert again.tape is not None
    assert not again.tape.fits([left, some(1)[1]])
    assert not again.tape.fits(some(1, 8))


def test_one_tensor_twice_is_not_taken_for_two(played):
    again = repeated()
    same = some(0)[0]
    check(again(same, same), same, same)
    assert again.tape is None
    for seed in (1, 2):
        given = some(seed)
        check(again(*given), *given)
    assert len(played) == 3
    check(again(same, same), same, same)  # played: two addresses that happen to be one


def test_inputs_that_overlap_are_told_apart(played):
    again, memory = repeated(), some(0, 20)[0]
    check(again(memory[:16], memory[4:]), memory[:16], memory[4:])
    assert again.tape is not None
    for seed in (1, 2):
        given = some(seed)
        check(again(*given), *given)
    assert len(played) == 6


def test_another_number_of_inputs_is_not_taken_for_these(played):
    again = repeated(lambda left, right=None: work(left, left if right is None else right))
    again(*some(0))
    assert again.tape is not None
    assert not again.tape.fits(some(1)[:1])


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (lambda left, right: work(left * 2, right), "torch computes"),
        (lambda left, right: [left + right], "torch computes"),
        (lambda left, right: [None], "nothing is launched"),
        (lambda left, right: (*work(left, right)[:2], right), "was there before"),
    ],
)
def test_what_cannot_be_played_is_done_every_time(spoilt, reason, played):
    again = repeated(spoilt)
    for seed in range(3):
        again(*some(seed))
    assert not played
    assert reason in again.problem


def test_memory_that_nobody_knows_is_not_guessed(played):
    again = repeated(lasting=())
    for seed in range(2):
        given = some(seed)
        check(again(*given), *given)
    assert "nobody knows" in again.problem


def test_nothing_is_played_into_a_captured_graph(played, monkeypatch):
    again = repeated()
    again(*some(0))
    monkeypatch.setattr(tape, "capturing", lambda: True)
    check(again(*some(1)), *some(1))
    assert not played


def test_threads_play_it_at_the_same_time(played):
    again, wrong = repeated(), []
    again(*some(0))

    def many(first):
        for seed in range(first, first + 50):
            given = some(seed)
            try:
                check(again(*given), *given)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=many, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
