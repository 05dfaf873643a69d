"""The package as it is imported, started, interrupted, built and installed."""

import ast
import importlib
import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import subtree_attention as sta

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/subtree_attention"
HERE = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def run(*command: str | Path, env: dict[str, str] = HERE, cwd: Path | None = None) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------ public names


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import subtree_attention; "
    code += "print(*set(sys.modules) - before)"
    assert run(sys.executable, "-c", code).split() == ["subtree_attention"]


def test_every_public_name_is_found() -> None:
    for name in sta.__all__:
        assert getattr(sta, name) is not None
    assert set(sta.__all__) < set(dir(sta))


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"subtree_attention.*has no attribute 'STAConf'"):
        sta.STAConf  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="STAConf"):
        from subtree_attention import STAConf  # type: ignore[attr-defined]  # noqa: F401


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    homes = {name.asname: node.module or name.name for node in imports for name in node.names}
    assert homes.keys() == set(sta.__all__)
    for name, home in homes.items():
        module = importlib.import_module(f"subtree_attention.{home}")
        assert getattr(sta, str(name)) is getattr(module, str(name), module)


def test_no_module_takes_the_place_of_a_public_name() -> None:
    both = {path.stem for path in SOURCE.iterdir()}.intersection(sta.__all__)
    assert {"datasets", "ops"} <= both
    assert not [name for name in both if not isinstance(getattr(sta, name), ModuleType)]


# --------------------------------------------------------------------------------- starts at once


def fastest(*commands: list[str], rounds: int) -> list[float]:
    """Processor seconds of each command: the least of its rounds, in which they take turns."""
    times: list[list[float]] = [[] for _ in commands]
    for _ in range(rounds):
        for command, seconds in zip(commands, times, strict=True):
            process = subprocess.Popen(
                [sys.executable, *command],
                env=HERE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0  # it was waited for, here
            seconds.append(used.ru_utime + used.ru_stime)
    return [min(seconds) for seconds in times]


def test_help_and_a_mistake_are_answered_at_once() -> None:
    """0.3 s after the libraries, where these take 43 ms: in shares of their time, since a busy or
    slow machine is slower at both."""
    sta = ["-m", "subtree_attention"]
    libraries, *ours = fastest(
        ["-c", "import typer, rich"],
        [*sta, "--help"],
        [*sta, "train", "--help"],
        [*sta, "train", "--hopps", "3"],
        rounds=6,
    )
    assert max(ours) - libraries <= 7 * libraries


def test_importing_takes_hardly_longer_than_importing_torch() -> None:
    torch, package, model = fastest(
        ["-c", "import torch"],
        ["-c", "import subtree_attention"],
        ["-c", "import subtree_attention as sta; sta.STAGNN, sta.Graph"],
        rounds=3,
    )
    assert package <= 1.25 * torch
    assert model <= 1.25 * torch


def test_a_model_needs_no_pyg() -> None:
    code = "import sys, subtree_attention as sta; sta.STAGNN, sta.Graph, sta.fit, sta.Dataset; "
    code += "print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(run(sys.executable, "-c", code).split())
    assert "torch" in loaded
    late = {"torch_geometric", "sklearn", "numba", "polars", "matplotlib", "optuna", "typer"}
    assert not loaded & late


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_threads_that_wait_soon_sleep_unless_told_otherwise(
    given: dict[str, str], spins: str
) -> None:
    """OpenMP reads it when torch is loaded, which is later."""
    code = """
import os, sys
from subtree_attention import __main__ as entry
class Line:
    main = staticmethod(lambda: print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT")))
entry._load = lambda command_line: Line
entry.main()
"""
    ours = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    env = {name: value for name, value in HERE.items() if name not in ours}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env | given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", spins]


# ------------------------------------------------------------------------------------------ Ctrl-C

START = """
import os, signal
signal.signal(signal.SIGINT, {handler})  # whatever it was to who started the tests
from subtree_attention import __main__ as entry
os.write(1, b"!")
entry.main("{command_line}")
"""


def interrupted(start: str, arguments: list[str], after: float, folder: Path) -> tuple[int, str]:
    """Exit code and errors of a command that gets Ctrl-C so many seconds after its first line."""
    command = [sys.executable, "-c", start, *arguments]
    process = subprocess.Popen(
        command, env=HERE, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors.decode()


@pytest.mark.parametrize(
    ("command_line", "arguments"),
    [
        ("subtree_attention.cli", ["train"]),
        ("subtree_attention.cli", ["evaluate", "nowhere"]),
        ("subtree_attention.cli", ["--help"]),
        ("experiments.cli", ["bench", "--help"]),
    ],
)
def test_ctrl_c_ends_it_with_one_line_at_any_moment(
    command_line: str, arguments: list[str], tmp_path: Path
) -> None:
    start = START.format(command_line=command_line, handler="signal.default_int_handler")
    for after in (0, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1, 0.3, 0.6, 1, 1.5, 2.2, 3):
        code, errors = interrupted(start, arguments, after, tmp_path)
        if code != 130:  # it was sooner
            assert after >= 0.03
            assert (code, errors.partition(":")[0]) in [(0, ""), (2, "error")], errors
            break
        [line] = errors.splitlines()
        assert line.startswith("Stopped.")


def test_ctrl_c_is_ignored_where_it_was_before(tmp_path: Path) -> None:
    start = START.format(command_line="subtree_attention.cli", handler="signal.SIG_IGN")
    assert interrupted(start, ["--version"], 0.05, tmp_path) == (0, "")


@pytest.mark.parametrize("arguments", [["datasets"], ["train", "--epochs", "3", "--runs", "1"]])
def test_who_closes_the_pipe_gets_no_complaint(arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "subtree_attention", *arguments]
    pipe, kept = os.pipe()
    os.close(pipe)
    done = subprocess.run(command, env=HERE, cwd=tmp_path, stdout=kept, stderr=subprocess.PIPE)
    os.close(kept)
    assert (done.returncode, done.stderr) == (1, b"")


# --------------------------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    [built] = folder.iterdir()
    return built


def core_distributions() -> list[importlib.metadata.Distribution]:
    """What an installation without extras brings, from what is installed here."""
    from packaging.requirements import Requirement

    found: dict[str, importlib.metadata.Distribution] = {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = list(project["dependencies"])
    while waiting:
        needed = Requirement(waiting.pop())
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            distribution = importlib.metadata.distribution(needed.name)
            if distribution.name not in found:
                found[distribution.name] = distribution
                waiting += distribution.requires or []
    return list(found.values())


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and without extras.

    The dependencies in it are links to those of this environment: nothing is fetched or copied.
    Pip, which has nowhere to look for more, would refuse if one were missing.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    [site] = folder.glob("lib/python*/site-packages")
    for distribution in core_distributions():
        for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(distribution.locate_file(name))))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet"]
    run(*pip, "--disable-pip-version-check", "--no-index", wheel)
    return folder / "bin"


@pytest.fixture
def alone(programs: Path, tmp_path: Path) -> "Alone":
    return Alone(programs, tmp_path)


class Alone:
    """Runs programs of the environment in an empty folder, with nothing of this one to be seen."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def __call__(self, program: str, *arguments: str) -> str:
        return run(self.programs / program, *arguments, env=self.env, cwd=self.folder)

    def refusal(self, *arguments: str) -> str:
        """The one line in which `sta` says why it does not do it."""
        done = subprocess.run(
            [self.programs / "sta", *arguments],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode != 0, done.stdout
        [line] = done.stderr.splitlines()
        return line


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    names = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    about = {name for name in names if name.parts[0].endswith(".dist-info")}
    files = {
        path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in str(path)
    }
    assert names - about == {path.relative_to(SOURCE.parent) for path in files}
    assert {".py", ".cu", ".js", ".css", ".html", ".typed"} <= {path.suffix for path in files}
    assert any(name.name == "cytoscape.LICENSE" for name in about)


LAYER = """
import torch
import subtree_attention as sta

x = torch.randn(4, 3, requires_grad=True)
edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
out = sta.STAConv(3, 2, hops=2, heads=1)(x, edge_index)
out.sum().backward()
print(list(out.shape), bool(x.grad.abs().sum() > 0))
q = torch.rand(4, 1, 2)
try:
    sta.subtree_attention(q, q, q, sta.Graph(edge_index, 4), hops=2, backend="numba")
except Exception as error:
    print(error)
"""


def test_without_extras_the_layer_works_and_a_backend_says_what_it_lacks(alone: Alone) -> None:
    worked, refused = alone("python", "-c", LAYER).splitlines()
    assert worked == "[4, 2] True"
    assert "numba" in refused
    assert "pip install 'subtree-attention[cpu]'" in refused


def test_without_extras_it_trains_and_each_missing_extra_is_named(alone: Alone) -> None:
    short = ["--epochs", "3", "--runs", "1", "--device", "cpu", "--out", "mine"]
    assert "test" in alone("sta", "train", "digits", *short)
    assert 'pip install "subtree-attention[plot]"' in alone("sta", "evaluate", "mine")
    assert "polars" not in alone("sta", "report", "mine")
    (alone.folder / "nodes.csv").write_text("id,label\na,x\nb,y\n")
    (alone.folder / "edges.csv").write_text("source,target\na,b\n")
    tables = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label"]
    for arguments, library, extra in (
        (["train", *tables], "polars", "tables"),
        (["tune", "digits", "--trials", "1"], "Optuna", "tune"),
        (["explore", "mine", "--no-open"], "uvicorn", "explore"),
        (["serve", "mine"], "uvicorn", "serve"),
        (["watch", "mine"], "uvicorn", "explore"),
        (["train", "--log", "tensorboard"], "tensorboard", "log"),
    ):
        line = alone.refusal(*arguments)
        assert f"needs {library}" in line.replace("need ", "needs ")
        assert f'pip install "subtree-attention[{extra}]"' in line
