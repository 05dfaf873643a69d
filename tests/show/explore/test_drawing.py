"""The picture of a subtree in a real browser: rings and their rests, names, wheel and fingers."""

import random
import re

import pytest
import torch
from playwright.sync_api import expect

from subtree_attention import Dataset
from subtree_attention.config import STAGNNSettings
from subtree_attention.nn import build
from subtree_attention.show.explore import Views
from subtree_attention.show.explore.server import server
from subtree_attention.show.pages.serving import address, listen, serving
from tests.show.explore.test_page import opened, root
from tests.show.made import made_run

CY = "document.getElementById('drawing')._cyreg.cy"


@pytest.fixture(scope="module")
def url():
    """The page of a graph of which only a part can be drawn; no edge leads to its last node."""
    torch.manual_seed(0)
    y = torch.randint(9, (400,))
    edges = torch.randint(399, (2, 3200))
    data = Dataset(torch.randn(400, 6), edges, y, name="large")
    run = made_run(build(STAGNNSettings(hidden_channels=16, hops=3, heads=6), 6, 9), data)
    with listen(0) as listening, serving(server(Views(run), listening), listening):
        yield address(listening)


@pytest.fixture
def phone(browser, url):
    """A page on a small screen with fingers, on the large graph."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    opened(page, url, "5")
    page.locator("#drawing").scroll_into_view_if_needed()
    yield page
    context.close()
    assert complaints == []


def spot(page, name):
    """Where a node or the rest of a level stands, on the screen."""
    box = page.locator("#drawing").bounding_box()
    at = page.evaluate(f"{CY}.getElementById('{name}').renderedPosition()")
    return box["x"] + at["x"], box["y"] + at["y"]


def until(page, condition):
    """Wait for what is true on the page; its policy forbids the browser's own way of waiting."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"it never was: {condition}")


def captions(page):
    return page.evaluate(f"{CY}.nodes('.caption').map((node) => node.data('name'))")


class TestRings:
    def test_every_ring_says_how_much_of_it_is_drawn(self, page, url):
        opened(page, url, "5")
        first, second, third = captions(page)
        assert re.fullmatch(r"hop 1: all \d+", first)
        assert re.fullmatch(r"hop 2\n\d+ of \d+, \d+ %", second)
        assert re.fullmatch(r"hop 3\n\d+ of \d+, \d+ %", third)

    def test_the_rest_of_a_level_is_opened_again_and_again(self, page, url):
        opened(page, url, "5")
        for asked in (r"open=3%3A\d+$", r"open=3%3A\d+$"):
            before = page.evaluate(f"{CY}.nodes('.mark').length")
            page.mouse.click(*spot(page, "rest-3"))
            expect(page).to_have_url(re.compile(asked))
            until(page, f"{CY}.nodes('.mark').length === {before + 30}")
        page.mouse.click(*spot(page, "rest-2"))
        expect(page).to_have_url(re.compile(r"open=3%3A\d+%2C2%3A\d+$"))
        root(page, "5")  # it is not another root

    def test_more_than_a_ring_can_show_is_told_in_words(self, page, url):
        opened(page, url, "5", "?open=3:9999")
        page.get_by_text("The subtree as a list").click()
        expect(page.locator("#list section").last.locator("li")).to_have_count(241)
        expect(page.locator("#list section").last).to_contain_text("no more of hop 3 are drawn")

    def test_the_list_opens_it_too(self, page, url):
        opened(page, url, "5")
        page.get_by_text("The subtree as a list").click()
        section = page.locator("#list section").last
        before = section.locator("li").count()
        section.get_by_role("button").press("Enter")
        expect(section.locator("li")).to_have_count(before + 30)

    def test_keys_reach_the_rest(self, page, url):
        opened(page, url, "5")
        page.locator("#drawing").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        for _ in range(60):
            if "other nodes of hop 2" in page.locator("#card .card-title").inner_text():
                break
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("open=2"))
        expect(page.locator("#card .card-title")).to_contain_text("of hop 2")  # where one was
        expect(page.locator("#drawing")).to_be_focused()

    def test_another_root_has_nothing_opened(self, page, url):
        opened(page, url, "5", "?open=3:90")
        page.locator("#sources a").nth(1).click()
        expect(page.locator("#trail li")).to_have_count(2)
        assert "open" not in page.url

    def test_only_mistakes_wear_a_ring(self, page, url):
        opened(page, url, "5")
        for wrong, ring in page.evaluate(
            f"""{CY}.nodes('.mark').map((node) => [
                node.data('told').label !== node.data('told').predicted,
                parseFloat(node.style('outline-width'))])"""
        ):
            assert (ring > 0) == wrong

    def test_a_node_that_no_edge_leads_to_has_a_sentence(self, page, url):
        opened(page, url, "399")
        expect(page.get_by_text("No edge leads to this node")).to_be_visible()
        opened(page, url, "5")
        expect(page.get_by_text("No edge leads to this node")).to_be_hidden()


class TestNames:
    def test_no_name_meets_a_node_or_another_name(self, page, url):
        opened(page, url, "5", "?open=2:60")
        for _ in range(3):
            boxes = page.evaluate(
                f"""{CY}.nodes('.named').filter((node) => node.data('name')).map((node) => {{
                    const {{ x1, y1, x2, y2 }} = node.renderedBoundingBox(
                        {{ includeNodes: false, includeEdges: false, includeOutlines: false }});
                    return [x1 + 3, y1 + 3, x2 - 3, y2 - 3];  // without its halo
                }})"""
            )
            assert len(boxes) > 10
            for i, (left, top, right, bottom) in enumerate(boxes):
                for x1, y1, x2, y2 in boxes[:i]:
                    assert right <= x1 or x2 <= left or bottom <= y1 or y2 <= top
            page.locator("#closer").click()
            page.wait_for_timeout(200)

    def test_names_are_placed_greedily_and_apart(self, page, url):
        page.goto(url)
        random.seed(0)
        items = [
            {
                "x": random.uniform(0, 400),
                "y": random.uniform(0, 400),
                "reach": random.uniform(2, 12),
                "wide": random.choice([0, 25, 60]),
                "high": 13,
            }
            for _ in range(80)
        ]
        sides = page.evaluate(
            """async (items) => {
            const { sides, written } = await import('/static/labels.js');
            items.forEach((item, i) => (item.sides = sides(i)));
            return written(items, [400, 400]);
        }""",
            items,
        )
        boxes = []
        for item, side in zip(items, sides, strict=True):
            if side is None:
                continue
            x, y, away = item["x"], item["y"], item["reach"] + 4
            wide, high = item["wide"], item["high"]
            left = {"right": x + away, "left": x - away - wide}.get(side, x - wide / 2)
            top = {"top": y - away - high, "bottom": y + away}.get(side, y - high / 2)
            assert 0 <= left <= 400 - wide
            assert 0 <= top <= 400 - high
            for other in items:
                dx = other["x"] - min(max(other["x"], left), left + wide)
                dy = other["y"] - min(max(other["y"], top), top + high)
                assert dx * dx + dy * dy >= other["reach"] ** 2
            box = (left, top, left + wide, top + high)
            for x1, y1, x2, y2 in boxes:
                assert box[2] <= x1 or x2 <= box[0] or box[3] <= y1 or y2 <= box[1]
            boxes.append(box)
        assert 10 < len(boxes) < 80

    def test_zoom_shows_more_names_of_the_same_size(self, page, url):
        opened(page, url, "5", "?open=3:120")
        seen = f"""() => {{
            const within = {CY}.extent();
            const named = {CY}.nodes('.mark').filter((node) => node.position('x') > within.x1
                && node.position('x') < within.x2 && node.position('y') > within.y1
                && node.position('y') < within.y2);
            const texts = named.filter((node) => node.data('name'));
            const size = parseFloat(texts[1].style('font-size')) * {CY}.zoom();
            return [texts.length / named.length, size];
        }}"""
        share, size = page.evaluate(seen)
        x, y = spot(page, "node-0")
        page.mouse.move(x + 60, y - 60)
        for _ in range(6):
            page.mouse.wheel(0, -120)
            page.wait_for_timeout(30)
        page.wait_for_timeout(300)
        closer, same = page.evaluate(seen)
        assert closer > share
        assert same == pytest.approx(size, abs=0.1)


class TestPointer:
    def test_a_click_makes_a_root(self, page, url):
        opened(page, url, "5")
        name = page.evaluate(f"{CY}.getElementById('node-2').data('told').id")
        page.mouse.move(*spot(page, "node-2"))
        expect(page.locator("#card .card-title")).to_have_text(name)
        page.mouse.click(*spot(page, "node-2"))
        root(page, name)

    def test_one_can_go_to_the_card(self, page, url):
        opened(page, url, "5")
        name = page.evaluate(f"{CY}.getElementById('node-2').data('told').id")
        page.mouse.move(*spot(page, "node-2"))
        button = page.locator("#card").get_by_role("button", name="make it the root")
        button.hover()
        page.wait_for_timeout(500)
        button.click()
        root(page, name)

    def test_the_wheel_zooms_and_never_holds_the_page(self, page, url):
        opened(page, url, "5")
        zoom = page.evaluate(f"{CY}.zoom()")
        page.mouse.move(*spot(page, "node-0"))
        page.mouse.wheel(0, -120)
        until(page, f"{CY}.zoom() > {zoom * 1.1}")
        assert page.evaluate("scrollY") == 0
        for _ in range(12):
            page.mouse.wheel(0, 120)
            page.wait_for_timeout(20)
        until(page, "scrollY > 0")  # the whole is seen again, so the page goes on
        assert page.evaluate(f"{CY}.zoom()") == pytest.approx(zoom)
        page.mouse.wheel(0, -120)  # what began as scrolling is scrolling
        page.wait_for_timeout(100)
        assert page.evaluate(f"{CY}.zoom()") == pytest.approx(zoom)


class TestFingers:
    def test_a_tap_shows_a_card_and_a_second_makes_a_root(self, phone):
        name = phone.evaluate(f"{CY}.getElementById('node-2').data('told').id")
        phone.touchscreen.tap(*spot(phone, "node-2"))
        expect(phone.locator("#card .card-title")).to_have_text(name)
        root(phone, "5")
        expect(phone.get_by_role("button", name="make it the root")).to_be_visible()
        phone.touchscreen.tap(*spot(phone, "node-2"))
        root(phone, name)

    def test_the_button_of_the_card_makes_a_root(self, phone):
        name = phone.evaluate(f"{CY}.getElementById('node-2').data('told').id")
        phone.touchscreen.tap(*spot(phone, "node-2"))
        phone.get_by_role("button", name="make it the root").tap()
        root(phone, name)

    def test_one_finger_scrolls_and_two_zoom(self, phone):
        phone.evaluate("scrollTo(0, 0)")
        session = phone.context.new_cdp_session(phone)

        def touch(kind, *places):
            points = [{"x": x, "y": y} for x, y in places]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        x, y = spot(phone, "node-0")
        zoom = phone.evaluate(f"{CY}.zoom()")
        touch("touchStart", (x, y))
        for step in range(20):
            touch("touchMove", (x, y - 10 * step))
        touch("touchEnd")
        until(phone, "scrollY > 100")
        assert phone.evaluate(f"{CY}.zoom()") == pytest.approx(zoom)
        expect(phone.locator("#card")).to_be_hidden()
        x, y = spot(phone, "node-0")
        touch("touchStart", (x - 20, y), (x + 20, y))
        for apart in (40, 60, 80):
            touch("touchMove", (x - apart, y), (x + apart, y))
        touch("touchEnd")
        until(phone, f"{CY}.zoom() > {zoom * 2}")
        assert phone.evaluate("visualViewport.scale") == 1

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_a_phone_cuts_nothing_and_a_wide_table_says_so(self, phone, scheme):
        phone.emulate_media(color_scheme=scheme)
        assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = phone.locator(".wide").first
        assert wide.evaluate("(table) => table.scrollWidth > table.clientWidth")
        assert (
            wide.evaluate("(table) => getComputedStyle(table).backgroundImage").count("gradient")
            == 4
        )


def test_nodes_of_a_ring_have_room_and_lines_do_not_cross(page, url, views):
    page.goto(url)
    nodes = views.node("p1", 4)["nodes"]
    told = [
        {"hop": n["hop"], "parent": n["parent"], "size": 10 + 36 * (i % 3)}
        for i, n in enumerate(nodes)
    ]
    told += [{"hop": "global", "parent": None, "size": 30}] * 9
    top = {"left": 40, "right": 40, "up": 30, "down": 15}
    spots = page.evaluate(
        """async ([nodes, top]) => {
            const hops = new Set(nodes.map((node) => node.hop).filter((hop) => hop !== 0));
            const tops = new Map([...hops].map((hop) => [hop, top]));
            return (await import('/static/layout.js')).place(nodes, tops).spots;
        }""",
        [told, top],
    )
    for i, (one, at) in enumerate(zip(told, spots, strict=True)):
        for other, there in list(zip(told, spots, strict=True))[:i]:
            if one["hop"] == other["hop"]:
                apart = ((at["x"] - there["x"]) ** 2 + (at["y"] - there["y"]) ** 2) ** 0.5
                assert apart >= (one["size"] + other["size"]) / 2
    for hop in range(2, 5):  # in the order of the angles, parents come in order too
        level = sorted(
            (spots[i]["angle"], spots[n["parent"]]["angle"])
            for i, n in enumerate(told)
            if n["hop"] == hop and told[n["parent"]]["hop"] == hop - 1
        )
        parents = [parent for _, parent in level]
        assert parents == sorted(parents)
