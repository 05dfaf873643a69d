"""Many processes on one machine, which run all cases of a module one after the other.

A start of torch takes seconds, so a group of processes is started once for all cases.
"""

import faulthandler
import os
import traceback
from importlib import import_module
from pathlib import Path

import torch.multiprocessing as mp

MINUTES = 3


def run(
    module: str, ranks: int, folder: Path, cases: str = "CASES", backend: str = "gloo"
) -> list[dict[str, object]]:
    """What each case of a module gave on each rank: an error as a text, or whatever it returns."""
    context = mp.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
    store = f"file://{folder}/store-{ranks}"
    about = module, cases, backend, ranks, store
    processes = [
        context.Process(target=_work, args=(*about, rank, pipes[rank][1])) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    try:
        found = []
        for rank, (end, _) in enumerate(pipes):
            if not end.poll(60 * MINUTES):
                raise TimeoutError(f"rank {rank} of {ranks} has not ended")
            found.append(end.recv())
        return found
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()


def _work(module: str, cases: str, backend: str, ranks: int, store: str, rank: int, pipe) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    faulthandler.dump_traceback_later(60 * MINUTES - 10)  # whoever hangs says where
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=ranks)
    found: dict[str, object] = {}
    for name, case in getattr(import_module(module), cases)[ranks].items():
        torch.manual_seed(0)
        try:
            found[name] = case()
        except Exception:
            found[name] = traceback.format_exc()
            break  # the others wait for something that will not come
    pipe.send(found)
    dist.destroy_process_group()
