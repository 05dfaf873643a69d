"""Figures are written, a model looks the same in all of them, and what is missing is said."""

import builtins
import dataclasses
import xml.etree.ElementTree as ET

import pytest

from tests.experiments.reproduce.synthetic import NO_SCORES, everything, record, runs

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from experiments.reproduce import drawing, figures
from experiments.reproduce.drawing import DARK, LOOKS, STEPS, look
from experiments.reproduce.figures import FIGURES, NothingToDraw
from tests.experiments.pictures import Picture
from tests.show.test_colours import contrast

MODELS = ("STAGNN", "GCN", "GAT")
SEEN = {
    "hops": [look("STAGNN").colour, "#8DBEDF"],  # GPR, and sum: half of it on white
    "deep": [look(model).colour for model in (*MODELS, "APPNP", "GPRGNN")],
    "robustness": [look(model).colour for model in MODELS],
    "gpr": list(STEPS[:7]),
    "gates": ["#EEEEEE", "#555555"],  # hop 0, which has no gate
}
"""Colours that every figure of `everything` must show."""


@pytest.fixture
def drawn(monkeypatch) -> list[Figure]:
    """The figures that would have been written, in the order of drawing."""
    kept: list[Figure] = []

    def keep(figure, path):
        figure.draw_without_rendering()  # lays it out
        kept.append(figure)
        return []

    monkeypatch.setattr(drawing, "save", keep)
    return kept


def line_colours(figure: Figure) -> dict[str, set[str]]:
    colours: dict[str, set[str]] = {}
    for panel in figure.axes:
        for line in panel.get_lines():
            colours.setdefault(line.get_label(), set()).add(line.get_color())
    return colours


def texts(figure: Figure) -> str:
    """Everything that is written on a figure."""
    return "\n".join(text.get_text() for text in figure.findobj(lambda o: hasattr(o, "get_text")))


@pytest.mark.parametrize("name", FIGURES)
def test_written_as_svg_and_png(name, tmp_path):
    written = FIGURES[name](everything(), tmp_path / "new" / f"{name}.v2")
    assert [path.name for path in written] == [f"{name}.v2.svg", f"{name}.v2.png"]
    svg, png = written
    assert ET.parse(svg).getroot().tag.endswith("svg")
    picture = Picture(png)
    assert min(picture.size) > 400
    assert picture.has(*SEEN[name])
    assert 0.2 < picture.share_of_paper < 0.95


def test_the_same_records_give_the_same_file(tmp_path):
    first, second = (figures.draw_deep(everything(), tmp_path / name)[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", FIGURES)
def test_without_its_records_a_figure_says_what_is_missing(name, tmp_path):
    needed = {"gpr": "'deep' with STAGNN's hop weights", "gates": "'table1' or 'table3'"}
    with pytest.raises(NothingToDraw, match=needed.get(name, f"experiment '{name}'")):
        FIGURES[name]([], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_what_to_install(monkeypatch, tmp_path):
    load = builtins.__import__

    def refuse(name, *rest, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'subtree-attention\[plot\]'"):
        figures.draw_deep(everything(), tmp_path / "deep")


class TestLooks:
    def test_a_model_has_one_colour_everywhere(self, drawn):
        records = everything()
        figures.draw_deep(records, "deep")
        only_two = [r for r in records if r.model in ("STAGNN", "GAT")]
        figures.draw_robustness(only_two, "robustness")
        deep, robustness = (line_colours(figure) for figure in drawn)
        assert set(robustness) == {"STAGNN", "GAT"}
        for model, colours in robustness.items():
            assert colours == deep[model] == {look(model).colour}

    def test_an_unknown_model_keeps_its_colour(self):
        assert look("Some new model") == look("Some new model")
        assert look("Some new model").colour not in {known.colour for known in LOOKS.values()}

    @pytest.mark.parametrize("paper", ["#ffffff", "#212529"])  # the second is the site's, dark
    def test_marks_stand_out_on_light_and_dark_pages(self, paper):
        spare = [look(f"Some model {number}").colour for number in range(40)]
        for colour in {*spare, *STEPS, *(known.colour for known in LOOKS.values())}:
            assert contrast(colour, paper) >= 3, colour

    def test_texts_turn_light_on_a_dark_page(self, tmp_path):
        svg = figures.draw_deep(everything(), tmp_path / "deep")[0].read_text()
        ink, soft = drawing.INK, drawing.SOFT
        assert contrast(ink, "#ffffff") > 4.5 < contrast(DARK[ink], "#212529")
        assert contrast(soft, "#ffffff") > 4.5 < contrast(DARK[soft], "#212529")
        assert f'[style*="fill: {ink}"] {{fill: {DARK[ink]} !important}}' in svg
        assert f'style="fill: {ink}"' in svg
        assert "fill: #ffffff" not in svg  # no paper of its own

    def test_known_models_differ_in_colour_and_in_what_grey_leaves(self):
        assert len({known.colour for known in LOOKS.values()}) == len(LOOKS)
        assert len({(known.marker, known.line) for known in LOOKS.values()}) == len(LOOKS)

    @pytest.mark.parametrize("name", FIGURES)
    def test_light_background_and_letters_of_at_least_8_points(self, name, drawn):
        FIGURES[name](everything(), name)
        (figure,) = drawn
        assert to_rgb(figure.get_facecolor()) == (1, 1, 1)
        found = figure.findobj(lambda o: hasattr(o, "get_fontsize") and hasattr(o, "get_text"))
        sizes = {text.get_fontsize() for text in found if text.get_text() and text.get_visible()}
        assert min(sizes) >= 8

    def test_a_long_legend_stays_inside(self, drawn):
        where = {"experiment": "deep", "at": 3}
        figures.draw_deep([record(model=model, **where) for model in LOOKS], "deep")
        (figure,) = drawn
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


class TestWhatIsMissing:
    def test_too_few_runs_stand_in_the_title(self, drawn):
        figures.draw_deep(runs([0.8, 0.9], experiment="deep", at=3), "deep")
        assert "Cora\n2 of 5 runs" in texts(drawn[0])
        assert "Actor\nno runs" in texts(drawn[0])
        assert "no memory was recorded" in texts(drawn[0])

    def test_uneven_runs_stand_in_the_title(self, drawn):
        records = runs([0.8] * 5, experiment="deep", at=3) + runs([0.8], experiment="deep", at=5)
        figures.draw_deep(records, "deep")
        assert "Cora\n1 to 5 of 5 runs" in texts(drawn[0])

    def test_a_point_that_one_model_lacks_stands_in_the_title(self, drawn):
        records = runs([0.8] * 5, experiment="deep", at=3) + runs(
            [0.8] * 5, experiment="deep", at=5
        )
        records += runs([0.7] * 5, experiment="deep", at=3, model="GCN")
        figures.draw_deep(records, "deep")
        assert "Cora\n0 to 5 of 5 runs" in texts(drawn[0])

    def test_diverged_runs_stand_in_the_title_and_points_without_scores_are_left_out(self, drawn):
        deep = {"experiment": "deep", "model": "GAT"}
        records = runs([0.8] * 5, at=3, **deep)
        records += [record(seed=s, at=50, diverged=1, **NO_SCORES, **deep) for s in range(5)]
        figures.draw_deep(records, "deep")
        assert "Cora\n5 of 10 runs diverged, 5 without a score" in texts(drawn[0])
        [line] = drawn[0].axes[0].get_lines()
        assert line.get_xdata().tolist() == [3]

    @pytest.mark.parametrize("name", FIGURES)
    def test_every_figure_copes_without_scores(self, name, drawn):
        lost = [dataclasses.replace(r, diverged=1, **NO_SCORES) for r in everything()]
        FIGURES[name](lost, name)
        assert len(drawn) == 1

    def test_a_bar_without_scores_says_so(self, drawn):
        figures.draw_hops(
            [record(experiment="hops", variant="sum", diverged=1, **NO_SCORES)], "hops"
        )
        assert "no scores" in texts(drawn[0])

    def test_a_missing_bar_says_so(self, drawn):
        figures.draw_hops(everything(), "hops")
        panels = {panel.get_title(): panel for panel in drawn[0].axes}
        assert [text.get_text() for text in panels["Actor"].texts].count("no runs") == 1
        assert not any(text.get_text() == "no runs" for text in panels["Cora"].texts)

    def test_bars_stand_at_the_mean_with_the_deviation(self, drawn):
        figures.draw_hops(runs([0.80, 0.82, 0.87], experiment="hops", variant="sum"), "hops")
        panel = drawn[0].axes[0]
        assert [bar.get_height() for bar in panel.patches] == [pytest.approx(83)]
        (ends,) = panel.collections[0].get_segments()
        assert ends[1, 1] - ends[0, 1] == pytest.approx(2 * 3.6056, rel=1e-4)  # sqrt(13)


def test_gates_are_those_of_the_lowest_seed_times_the_heads(drawn):
    gates = {seed: [[1.0, 1.0], [share, 1 - share]] for seed, share in ((4, 0.9), (1, 0.25))}
    figures.draw_gates([record(seed=seed, gates=rows) for seed, rows in gates.items()], "gates")
    panel = drawn[0].axes[0]
    assert panel.get_title() == "Cora, seed 1"
    assert panel.images[0].get_array()[1].tolist() == [0.5, 1.5]


def test_hop_weights_are_averaged_over_runs(drawn):
    weights = ([1.0, 0.8, 0.5], [1.2, 0.6, 0.5])
    records = [
        record(experiment="deep", at=2, variant="K=2", seed=seed, hop_weights=row)
        for seed, row in enumerate(weights)
    ]
    figures.draw_gpr(records, "gpr")
    (line,) = [line for line in drawn[0].axes[0].get_lines() if line.get_label() == "K=2"]
    assert line.get_ydata().tolist() == pytest.approx([1.1, 0.7, 0.5])
