"""The start of the page in a real browser: the map, its filters, the lasso and the lists."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.show.explore.conftest import WAYS, watched


def drawn(page: Page) -> None:
    """Wait until the map stands still."""
    expect(page.locator("#map canvas")).to_be_visible()
    expect(page.locator("#map-legend button")).to_have_count(2)


def by_pca(page: Page, url: str, more: str = "") -> None:
    page.goto(f"{url}#/?by=pca&split=all{more}")
    drawn(page)


def box(page: Page) -> dict:
    page.locator("#map").scroll_into_view_if_needed()
    return page.locator("#map").bounding_box()


def at(page: Page, x: float, y: float) -> tuple[float, float]:
    """A place of the map on the screen; its height is the smaller side, or its width on a phone."""
    frame = box(page)
    unit = 0.94 * min(frame["width"], frame["height"]) / 2
    middle = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    return middle[0] + unit * float(x), middle[1] - unit * float(y)


def around(page: Page, *corners: tuple[float, float]) -> None:
    """Draw a lasso."""
    page.mouse.move(*at(page, *corners[0]))
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*at(page, *corner), steps=4)
    page.mouse.up()


EVERYTHING = ((-1.05, -1.05), (1.05, -1.05), (1.05, 1.05), (-1.05, 1.05))


@pytest.mark.parametrize("page", list(WAYS), indirect=True)
def test_the_map_is_drawn_and_nothing_is_cut_off(page, url):
    page.goto(url)
    drawn(page)
    expect(page.locator("#facts")).to_contain_text("of 8 test nodes predicted right")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shot = page.locator("#map").screenshot()
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    expect(page).to_have_url(re.compile(r"at="))
    assert page.locator("#map").screenshot() != shot
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile(r"at="))


def test_the_split_is_test_until_another_is_chosen(page, url):
    page.goto(url)
    expect(page.get_by_role("radio", name="test")).to_be_checked()
    page.get_by_role("radio", name="training").check(force=True)
    expect(page).to_have_url(re.compile("split=train"))
    expect(page.locator("#facts")).to_contain_text("training nodes predicted right")
    page.reload()
    expect(page.locator("#facts")).to_contain_text("training nodes predicted right")
    page.get_by_role("radio", name="all").check(force=True)
    expect(page.locator("#facts")).to_contain_text("of 39 known labels predicted right")
    expect(page.locator("#lists")).to_contain_text("training")


def test_classes_and_cells_are_filters(page, url, views):
    by_pca(page, url)
    first = page.locator("#map-legend button").first
    first.click()
    expect(page).to_have_url(re.compile("predicted=%3Cb%3Eno"))
    expect(first).to_have_attribute("aria-pressed", "true")
    names = page.locator("#lists .pair > .class-name:first-child")
    expect(names.first).to_have_text("<b>no</b>")
    assert set(names.all_text_contents()) == {"<b>no</b>"}
    page.get_by_role("button", name="Clear filters").click()
    expect(page).not_to_have_url(re.compile("predicted="))
    cell = page.locator("#confusion button").first
    nodes = int(cell.inner_text())
    cell.click()
    expect(page).to_have_url(re.compile("true=.*&predicted="))
    expect(cell).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#lists section").last.locator("li")).to_have_count(min(20, nodes))
    expect(page.locator("#lists section")).to_have_count(1 if nodes <= 20 else 3)
    cell.click()
    expect(page).not_to_have_url(re.compile("predicted="))
    expect(cell).to_be_focused()


def test_colour_and_mistakes_are_in_the_address(page, url):
    by_pca(page, url)
    page.get_by_role("radio", name="True class").check(force=True)
    expect(page.locator("#legend-title")).to_have_text("True classes")
    page.get_by_role("checkbox", name="Mistakes only").check()
    expect(page).to_have_url(re.compile("colour=true.*mistakes=only"))
    page.reload()
    expect(page.get_by_role("checkbox", name="Mistakes only")).to_be_checked()
    expect(page.get_by_role("radio", name="True class")).to_be_checked()


def test_a_lasso_lists_its_nodes_and_is_in_the_address(page, url):
    by_pca(page, url)
    button = page.get_by_role("button", name="Draw a lasso")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    around(page, *EVERYTHING)
    expect(page.locator("#selected h2")).to_contain_text("40 nodes in the lasso")
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#selected ol li")).to_have_count(20)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#selected ol li")).to_have_count(40)
    expect(page.locator("#selected ol a").nth(20)).to_be_focused()
    page.reload()
    expect(page.locator("#selected h2")).to_contain_text("40 nodes in the lasso")
    page.get_by_role("radio", name="test", exact=True).check(force=True)
    expect(page.locator("#selected h2")).to_contain_text("8 nodes in the lasso")
    page.get_by_role("button", name="Clear the lasso").click()
    expect(page.locator("#selected")).to_be_hidden()
    page.keyboard.down("Shift")
    around(page, (-1.05, -1.05), (-1.05, 1.05), (-0.9, 0))
    page.keyboard.up("Shift")
    expect(page.locator("#selected h2")).to_be_visible()


def test_a_pointer_shows_a_card_and_a_click_opens_the_subtree(page, url, views):
    by_pca(page, url)
    node = int(views.map.positions("pca")[:, 0].argmax())  # the one on the right edge
    place = at(page, *views.map.positions("pca")[node])
    page.mouse.move(*place)
    page.mouse.move(place[0] + 1, place[1])
    title = page.locator("#map-card .card-title")
    expect(title).to_be_visible()
    name = title.inner_text()
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#root")).to_contain_text(name)
    expect(page.locator("#mini-map")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"#/\?by=pca&split=all"))
    drawn(page)


def test_wheel_and_drag_and_buttons_move_the_map(page, url):
    by_pca(page, url)
    page.mouse.move(*at(page, 0.2, 0.2))
    page.mouse.wheel(0, -300)
    expect(page).to_have_url(re.compile("at="))
    near = page.url
    page.mouse.down()
    page.mouse.move(*at(page, 0.5, 0.5), steps=4)
    page.mouse.up()
    page.wait_for_url(lambda now: now != near)
    assert page.locator("#start").is_visible()  # a drag is no click
    page.get_by_role("button", name="Show the whole map").click()
    expect(page).not_to_have_url(re.compile("at="))
    page.get_by_role("button", name="Zoom in").first.click()
    expect(page).to_have_url(re.compile("at=0%2C0%2C0.5"))


def test_tsne_comes_by_itself_and_pca_can_be_had_again(page, url):
    page.set_default_timeout(60_000)
    page.goto(url)
    way = page.locator("#map-way")
    expect(way.get_by_role("radio", name="t-SNE")).to_be_checked(timeout=60_000)
    way.get_by_role("radio", name="PCA").check(force=True)
    expect(page).to_have_url(re.compile("by=pca"))


def test_who_comes_back_from_a_node_is_where_they_left(page, url):
    page.goto(url)
    link = page.locator("#lists section").last.locator("a").nth(3)
    name = link.inner_text()
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_visible()
    page.go_back()
    link = page.locator("#lists section").last.locator("a").nth(3)
    expect(link).to_have_text(name)
    expect(link).to_be_focused()


def test_who_reads_a_list_goes_on_where_they_are_when_tsne_comes(page, url):
    """The lists are made anew then."""
    under_way = {"tsne": "made", "progress": 0.5, "landmarks": 40, "nodes": 40, "why": ""}
    asked = re.compile(r"/api/map\?")
    page.route(asked, lambda route: route.fulfill(json=under_way))
    page.goto(url)
    expect(page.locator("#map-progress")).to_contain_text("is on its way")
    link = page.locator("#lists section").last.locator("a").nth(3)
    link.focus()
    with page.expect_response(re.compile(r"/api/list\?what=confident")):
        page.unroute(asked)
    expect(page.locator("#map-progress")).to_have_text("")
    expect(page.locator("#lists section").last.locator("a").nth(3)).to_be_focused()


def test_on_touch_a_tap_shows_the_card_with_a_link(browser, url, views):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    with watched(page, url):
        by_pca(page, url)
        node = int(views.map.positions("pca")[:, 0].argmax())
        page.touchscreen.tap(*at(page, *views.map.positions("pca")[node]))
        link = page.locator("#map-card a")
        expect(link).to_have_text("Open its subtree")
        card, frame = page.locator("#map-card").bounding_box(), page.locator("#map").bounding_box()
        assert card["x"] >= frame["x"]
        assert card["x"] + card["width"] <= frame["x"] + frame["width"]
        expect(page.locator("#map-keys .by-touch")).to_be_visible()
        expect(page.locator("#map-keys .by-mouse")).to_be_hidden()
        assert page.locator("#start").is_visible()
        link.tap()
        expect(page.locator("#root")).to_be_visible()


def test_two_fingers_zoom(browser, url):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    with watched(page, url):
        by_pca(page, url)
        x, y = at(page, 0, 0)
        touch = page.context.new_cdp_session(page)
        for kind, apart in (("touchStart", 40), *(("touchMove", 40 + 8 * i) for i in range(1, 9))):
            fingers = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        expect(page).to_have_url(re.compile("at="))
        zoom = float(page.url.partition("at=")[2].split("%2C")[2])
        assert zoom > 0.3


def test_names_of_classes_lie_on_the_map(page, url):
    by_pca(page, url)
    names = page.locator("#map-names li")
    expect(names).to_have_count(2)
    assert set(names.all_text_contents()) == {"yes", "<b>no</b>"}
    page.locator("#map-legend button").first.click()
    expect(names).to_have_text(["<b>no</b>"])


def test_every_shape_of_a_class_can_be_drawn(page, url):
    by_pca(page, url)
    drawn = page.evaluate(
        """async () => {
            const { Scatter } = await import("/static/map.js");
            const { COLOURS } = await import("/static/colours.js");
            const make = (tag) => document.body.appendChild(document.createElement(tag));
            const canvas = make("div");
            Object.assign(canvas.style, { width: "500px", height: "100px", position: "relative" });
            const parts = { frame: make("div"), canvas, line: make("i"), names: make("ul") };
            const classes = Array(5 * COLOURS).fill("");
            const scatter = new Scatter({ ...parts, classes }, { move() {} });
            if (!(await scatter.start())) return null;
            const five = Uint32Array.from([0, 1, 2, 3, 4]), none = new Uint32Array(0);
            const places = Float32Array.from([-4, 0, -2, 0, 0, 0, 2, 0, 4, 0]);
            const fill = Uint16Array.from(five, (shape) => shape * COLOURS);
            const chosen = { right: five, wrong: none, rest: none };
            scatter.show(places, chosen, { fill, ring: fill }, null);
            await new Promise((done) => setTimeout(done, 500));
            return scatter.shown.map(({ shape }) => shape);
        }"""
    )
    assert drawn == [0, 0, 1, 2, 3, 4]


def test_without_webgl_the_lists_remain(browser, url):
    page = browser.new_page()
    with watched(page, url):
        page.add_init_script(
            """const had = HTMLCanvasElement.prototype.getContext;
            HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
                return kind.startsWith("webgl") ? null : had.call(this, kind, ...more);
            };"""
        )
        page.goto(url)
        expect(page.locator("#no-map")).to_contain_text("draws no WebGL")
        expect(page.locator("#map-figure")).to_be_hidden()
        expect(page.locator("#lists a").first).to_be_visible()
        page.locator("#map-legend button").first.click()
        expect(page).to_have_url(re.compile("predicted="))
        page.locator("#lists a").first.click()
        expect(page.locator("#root")).to_be_visible()


def test_a_wrong_address_is_as_if_it_said_nothing(page, url):
    page.goto(f"{url}#/?split=most&colour=red&by=umap&true=nobody&lasso=1,2,x&at=1")
    drawn(page)
    expect(page.get_by_role("radio", name="test")).to_be_checked()
    expect(page.locator("#selected")).to_be_hidden()


def test_polygons_and_neighbours(page, url):
    page.goto(url)
    inside = page.evaluate(
        """async () => {
            const { within } = await import("/static/points.js");
            const has = within([[0, 0], [4, 0], [4, 4], [2, 1], [0, 4]]);
            return [[1, 1], [2, 2], [3.5, 3], [5, 1], [-1, 2]].map(([x, y]) => has(x, y));
        }"""
    )
    assert inside == [True, False, True, False, False]
    wrong = page.evaluate(
        """async () => {
            const { Nearest } = await import("/static/points.js");
            const places = Float32Array.from({ length: 2000 }, (_, i) => Math.sin(i * i));
            const nodes = [Uint32Array.from({ length: 900 }, (_, i) => i), new Uint32Array([950])];
            const nearest = new Nearest(nodes, places), all = [...nodes[0], 950];
            let wrong = 0;
            for (let i = 0; i < 200; i += 1) {
                const x = 1.1 * Math.sin(7 * i), y = 1.1 * Math.cos(3 * i);
                const far = (node) => Math.hypot(places[2 * node] - x, places[2 * node + 1] - y);
                const best = all.reduce((a, b) => (far(b) < far(a) ? b : a));
                wrong += nearest.at(x, y, 0.1) !== (far(best) < 0.1 ? best : null);
            }
            return wrong;
        }"""
    )
    assert wrong == 0
