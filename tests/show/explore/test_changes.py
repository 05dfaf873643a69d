"""What if, why rather, and which columns: what the page is told, and the page in a real browser."""

import csv
import io
import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

import subtree_attention as sta
from subtree_attention.config import STAGNNSettings
from subtree_attention.datasets import load
from subtree_attention.nn import build
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import server
from subtree_attention.show.pages.serving import address, listen, serving
from subtree_attention.show.subtree import take_apart
from tests.show.explore.test_drawing import CY, spot, until
from tests.show.made import made_run

GENRES = {"drama": "loss winter father", "comedy": "wedding uncle cake"}
A, B = (
    ["sea", "dog", "boat", "house", "tree"],
    ["red", "green", "blue", "old", "new", "first", "last", "lost"],
)
TITLES = ("The Winter", "A Wedding", "<i>Seven</i>", "=2+2")


@pytest.fixture(scope="module")
def views(tmp_path_factory) -> Views:
    """Of films with titles, years, countries and plots."""
    names = [[*GENRES][i % 2] for i in range(40)]
    nodes = {
        "id": [f"f{i}" for i in range(40)],
        "title": [f"{TITLES[i % 4]} {i}" for i in range(40)],
        "year": [1960.0 + i for i in range(40)],
        "country": ["Chile" if i % 3 else "Kenya" for i in range(40)],
        "plot": [f"{GENRES[name]} {A[i % 5]} {B[i % 8]}" for i, name in enumerate(names)],
        "genre": names,
    }
    ends = [(i, (i + step) % 40) for i in range(40) for step in (1, 2, 8)]
    edges = {"source": [f"f{a}" for a, _ in ends], "target": [f"f{b}" for _, b in ends]}
    data = sta.from_tables(nodes, edges, target="genre", name="title")
    config = sta.recipe(data, graph="films", runs=1, epochs=8, hops=3, heads=2)
    folder = tmp_path_factory.mktemp("films") / "run"
    return Views.of_run(sta.fit(config, folder, device="cpu", data=data).folder)


@pytest.fixture(scope="module")
def url(views):
    with listen(0) as listening, serving(server(views, listening), listening):
        yield f"{address(listening)}/"


def opened(page, url, id, options=""):
    page.goto(f"{url}#/node/{id}{options}")
    expect(page.locator("#root")).to_contain_text(id)
    expect(page.locator("#sources a").first).to_be_visible()


class TestViews:
    def test_differences_of_two_logits_add_up(self, views):
        for head in (None, 1):
            view = views.node("f3", head=head, cls="drama", rather="comedy")
            drama, comedy = (view["logits"][view_class(views, name)] for name in GENRES)
            parts = view["parts"]
            whole = sum(source["contribution"] for source in parts["sources"])
            names = ("others_contribution", "beyond", "other_heads", "bias")
            whole += sum(parts[name] for name in names)
            assert whole == pytest.approx(drama - comedy, abs=1e-5)
            assert parts["logit"] == pytest.approx(drama - comedy, abs=1e-5)

    def test_what_is_shown_is_as_it_is_after_the_changes(self, views):
        changes = ["node:f5", "edge:f3>f4", "word:plot:wedding", "column:year=1999"]
        view, before = views.node("f3", changes=changes), views.node("f3")
        run = views._run
        made = {"without": ["f5"], "cut": [("f3", "f4")], "words": [("plot", "wedding")]}
        what_if = run.what_if("f3", **made, values={"year": 1999})
        assert view["probabilities"] == what_if.probabilities[1].tolist()
        assert view["changed"]["probabilities"] == what_if.probabilities[0].tolist()
        assert view["changed"]["probabilities"] == pytest.approx(before["probabilities"])
        assert view["parts"]["logit"] == pytest.approx(
            view["logits"][view_class(views, view["class"])], abs=1e-5
        )
        assert "f5" not in {node["id"] for node in view["nodes"]}
        assert view["nodes"][0]["predicted"] == view["predicted"]
        assert [each["told"] for each in view["changed"]["changes"]] == [
            f"without {TITLES[1]} 5",
            f"without {TITLES[3]} 3 → {TITLES[0]} 4",
            "plot without 'wedding'",
            "year = 1999",
        ]
        assert any("scaled as in training" in each for each in view["changed"]["kept"])

    def test_all_of_the_root_is_told_as_it_is_after_the_changes(self, views):
        changes = ["node:f4", "edge:f5>f3", "column:year=1999"]
        view = views.node("f3", hops=2, changes=changes)
        drawn = [node for node in view["nodes"] if node["id"] == "f3"]
        assert len(drawn) > 1  # walks come back to it
        for told in (*drawn, *(one for one in view["parts"]["sources"] if one["id"] == "f3")):
            assert told["predicted"] == view["predicted"]
            assert told["probability"] == view["probability"]
        for node in drawn:
            shares = dict(node["about"]["probabilities"])
            assert shares[view["predicted"]] == view["probability"]
            assert ("degree", "6", "4") in node["about"]["columns"]
        assert ("year", "1963", "1999") in view["columns"]
        assert ("country", "Kenya") in view["columns"]

    def test_the_class_predicted_now_is_explained(self, views):
        for id, changes in flips(views):
            before, view = views.node(id), views.node(id, changes=changes)
            assert view["class"] == view["predicted"] != before["class"]
            logit = view["logits"][view_class(views, view["class"])]
            columns = views.columns(id, changes=changes)
            assert columns["all"] + columns["bias"] == pytest.approx(logit, abs=1e-5)
            pair = views.node(id, changes=changes, rather=view["predicted"])
            assert pair["class"] == before["class"]  # what was asked is asked still

    def test_columns_and_biases_are_the_logit(self, views):
        for rather in (None, "drama"):
            told = views.columns("f3", "comedy", rather, ["node:f5"])
            view = views.node("f3", cls="comedy", rather=rather, changes=["node:f5"])
            assert told["all"] + told["bias"] == pytest.approx(view["parts"]["logit"], abs=1e-5)

    def test_what_can_be_changed_of_a_node(self, views):
        inputs = views.node("f3")["inputs"]
        assert sorted(inputs["plot"]["words"]) == ["cake", "house", "old", "uncle", "wedding"]
        assert inputs["country"]["one_of"] == ["Chile", "Kenya"]
        assert inputs["year"]["numeric"]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (["node:f3"], "it cannot be left out itself"),
            (["node:f99"], "f99"),
            (["edge:f3>f30"], "there is no edge from 'f3' to 'f30'"),
            (["word:plot:robot"], "has no 'robot'"),
            (["column:year=soon"], "'year' cannot be 'soon'"),
        ],
    )
    def test_what_cannot_be_changed_is_told(self, views, changes, words):
        with pytest.raises(ValueError, match=re.escape(words)):
            views.node("f3", changes=changes)

    def test_a_class_is_not_rather_itself(self, views):
        with pytest.raises(ValueError, match="is the class that is explained"):
            views.node("f3", cls="drama", rather="drama")


def flips(views) -> list[tuple[str, list[str]]]:
    """A node whose predicted class changes without its words."""
    for i in range(40):
        id = f"f{i}"
        words = views.node(id)["inputs"]["plot"]["words"]
        changes = [*(f"word:plot:{word}" for word in words), f"node:f{(i + 2) % 40}"]
        view = views.node(id, changes=changes)
        if view["predicted"] != view["changed"]["predicted"]:
            return [(id, changes)]
    pytest.fail("no prediction changes")


def view_class(views, name):
    return views.graph()["classes"].index(name)


class TestPage:
    def test_a_node_is_left_out_and_back_takes_it_back(self, page, url):
        opened(page, url, "f3")
        expect(page.locator("#what-if")).to_be_hidden()
        name = page.evaluate(f"{CY}.getElementById('node-2').data('told').name")
        page.mouse.move(*spot(page, "node-2"))
        page.locator("#card").get_by_role("button", name="leave it out").click()
        expect(page.locator("#changes")).to_contain_text(f"without {name}")
        expect(page).to_have_url(re.compile("without=node%3Af"))
        expect(page.locator("#classes")).to_contain_text("before")
        expect(page.locator("#kept")).to_contain_text("weights and calibration stay")
        names = f"{CY}.nodes('.mark').map((node) => node.data('told').name)"
        assert name not in page.evaluate(names)
        page.go_back()
        expect(page.locator("#what-if")).to_be_hidden()
        assert name in page.evaluate(names)
        expect(page.locator("#trail li")).to_have_count(1)

    def test_delete_leaves_out_and_the_focus_stays(self, page, url):
        opened(page, url, "f3")
        page.locator("#drawing").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Delete")
        expect(page.locator("#changes li")).to_have_count(1)
        expect(page.locator("#drawing")).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="leave it out")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#changes .chip")).to_have_count(2)
        expect(page.locator("#drawing")).to_be_focused()

    def test_a_line_is_an_edge_that_can_be_cut(self, page, url):
        opened(page, url, "f3", "?hops=1")
        (x, y), (x2, y2) = spot(page, "node-0"), spot(page, "node-1")
        page.mouse.click((x + x2) / 2, (y + y2) / 2)
        expect(page.locator("#card .card-title")).to_contain_text("→ f3")
        page.get_by_role("button", name="cut its edge").click()
        expect(page.locator("#changes")).to_contain_text("→")
        until(page, f"{CY}.nodes('.mark').length === 6")

    def test_words_and_columns_are_changed_and_chips_take_back(self, page, url):
        opened(page, url, "f3")
        page.locator("#columns").get_by_text("leave out a word").last.click()
        page.get_by_role("button", name="leave out 'wedding'").click()
        expect(page.locator("#changes")).to_contain_text("plot without 'wedding'")
        for year in ("1999", "2001"):  # a column has one value
            page.locator("#columns").get_by_text("change it").first.click()
            page.get_by_role("textbox", name="another value of year").fill(year)
            page.get_by_role("button", name="try it").first.click()
            expect(page.locator("#changes")).to_contain_text(f"year = {year}")
        expect(page.locator("#changes .chip")).to_have_count(2)
        shared = page.url
        page.goto("about:blank")
        page.goto(shared)
        expect(page.locator("#changes .chip")).to_have_count(2)
        page.get_by_role("button", name="take back: plot without 'wedding'").click()
        expect(page.locator("#changes .chip")).to_have_count(1)
        page.go_back()
        expect(page.locator("#changes .chip")).to_have_count(2)
        page.get_by_role("button", name="take all back").click()
        expect(page.locator("#what-if")).to_be_hidden()
        assert "without" not in page.url

    def test_a_wrong_value_is_told_beside_its_field(self, browser, url):
        page = browser.new_page(viewport={"width": 1280, "height": 700})  # it notes a 400
        opened(page, url, "f3")
        page.locator("#columns").get_by_text("change it").first.click()
        field = page.get_by_role("textbox", name="another value of year")
        for value in ("abc", "1999"):
            field.fill(value)
            page.get_by_role("button", name="try it").first.click()
            if value == "abc":
                expect(field).to_have_accessible_description(re.compile("cannot be 'abc'"))
                expect(field).to_be_focused()
                expect(page.locator("#problem")).to_be_hidden()
        expect(page.locator("#what-if")).to_be_in_viewport()
        expect(page.locator("#said")).to_contain_text("before")
        expect(page.locator("#columns")).to_contain_text("1963, now 1999")
        page.close()

    def test_back_takes_one_step_back(self, page, url):
        opened(page, url, "f3", "?class=comedy")
        page.locator("#drawing").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Delete")
        expect(page.locator("#changes .chip")).to_have_count(1)
        page.get_by_role("combobox", name="rather than").select_option("drama")
        expect(page).to_have_url(re.compile("rather=drama"))
        page.go_back()
        expect(page).not_to_have_url(re.compile("rather=drama"))
        expect(page.locator("#changes .chip")).to_have_count(1)
        page.go_back()
        expect(page.locator("#what-if")).to_be_hidden()

    def test_the_selector_says_what_is_predicted_now(self, page, url, views):
        [(id, changes)] = flips(views)
        opened(page, url, id, f"?{urlencode([('without', change) for change in changes])}")
        now = views.node(id, changes=changes)["predicted"]
        chosen = page.locator("#controls [name=class] option").first
        expect(chosen).to_have_text(f"predicted ({now})")
        expect(page.locator("h2 .of-class")).to_have_text(f"the logit of {now}")

    def test_another_root_has_no_changes(self, page, url):
        opened(page, url, "f3", "?without=node:f5")
        page.locator("#sources a").nth(1).click()
        expect(page.locator("#trail li")).to_have_count(2)
        expect(page.locator("#what-if")).to_be_hidden()
        assert "without" not in page.url

    def test_why_this_class_rather_than_that_one(self, page, url):
        opened(page, url, "f3", "?class=comedy")
        page.get_by_role("combobox", name="rather than").select_option("drama")
        expect(page).to_have_url(re.compile("rather=drama"))
        expect(page.locator("h2 .of-class")).to_have_text("the logit of comedy less that of drama")
        told = re.findall(r"-?\d+\.\d+", page.locator("#sum").inner_text())
        assert told[0] == told[1]
        page.get_by_role("combobox", name="class").first.select_option("drama")
        expect(page.locator("h2 .of-class")).to_have_text("the logit of drama")
        assert "rather" not in page.url

    def test_the_strongest_columns_are_told(self, page, url):
        opened(page, url, "f3")
        rows = page.locator("#by-column tr")
        expect(rows.nth(1)).to_be_visible()
        expect(page.locator("#columns-said")).to_contain_text("exact")
        *parts, logit = [
            float(text.replace("\N{MINUS SIGN}", "-"))
            for text in page.locator("#by-column td:last-child").all_text_contents()
        ]
        assert sum(parts) == pytest.approx(logit, abs=5e-4 * len(parts))

    def test_a_word_is_left_out_where_it_is_told(self, page, url):
        opened(page, url, "f3")
        out = page.locator("#by-column").get_by_role("button", name="leave out plot: ").first
        name = out.get_attribute("aria-label").removeprefix("leave out plot: ")
        out.click()
        expect(page.locator("#changes")).to_contain_text(f"plot without '{name}'")
        expect(page.get_by_role("button", name=f"leave out plot: {name}")).to_have_count(0)

    def test_nodes_are_called_by_their_names(self, page, url):
        opened(page, url, "f2")
        expect(page.locator("#root")).to_have_text("<i>Seven</i> 2 f2")
        expect(page.locator("#trail li")).to_have_text(["<i>Seven</i> 2"])
        expect(page.locator("#sources .id").first).to_have_text(re.compile(r"^ f\d+$"))
        names = page.evaluate(f"{CY}.nodes('.mark').map((node) => node.data('name'))")
        assert any(name.startswith("The Winter") for name in names)
        page.locator("#find").fill("uncle")
        found = page.locator("#found [role=option]").first
        expect(found).to_contain_text("plot: wedding uncle cake")
        expect(found).to_contain_text("f1")
        assert page.locator("main i, header i").count() == 0


def test_pictures_stand_inside_of_nodes(browser):
    data = load("digits")
    run = made_run(build(STAGNNSettings(hidden_channels=8, hops=2, heads=2), 64, 10), data)
    with listen(0) as listening, serving(server(Views(run), listening), listening):
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text))
        opened(page, f"{address(listening)}/", "5")
        until(page, f"{CY}.nodes('.pictured').length > 10")
        expect(page.locator("#root img")).to_be_visible()
        frames = page.evaluate(
            f"""{CY}.nodes('.pictured').map((node) =>
                [node.style('border-color'), node.data('fill')])"""
        )
        assert all(border == fill.replace(" ", "") for border, fill in frames)
        page.get_by_role("button", name="leave out feature").first.click()
        expect(page.locator("#changes")).to_contain_text(re.compile(r"feature \d+ = 0"))
        page.close()
    assert complaints == []


class TestTaken:
    def test_a_table_without_formulas(self, views):
        rows = list(csv.DictReader(io.StringIO(views.table(id="f3", hops=2).decode())))
        view = views.node("f3", 2)
        assert [row["id"] for row in rows] == [node["id"] for node in view["nodes"]]
        assert rows[0]["name"] == f"'{TITLES[3]} 3"  # which begins with =
        assert float(rows[1]["attention"]) == view["nodes"][1]["attention"]
        assert rows[-1]["walk"] == " > ".join(view["nodes"][-1]["walk"])
        assert any(float(row["contribution"]) < 0 for row in rows)  # numbers are numbers

    def test_what_is_not_drawn_has_a_row(self, views, monkeypatch):
        monkeypatch.setattr(take_apart, "__defaults__", (10,))
        rows = list(csv.DictReader(io.StringIO(views.table(id="f3", hops=3).decode())))
        for hop in (2, 3):
            level = [row for row in rows if row["level"] == str(hop)]
            assert re.fullmatch(r"\d+ others", level[-1]["id"])
            assert sum(float(row["attention"]) for row in level) == pytest.approx(1, abs=1e-3)

    @pytest.mark.parametrize("look", ["light", "dark"])
    def test_a_picture_that_stands_alone(self, views, look):
        drawn = views.svg(look, id="f2", hops=2, changes=["node:f5"]).decode()
        assert drawn.startswith("<svg")
        assert "&lt;i&gt;Seven" in drawn
        assert "<i>" not in drawn

    @pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
    def test_buttons(self, page, url):
        opened(page, url, "f3", "?without=node:f5")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        starts = {"SVG": b"<svg", "CSV": b"level,id", "PNG": b"\x89PNG"}
        for name, start in starts.items():
            with page.expect_download() as download:
                page.locator("#take").get_by_text(name, exact=True).click()
            assert download.value.suggested_filename == f"subtree--2-2-3.{name.lower()}"
            assert download.value.path().read_bytes().startswith(start)
