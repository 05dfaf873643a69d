"""Run folders that were cut off, damaged, changed by hand, or made to do harm."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import subtree_attention as sta
from subtree_attention import io
from subtree_attention.io import FileError
from subtree_attention.runs import evaluate
from subtree_attention.runs import folder as files
from subtree_attention.train import fit as fitting
from subtree_attention.train.watch import Watch
from tests.conftest import Outcome

CONFIG = sta.recipe("digits", runs=2, epochs=2, hops=1, heads=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sta.fit(CONFIG, tmp_path_factory.mktemp("sums") / "out", device="cpu").folder


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "out"))


def named(out: Path) -> list[str]:
    """The files that a check finds something wrong with."""
    return [str(path.relative_to(out)) for path, words in files.check(out) if words]


# -------------------------------------------------------------------------------------- damage


def test_every_file_of_a_run_has_a_checksum(out: Path) -> None:
    checked = {path for path, words in files.check(out) if not words}
    assert checked == {path for path in out.rglob("*") if path.is_file()}


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_the_list_is_one_that_others_read(out: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, check=True)


@pytest.mark.parametrize(
    "name",
    ["config.json", "environment.json", "run-0/metrics.jsonl", "run-1/model.safetensors"],
)
def test_a_flipped_bit_is_noticed_wherever_it_is(name: str, out: Path) -> None:
    whole = (out / name).read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        (out / name).write_bytes(changed)
        assert named(out) == [name], place


def test_damage_to_a_list_is_noticed(out: Path) -> None:
    whole = (out / "SHA256SUMS").read_bytes()
    for place in range(0, len(whole), 5):
        changed = bytearray(whole)
        changed[place] ^= 2
        (out / "SHA256SUMS").write_bytes(changed)
        assert named(out), place


@pytest.mark.parametrize("change", [lambda tensors: tensors, lambda tensors: tensors.add_(1)])
def test_tensors_without_their_checksum_are_not_read(change: Callable, out: Path) -> None:
    from safetensors.torch import save_file

    path = out / "run-0/model.safetensors"
    tensors, header = io.read_tensors(path)
    for tensor in tensors.values():
        change(tensor)
    save_file(tensors, path, metadata={"json": json.dumps(header)})
    files.accept(out)
    with pytest.raises(FileError, match=r"checksum .*delete the folder of that run"):
        assert sta.open(out / "run-0", device="cpu").model


def test_a_damaged_checkpoint_is_named_with_what_to_do(out: Path) -> None:
    class Stop(Watch):
        def epoch(self, run: object) -> None:
            raise KeyboardInterrupt

    shutil.rmtree(out)
    with pytest.raises(fitting.Interrupted):
        sta.fit(CONFIG, out, device="cpu", watch=Stop())
    path = out / "run-0/checkpoint.safetensors"
    changed = bytearray(path.read_bytes())
    changed[-9] ^= 1
    path.write_bytes(changed)
    with pytest.raises(FileError, match=r"checkpoint.safetensors .*delete it to begin that run"):
        sta.fit(CONFIG, out, device="cpu")
    path.unlink()
    assert sta.fit(CONFIG, out, device="cpu").runs


# ---------------------------------------------------------------------------- changed by hand


def test_a_configuration_that_was_edited_is_accepted_on_demand(
    trained: Path, run_sta: Callable[..., Outcome], tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "out")
    path = tmp_path / "out/config.json"
    path.write_text(path.read_text().replace('"epochs": 2', '"epochs": 3'))
    code, _, err = run_sta("train", "--resume", "--out", "out", "--device", "cpu")
    assert (code, "sta check --accept out" in err) == (2, True)
    code, said, _ = run_sta("check", "out")
    assert (code, "config.json is not what SHA256SUMS says" in said) == (1, True)
    code, said, _ = run_sta("check", "--accept", "out")
    assert (code, "12 files checked, 0 wrong" in said) == (0, True)
    assert files.read_config(tmp_path / "out").fit.epochs == 3


def test_what_is_no_configuration_is_not_accepted(
    trained: Path, run_sta: Callable[..., Outcome], tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "out")
    (tmp_path / "out/config.json").write_text('{"hops": 3}', encoding="utf-8")
    code, _, err = run_sta("check", "--accept", "out")
    assert (code, "holds no configuration" in err) == (2, True)
    code, _, err = run_sta("check", str(tmp_path))
    assert (code, "there is no run in" in err) == (2, True)


# ------------------------------------------------------------------------------------- cut off


def test_half_written_files_are_in_nobodys_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".config.json.tmp").write_bytes(b"{")
    sta.fit(CONFIG, out, device="cpu")
    assert not list(out.rglob(".*"))


def test_a_run_counts_only_with_its_list(out: Path) -> None:
    whole = [scores[1:4] for scores in evaluate(out, device="cpu")]
    for path in (out / "run-1/SHA256SUMS", out / "SHA256SUMS"):
        path.unlink()
    with pytest.raises(FileError, match=r"SHA256SUMS is missing: .*sta check --accept"):
        sta.fit(CONFIG, out, device="cpu")
    files.accept(out)
    (out / "run-1/SHA256SUMS").unlink()
    with pytest.raises(FileError, match=r"run-1 .*SHA256SUMS is missing: .*sta check --accept"):
        evaluate(out, device="cpu")
    sta.fit(CONFIG, out, device="cpu", resume=True)
    assert [scores[1:4] for scores in evaluate(out, device="cpu")] == whole


def test_a_run_that_was_cut_off_goes_on_unasked_and_a_finished_one_does_not(out: Path) -> None:
    shutil.rmtree(out / "run-1")
    files._write_list(out, {n: d for n, d in files.listed(out).items() if n != "summary.json"})
    assert len(sta.fit(CONFIG, out, device="cpu").runs) == 2
    with pytest.raises(FileError, match="which is finished"):
        sta.fit(CONFIG, out, device="cpu")


def test_it_goes_on_with_the_threads_that_it_was_begun_with(out: Path) -> None:
    said, now = [], torch.get_num_threads()

    class Note(Watch):
        def say(self, line: str) -> None:
            said.append((line, torch.get_num_threads()))

        def start(self, run: object) -> None:
            said.append(("threads", torch.get_num_threads()))

    environment = files.read_environment(out) | {"threads": now + 1}
    files.write_listed(out, {"environment.json": io.json_bytes(environment)})
    shutil.rmtree(out / "run-1")
    sta.fit(CONFIG, out, device="cpu", resume=True, watch=Note())
    assert (f"begun with {now + 1} threads: goes on with as many instead of {now}", now) in said
    assert ("threads", now + 1) in said
    assert torch.get_num_threads() == now


# ------------------------------------------------------------------------------------- hostile


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(out: Path) -> None:
        (out / name).unlink()
        make(out / name)

    return change


def config(**changes: object) -> Callable[[Path], None]:
    """A model whose header says something else, with the right checksums."""

    def change(out: Path) -> None:
        path = out / "run-0/model.safetensors"
        tensors, header = io.read_tensors(path)
        for name, value in changes.items():
            parts = [part for part in header["config"].values() if isinstance(part, dict)]
            next(part for part in parts if name in part)[name] = value
        io.write_tensors(path, tensors, header)

    return change


def sizes(**changes: int) -> Callable[[Path], None]:
    def change(out: Path) -> None:
        path = out / "run-0/model.safetensors"
        tensors, header = io.read_tensors(path)
        io.write_tensors(path, tensors, header | {"sizes": header["sizes"] | changes})

    return change


def nested(out: Path) -> None:
    (out / "run-0/summary.json").write_text("[" * 100_000)
    files._write_list(out / "run-0", {"summary.json": files._sha256(b"[" * 100_000)})


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link to zeros": (
        replaced("run-0/summary.json", lambda path: path.symlink_to("/dev/zero")),
        "summary.json is not read: it is a link",
    ),
    "a pipe": (replaced("run-0/summary.json", os.mkfifo), "it is not a regular file"),
    "a piped model": (replaced("run-0/model.safetensors", os.mkfifo), "not a regular file"),
    "a linked list": (
        replaced("run-0/SHA256SUMS", lambda path: path.symlink_to("/dev/zero")),
        "SHA256SUMS is not read: it is a link",
    ),
    "nested": (nested, "nested too deeply"),
    "hops": (config(hops=10**9), "hops must be at most"),
    "hops of nothing": (config(hops=10**9, aggregation="sum", gate="none"), "hops must be at most"),
    "encoding": (config(encoding=10**9), "encoding must be at most"),
    "channels": (config(hidden_channels=10**9), "does not fit its own settings"),
    "heads": (config(hidden_channels=10**9, heads=10**9), "does not fit its own settings"),
    "more classes": (sizes(out_channels=10**9), "does not fit its own settings"),
    "other arguments": (sizes(bias=1), "sizes must be in_channels and out_channels"),
}
SIGNED = [name for name in HOSTILE if HOSTILE[name][0].__qualname__.startswith(("config", "sizes"))]
"""Whoever makes such a folder makes its checksums too."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_strangers_folder_asks_for_nothing(name: str, out: Path) -> None:
    """In a process that may take a gigabyte more than it has, and ten seconds."""
    spoil, message = HOSTILE[name]
    shutil.rmtree(out / "run-1")
    spoil(out)
    if name in SIGNED:
        files.accept(out)
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        with os.fdopen(writer, "w") as words:
            words.write(_asked(out))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as words:
        said = words.read()
    _, status = os.waitpid(process, 0)
    assert (status, message in said) == (0, True), said


def _asked(out: Path) -> str:
    import signal

    signal.alarm(20)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**30, size + 2**30))
    try:
        run = sta.open(out, device="cpu")
        assert run.result
        assert run.model
        assert run.dataset
    except FileError as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "it was read"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".page.html.tmp").symlink_to(tmp_path / "precious")
    io.write_bytes(tmp_path / "page.html", b"page")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "page.html").read_bytes() == b"page"


def test_a_run_that_is_a_link_is_not_written_to(out: Path, tmp_path: Path) -> None:
    shutil.move(out / "run-1", tmp_path / "elsewhere")
    (out / "run-1").symlink_to(tmp_path / "elsewhere")
    assert len(evaluate(out, device="cpu")) == 1
    with pytest.raises(FileError, match="run-1 is a link"):
        sta.fit(CONFIG, out, device="cpu", resume=True)


@pytest.mark.skipif(sys.platform == "win32", reason="needs folders that are files")
def test_below_a_file_and_on_a_full_disk_the_folder_is_named(
    tmp_path: Path, run_sta: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run_sta("train", "--epochs", "1", "--out", "file/out", "--device", "cpu")
    assert (code, f"{tmp_path / 'file'} is a file" in err) == (2, True)


# ------------------------------------------------------------------------------------ what to do


def test_what_is_advised_can_be_done(out: Path, run_sta: Callable[..., Outcome]) -> None:
    """Of a run that is damaged: it is accepted, or made again."""
    path = out / "run-0/summary.json"
    path.write_text(path.read_text().replace('"epochs": 2', '"epochs":  2'))
    code, _, err = run_sta("evaluate", str(out), "--device", "cpu")
    assert (code, f"sta check --accept {out}\n" in err) == (2, True)
    assert run_sta("check", "--accept", str(out))[0] == 0
    assert run_sta("evaluate", str(out), "--device", "cpu")[0] == 0
    path.unlink()
    code, _, err = run_sta("evaluate", str(out), "--device", "cpu")
    assert (code, "summary.json is missing" in err, "delete the folder" in err) == (2, True, True)
    shutil.rmtree(out / "run-0")
    assert run_sta("train", "--resume", "--out", str(out), "--device", "cpu")[0] == 0
    assert run_sta("evaluate", str(out), "--device", "cpu")[0] == 0


@pytest.mark.parametrize("folder", [".", "run-0"])
def test_a_list_that_is_gone_is_found(folder: str, out: Path) -> None:
    (out / folder / "SHA256SUMS").unlink()
    assert named(out) == [str(Path(folder, "SHA256SUMS"))]


def test_a_run_without_a_model_is_not_accepted(out: Path) -> None:
    (out / "run-0/model.safetensors").unlink()
    with pytest.raises(FileError, match=r"model\.safetensors is missing: .*no run to accept"):
        files.accept(out)


def test_one_run_alone_can_be_checked(out: Path, run_sta: Callable[..., Outcome]) -> None:
    code, said, _ = run_sta("check", str(out / "run-0"))
    assert (code, "4 files checked, 0 wrong" in said) == (0, True)


def test_the_users_own_hidden_files_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.notes.tmp").write_text("mine")
    with pytest.raises(FileError, match="not empty and holds no run"):
        sta.fit(CONFIG, tmp_path / "out", device="cpu")
    io.sweep(tmp_path, files.FILES)
    assert (tmp_path / "out/.notes.tmp").read_text() == "mine"


def test_leftovers_of_older_versions_are_in_nobodys_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / f".config.json.{'0a' * 16}.tmp").write_bytes(b"{")
    sta.fit(CONFIG, out, device="cpu")
    assert not list(out.rglob(".*"))


def test_a_damaged_summary_of_a_run_that_was_cut_off_is_not_of_an_older_version(out: Path) -> None:
    run, summary = out / "run-0", out / "run-0" / files.SUMMARY
    (run / files.LIST).unlink()
    summary.write_text(summary.read_text().replace('"format"', '"fmrmat"'))
    assert files.is_done(run)  # older versions wrote no format, and no list
    (run / files.CHECKPOINT).write_bytes(b"")
    assert not files.is_done(run)
