"""A fault, and what comes of it: the same command again must lead to what it would have led to."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from subtree_attention import io
from tests.faults.commands import COMMANDS, call, copied, left_behind, prepare, sta
from tests.faults.disk import DIED, Fault, Step, flip

BITS = 3
"""Of a file, each flipped in a case of its own."""


class Case(NamedTuple):
    """A fault in a command."""

    command: str
    fault: Fault
    step: Step

    def __str__(self) -> str:
        file = Path(self.step.file).name
        return f"{self.command}: {self.fault.kind} at {self.step.what} {self.fault.step} ({file})"


class Lost(AssertionError):
    """Something was lost, or went wrong without a word."""


@dataclass
class Reference:
    """A command as it goes without a fault."""

    name: str
    start: Path
    """The folder as it is before the command."""
    steps: list[Step] = field(default_factory=list)
    left: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, folder: Path) -> "Reference":
        made = cls(name, folder / "start")
        prepare(COMMANDS[name], made.start)
        whole = copied(made.start, folder / "whole")
        code, said, made.steps = call(COMMANDS[name].run, whole)
        if code != 0:
            raise Lost(f"{name} does not work at all: {said}")
        made.left = left_behind(whole)
        return made

    def cases(self) -> Iterator[Case]:
        """Every fault at every step; where a bit flips is drawn, the same every time."""
        chance = random.Random(self.name)
        for number, step in enumerate(self.steps):
            for kind in step.kinds:
                if kind == "flip" and not COMMANDS[self.name].checked:
                    continue
                for _ in range(BITS if kind == "flip" else 1):
                    yield Case(self.name, Fault(kind, number, chance.random()), step)


def inject(case: Case, reference: Reference, folder: Path) -> str:
    """What came of a fault: the command "went on"; a flipped bit was "named", or "harmless" because
    the file counts for nothing or is written anew; or the step was "not reached".

    Raises:
        Lost: anything else.
    """
    command, here = COMMANDS[case.command], copied(reference.start, folder)
    code, said, _ = call(command.run, here, case.fault)
    if case.fault.kind == "full":
        _check_full(code, said, here)
    elif code == 0 and not command.same:
        return "not reached"  # it was done with fewer steps
    elif code != DIED:
        raise Lost(f"the process lived on, with exit code {code}: {said}")
    code, said, _ = call(command.run, here)
    outcome = "harmless" if case.fault.kind == "flip" else "went on"
    if is_finished(said):
        code, said, _ = call(sta("check out"), here)
    if code != 0 and case.fault.kind == "flip":
        outcome = "named"
        _mend(case, said, here)
        code, said, _ = call(command.run, here)
    if code != 0 and not is_finished(said):
        raise Lost(f"the same command does not go on: {said}")
    check_left(reference, here)
    return outcome


def is_finished(said: str) -> bool:
    """Whether a command says that all was done: only its process had not ended."""
    return "which is finished" in said


def check_left(reference: Reference, folder: Path) -> None:
    """What is there in the end must be what would be there without a fault, and nothing else."""
    left = left_behind(folder)
    leftovers = [name for name in left if name.endswith(io.TEMPORARY)]
    if leftovers:
        raise Lost(f"left behind: {leftovers}")
    command, wanted = COMMANDS[reference.name], reference.left
    if not command.same:
        left, wanted = (
            {name: None for name in each if name not in command.perhaps} for each in (left, wanted)
        )
    other = [n for n in left.keys() | wanted.keys() if left.get(n, 0) != wanted.get(n, 0)]
    if other:
        raise Lost(f"other than without a fault: {sorted(other)}")


def _check_full(code: int, said: str, folder: Path) -> None:
    """A full disk is said, with the folder, unless nothing that counts could not be written."""
    if code == 0:
        return
    if "Traceback" in said or "No space left" not in said or str(folder) not in said:
        raise Lost(f"a full disk is not said in words (exit code {code}): {said}")


def _mend(case: Case, said: str, folder: Path) -> None:
    """Damage is named with the file and what to do, which is done here."""
    damaged = folder / Path(case.step.file).relative_to(_root(case.step.file))
    named = damaged.name in said or "SHA256SUMS" in said
    if "Traceback" in said or not named:
        raise Lost(f"damage to {damaged.name} is not named: {said}")
    if "delete it" in said:
        damaged.unlink()
    elif "from a copy" in said or "delete the" in said:
        flip(damaged, case.fault.bit)  # as it was
    else:
        raise Lost(f"what to do about {damaged.name} is not said: {said}")


def _root(file: str) -> Path:
    """The folder that a reference was made in: the file is below it."""
    return next(path for path in Path(file).parents if path.name == "whole")
