"""The CUDA kernel without a GPU: its kernels written in plain torch, its host side as it is.

What a kernel makes of its arguments is said here once more, slowly; which kernels are launched, on
which columns and into which memory, is the real thing.
"""

from contextlib import nullcontext

import torch

from subtree_attention import ops
from subtree_attention.ops.kernels.cuda import ends, launch, tape


def emulate(monkeypatch, capturing: bool = False) -> list[str]:
    """Launch the kernels below instead of real ones; -> names of what was launched, as it comes."""
    launched: list[str] = []

    class Bound:
        def __init__(self, module, kind, **parts):
            self.macros, self.bound = module, parts
            self.names = {name for name, _ in kind._fields_}

        def __call__(self, name, grid, threads, **parts):
            parts = self.bound | parts
            assert self.names >= parts.keys(), f"{name} takes no {parts.keys() - self.names}"
            assert_aligned(name, self.macros, parts)
            launched.append(name)
            absent = dict.fromkeys(self.names - parts.keys())
            if name == "combine_backward":  # a hop for each row of its grid
                absent["times"] = grid[1]
            KERNELS[name](self.macros, **parts, **absent)

    monkeypatch.setattr(launch, "Bound", Bound)
    monkeypatch.setattr(launch, "module", lambda file, macros, device: dict(macros))
    monkeypatch.setattr(ends, "_module", lambda *sizes: dict(ends.macros(*sizes[:-1])))
    monkeypatch.setattr(tape, "raw_stream", lambda index: 0)
    monkeypatch.setattr(launch, "side_by_side", lambda device: nullcontext(nullcontext()))
    monkeypatch.setattr(tape, "capturing", lambda: capturing)
    return launched


VECTORS = ("old_state", "new_state", "left", "own", "dot", "partial", "states")
QUADS = ("right", "other", "others")


def assert_aligned(name, macros, parts):
    """What is loaded some numbers at a time begins where a GPU can do that."""
    for part in parts.keys() & {*VECTORS, *QUADS} if "VECTOR" in macros else ():
        if (given := parts[part]) is not None:
            bytes = given.element_size() * macros["VECTOR"] if part in VECTORS else 16
            assert given.data_ptr() % bytes == 0, f"{part} of {name} is not at {bytes} bytes"


def walk(macros, *, col, weight, old_state, left, right, own, other, new_state, **rest):
    heads, channels, block = macros["HEADS"], macros["CHANNELS"], macros["BLOCK"]
    first = rest["first_column"] or 0
    columns = slice(first, first + block)
    if macros["FACTORS"]:
        assert old_state is None
        state = torch.einsum("nhd,nhb->nbhd", left, right[..., columns])
    else:
        state = old_state.view(-1, block, heads, channels).to(weight.dtype)
    nodes = torch.cat([rest["rows"], rest["pieces"][:, 0]]).long()
    new = torch.zeros(rest["num_nodes"], *state.shape[1:], dtype=weight.dtype)
    for node, start, stop, _ in nodes.tolist():
        new[node] += torch.einsum("e,e...->...", weight[start:stop], state[col[start:stop].long()])
    if rest["add_own"]:
        new += torch.einsum("nhd,nhb->nbhd", own, other[..., columns])
    if rest["readout"] is not None:
        read = torch.einsum("nhd,nbhd->nhb", own, new)
        target = rest["readout"][..., first : min(first + block, rest["readout_width"])]
        read = read[..., : target.size(-1)]
        target.copy_(target + read if rest["readout_adds"] else read)
    if rest["dot"] is not None:
        planes, size = rest["dot"], macros["COLUMNS"]
        for plane, begin in enumerate(range(0, block, size)):
            own_columns = slice(begin, min(begin + size, block))
            weights = other[..., columns][..., own_columns]
            product = torch.einsum("nhb,nbhd->nhd", weights, new[:, own_columns])
            filled = plane < (rest["dot_planes"] or 0)
            planes[plane].copy_(planes[plane] + product if filled else product)
    if new_state is not None:
        new_state.view_as(new).copy_(new)


def dot_kept(macros, *, states, others, dot, first_column, adds, num_states, **rest):
    assert num_states == len(states) == len(others)
    block = macros["BLOCK"]
    states = states.view(num_states, -1, block, macros["HEADS"], macros["CHANNELS"]).to(dot.dtype)
    product = torch.einsum(
        "snhb,snbhd->nhd", others[..., first_column : first_column + block], states
    )
    dot[0].copy_(dot[0] + product if adds else product)


def prepare(macros, *, query, key, value, phi_query, phi_key, ones, **rest):
    for given, row in ((query, "query_row"), (key, "key_row"), (value, "value_row")):
        assert given.stride() == (rest[row], given.size(2), 1) or given.size(1) == 1
    if macros["MAP"]:
        for given, mapped in ((query, phi_query), (key, phi_key)):
            mapped.copy_(_raw(given) / (_length(given) if macros["MAP"] == UNIT else 1))
    ones[..., : value.size(-1)] = value
    ones[..., value.size(-1)] = 1


UNIT = ends.MAPS.index("unit")


def _raw(given):
    return torch.where(given > 0, given + 1, given.exp())


def _length(given):
    return _raw(given).norm(dim=-1, keepdim=True).clamp(min=1e-30)


def unmap(macros, *, dot, dot_planes, phi, given, grad_phi, **rest):
    assert given.stride() == (rest["given_row"], given.size(2), 1) or given.size(1) == 1
    grad = dot[:dot_planes].sum(0)
    if macros["MAP"] == UNIT:
        grad = (grad - (grad * phi).sum(-1, keepdim=True) * phi) / _length(given)
    grad_phi.copy_(grad * _raw(given).clamp(max=1) if macros["MAP"] else grad)


def combine(macros, *, ones, readouts, hop_weights, beta, out, eps, hops, first_hop, **rest):
    assert hops == len(readouts)
    value = ones[..., : macros["WIDTH"] - 1]
    powers = None if beta is None else beta[first_hop - 1 : first_hop - 1 + hops]
    levels = readouts[..., :-1] * _inverse(_raised(readouts[..., -1:] + eps, powers))
    if first_hop == 1:
        levels = torch.cat([value[None], levels])
    hop = first_hop - (first_hop == 1)
    if hop_weights is None:
        out[hop : hop + len(levels)] = levels
        return
    weighted = (hop_weights[hop : hop + len(levels), None, :, None] * levels).sum(0)
    out.copy_(weighted if first_hop == 1 else out + weighted)


def combine_backward(macros, *, ones, readouts, hop_weights, beta, grad, **rest):
    first = rest["first_hop"]
    for hop in range(first, first + rest["times"]):
        of_hop = grad if hop_weights is not None else grad[hop]
        weight = torch.ones(ones.size(1)) if hop_weights is None else hop_weights[hop]
        if hop == 0:
            product = (of_hop * ones[..., : macros["WIDTH"] - 1]).sum(-1)
            rest["grad_value"].copy_(weight[:, None] * of_hop)
        else:
            power = None if beta is None else beta[hop - 1 : hop]
            at_hop = readouts[hop - 1], rest["eps"], weight, power, of_hop
            product = _divided(*at_hop, rest["grad_readouts"][hop - 1], hop, rest["beta_products"])
        if hop_weights is not None:
            rest["products"][hop] = product


def _divided(readout, eps, weight, beta, grad, grad_readout, hop, beta_products):
    """The quotient rule for a hop; <grad, level>."""
    total = readout[..., -1:] + eps
    share = _inverse(_raised(total[None], beta)[0])
    product = (grad * readout[..., :-1] * share).sum(-1)
    grad_readout[..., : grad.size(-1)] = weight[:, None] * grad * share
    slope = share if beta is None else beta[0, :, None] * _inverse(total)
    grad_readout[..., grad.size(-1)] = -weight * product * slope.squeeze(-1)
    if beta is not None:
        size = torch.where(total != 0, total.abs().log(), 0).squeeze(-1)
        beta_products[hop - 1] = -weight * product * size
    return product


def sum_products(macros, *, products, grad_weights, **rest):
    grad_weights.copy_(products.sum(1))


def gate(macros, *, ungated, logits, gated, columns, **rest):
    assert columns == (1 if ungated.dim() == 1 else ungated.size(1))
    gated.copy_(ops.gated(ungated, logits))


def gate_backward(macros, *, ungated, logits, grad_weights, grad_ungated, grad_logits, **rest):
    shares = torch.softmax(logits, dim=-1)
    of_weights = torch.cat([grad_weights[:1], grad_weights[1:] * shares])
    weights = ungated.view(len(ungated), -1)
    of_shares = grad_weights[1:] * weights[1:]
    grad_ungated.copy_(of_weights.sum_to_size(weights.shape).view_as(ungated))
    grad_logits.copy_(shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True)))


def along(macros, *, left, right, row, col, out, entries, width):
    assert (entries, width) == (len(out), left.size(1))
    out.copy_((left[row.long()] * right[col.long()]).sum(1))


def _raised(total, beta):
    """[K, N, H, 1], [K, H] or None."""
    if beta is None:
        return total
    beta = beta[:, None, :, None]
    power = torch.where(total < 0, -1, 1) ** (beta != 0) * total.abs() ** beta
    return torch.where(total != 0, power, 0)


def _inverse(denominator):
    return torch.where(denominator != 0, 1 / denominator, 0)


KERNELS = {
    "walk": walk,
    "dot_kept": dot_kept,
    "prepare": prepare,
    "unmap": unmap,
    "combine": combine,
    "combine_backward": combine_backward,
    "sum_products": sum_products,
    "gate": gate,
    "gate_backward": gate_backward,
    "along": along,
}
