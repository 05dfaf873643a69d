"""The page in a real browser."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Request, expect, sync_playwright

from tests.show.explore.odd import HOSTILE, ODD

WAYS = {"light": (1280, 900), "dark": (1280, 900), "narrow": (320, 640)}


@pytest.fixture(scope="module")
def browser(chromium):
    with sync_playwright() as playwright:
        # Its sandbox cannot be had as root, as in most containers.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light"])
def page(browser, url, request) -> Iterator[Page]:
    """A page whose every complaint fails the test."""
    width, height = WAYS[request.param]
    scheme = "dark" if request.param == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.set_default_timeout(15_000)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("requestfailed", lambda asked: complaints.extend(failed(asked)))
    page.on("request", lambda asked: asked.url.startswith(url) or complaints.append(asked.url))
    yield page
    page.close()
    assert complaints == []


def failed(asked: Request) -> list[str]:
    """A request that failed, unless the page was left before the answer came."""
    return [] if asked.failure == "net::ERR_ABORTED" else [f"{asked.url}: {asked.failure}"]


def root(page: Page, id: str) -> None:
    """Wait until this node is the root and all is drawn."""
    expect(page.locator("#root")).to_have_text(f"node {id}", use_inner_text=False)
    expect(page.locator("#sources a").first).to_be_visible()


def opened(page: Page, url: str, id: str, options: str = "") -> None:
    page.goto(f"{url}#/node/{quote(id, safe='')}{options}")
    root(page, id)


def pixels(page: Page) -> int:
    """How many pixels of the picture are not empty."""
    return page.evaluate(
        """() => [...document.querySelectorAll("#drawing canvas")].reduce((sum, canvas) => {
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return sum + data.filter((value, i) => i % 4 === 3 && value).length;
        }, 0)"""
    )


def test_the_start_has_three_lists_and_they_lead_to_nodes(page, url):
    page.goto(url)
    expect(page.locator("#lists h2")).to_have_text(
        ["Most confident mistakes", "Least certain", "Most confident"]
    )
    expect(page.locator("#facts")).to_contain_text("40 nodes · 240 edges · 2 classes")
    first = page.locator("#lists section").last.locator("a").first
    first.click()
    expect(page).to_have_url(re.compile("#/node/"))
    expect(page.locator("#drawing canvas").first).to_be_visible()


@pytest.mark.parametrize("page", list(WAYS), indirect=True)
def test_nothing_is_cut_off_and_the_subtree_is_drawn(page, url):
    opened(page, url, "p1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert pixels(page) > 2000


def test_search_by_keys(page, url):
    page.goto(url)
    box = page.get_by_role("combobox", name="Find a node by its id")
    box.press_sequentially("p1")
    options = page.locator("#found [role=option]:visible")
    expect(options.first).to_contain_text("p1")
    box.press("ArrowDown")
    box.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    box.press("Enter")
    root(page, "p10")
    expect(options).to_have_count(0)


def test_search_by_pointer(page, url):
    opened(page, url, "p1")
    box = page.locator("#find")
    box.press_sequentially("etc/pass")
    page.locator("#found [role=option]").first.click()
    root(page, "../../etc/passwd")


def test_an_unknown_node_is_told(browser, url):
    page = browser.new_page()  # the browser itself notes the 404 on the console
    page.goto(f"{url}#/node/nobody")
    expect(page.get_by_role("alert")).to_have_text("there is no node 'nobody'")
    page.close()


def test_the_slider_and_the_switches_change_the_address_and_the_view(page, url):
    opened(page, url, "p1")
    assert page.locator("#list section").count() == 4  # hops 0 to 3
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("ArrowLeft")
    expect(page).to_have_url(re.compile("hops=2"))
    expect(page.locator("#list section")).to_have_count(3)
    expect(page.locator("#sources")).to_contain_text("beyond hop 2")
    page.get_by_role("combobox", name="head").select_option("2")
    expect(page.locator("#sources")).to_contain_text("other heads")
    page.get_by_role("radio", name="Contribution").check(force=True)
    expect(page.locator("#legend")).to_contain_text("takes away")
    page.get_by_role("combobox", name="class").select_option("yes")
    expect(page.locator("#sources")).to_contain_text("logit of yes")
    shared = page.url
    for part in ("hops=2", "head=2", "by=contribution", "class=yes"):
        assert part in shared
    page.goto("about:blank")
    page.goto(shared)
    root(page, "p1")
    expect(page.locator("#sources")).to_contain_text("logit of yes")
    expect(page.get_by_role("combobox", name="head")).to_have_value("2")


def test_the_rows_add_up(page, url):
    opened(page, url, "p1", "?head=1&hops=1")
    cells = page.locator("#sources tr td:last-child").all_text_contents()
    *parts, logit = [float(cell.replace("\N{MINUS SIGN}", "-")) for cell in cells]
    assert sum(parts) == pytest.approx(logit, abs=5e-4 * len(cells))  # three digits each
    told = re.findall(r"-?\d+\.\d+", page.locator("#sum").inner_text())
    assert told[0] == told[1]


def test_keys_move_and_enter_makes_a_root_and_back_returns(page, url):
    opened(page, url, "p1")
    page.locator("#drawing").focus()
    expect(page.locator("#card .card-title")).to_have_text("p1")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#card")).to_contain_text("hop 1")
    first = page.locator("#card .card-title").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#card .card-title")).not_to_have_text(first)
    chosen = page.locator("#card .card-title").inner_text()
    expect(page.locator("#said")).to_contain_text(f"{chosen}: predicted")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#card")).to_contain_text("hop 0")
    page.keyboard.press("ArrowDown")
    chosen = page.locator("#card .card-title").inner_text()
    page.keyboard.press("Enter")
    root(page, chosen)
    expect(page.locator("#trail li")).to_have_text(["p1", chosen])
    page.go_back()
    root(page, "p1")
    expect(page.locator("#trail li")).to_have_text(["p1"])
    page.go_forward()
    root(page, chosen)
    page.locator("#trail a").first.click()
    root(page, "p1")
    expect(page.locator("#trail li")).to_have_text(["p1"])


def test_a_click_on_the_picture_makes_a_root(page, url):
    opened(page, url, "p1", "?hops=1")
    box = page.locator("#drawing").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    # The picture gives way to the card, so look for nodes instead of knowing where they stand.
    page.locator("#drawing").scroll_into_view_if_needed()
    card = page.locator("#card")
    for step in range(10, 120):
        page.mouse.move(middle[0] + 130 + 2 * step, middle[1])
        for down in range(-240, 241, 30):
            page.mouse.move(middle[0] + 2 * step, middle[1] + down)
            if card.is_visible() and "hop 1" in card.inner_text():
                name = page.locator("#card .card-title").inner_text()
                page.mouse.down()
                page.mouse.up()
                root(page, name)
                return
    pytest.fail("no node of hop 1 was found under the pointer")


@pytest.mark.parametrize("id", ODD)
def test_odd_ids_have_addresses(page, url, id):
    opened(page, url, id)
    page.locator("#sources a").nth(1).click()
    expect(page.locator("#trail li")).to_have_count(2)
    page.locator("#trail a").first.click()
    root(page, id)
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    root(page, id)


def test_hostile_text_is_shown_as_text(page, url):
    opened(page, url, HOSTILE)
    assert page.locator("#root").text_content() == f"node {HOSTILE}"
    expect(page.locator("#columns")).to_contain_text(HOSTILE)
    expect(page.locator("#classes")).to_contain_text("<b>no</b>")
    page.locator("#drawing").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#card")).to_be_visible()
    page.goto(url)
    expect(page.locator("#lists a").first).to_be_visible()
    assert page.locator("main img, main script, main b").count() == 0
    assert "hacked" not in page.title()


def test_all_controls_are_reached_by_tab_with_a_visible_focus(page, url):
    opened(page, url, "p1")
    page.locator("#find").focus()
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        style = page.evaluate(
            """() => { const at = document.activeElement, look = getComputedStyle(
                at.type === "radio" ? at.nextElementSibling : at);
            return [at.id || at.name, look.outlineStyle, parseFloat(look.outlineWidth)] }"""
        )
        if style[0]:
            assert style[1] != "none", style
            assert style[2] >= 1, style
        seen.append(style[0])
    for name in ("by", "class", "head", "hops", "drawing", "closer", "farther", "fit"):
        assert name in seen


def test_the_list_tells_the_same_as_the_picture(page, url):
    opened(page, url, "p1", "?hops=2")
    page.get_by_text("The subtree as a list").click()
    items = page.locator("#list section").nth(1).locator("li")
    expect(items).to_have_count(6)
    name = items.nth(2).locator("a").inner_text()
    items.nth(2).locator("a").press("Enter")
    root(page, name)


def test_nodes_of_a_ring_have_room_and_lines_do_not_cross(page, url, views):
    page.goto(url)
    nodes = views.node("p1", 4)["nodes"]
    told = [
        {"hop": n["hop"], "parent": n["parent"], "size": 10 + 36 * (i % 3)}
        for i, n in enumerate(nodes)
    ]
    told += [{"hop": "global", "parent": None, "size": 30}] * 9
    spots = page.evaluate(
        "async (nodes) => (await import('/static/layout.js')).place(nodes).spots", told
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
