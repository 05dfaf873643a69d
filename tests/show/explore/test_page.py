"""The page in a real browser."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.show.explore.conftest import WAYS
from tests.show.explore.odd import HOSTILE, ODD


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
    expect(page.locator("#facts")).to_contain_text("40 nodes · 240 directed edges · 2 classes")
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
    box = page.get_by_role("combobox", name="Find a node by its id, name or any text")
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
    opened(page, url, "p1")
    page.evaluate("location.hash = '#/node/nobody'")
    expect(page.get_by_role("alert")).to_have_text("there is no node 'nobody'")
    expect(page.locator("#view")).to_be_hidden()
    expect(page).to_have_title("people · sta explore")
    expect(page.locator("#trail li")).to_have_text(["p1"])
    page.locator("#lists a").first.click()
    expect(page.locator("#trail li")).to_have_count(2)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("?class=horror&hops=2", "horror"),
        ("?without=node:nope&class=yes", "nope"),
        ("?set=age%3Dabc", "'age' cannot be 'abc'"),
    ],
)
def test_what_an_address_asks_in_vain_is_left_out(browser, url, options, words):
    page = browser.new_page()  # as above, a 400
    opened(page, url, "p1", options)
    expect(page.locator("#problem")).to_contain_text(words)
    expect(page.locator("#what-if")).to_be_hidden()
    assert ("class=yes" in page.url) == ("yes" in options)  # what can be shown stays
    page.close()


def test_an_address_of_no_node_leads_to_the_start(browser, url):
    page = browser.new_page()  # as above
    page.goto(f"{url}#/node/nobody")
    expect(page.get_by_role("alert")).to_have_text("there is no node 'nobody'")
    expect(page.locator("#lists a").first).to_be_visible()
    expect(page.locator("#trail li")).to_have_count(0)
    page.close()


def test_what_a_search_does_not_find_is_told_and_leaves_no_trace(page, url):
    opened(page, url, "p1")
    box = page.locator("#find")
    box.fill("nobody")
    box.press("Enter")
    said = page.get_by_text("'nobody'")
    expect(said).to_be_visible()
    expect(box).to_be_focused()
    expect(box).to_have_value("nobody")
    expect(page).to_have_url(re.compile("#/node/p1$"))
    expect(page.locator("#trail li")).to_have_text(["p1"])
    box.fill("p10")
    box.press("Enter")
    root(page, "p10")
    expect(said).to_be_hidden()
    expect(page.locator("#trail li")).to_have_text(["p1", "p10"])
    page.go_back()
    root(page, "p1")


def test_a_search_that_finds_several_lets_one_choose(page, url):
    opened(page, url, "p1")
    box = page.locator("#find")
    box.fill("P1")
    box.press("Enter")
    expect(page.locator("#found [aria-selected=true]")).to_contain_text("p1")
    box.press("Enter")
    root(page, "p1")


def test_the_focus_is_never_lost(page, url):
    page.goto(url)
    page.locator("#lists a").first.press("Enter")
    expect(page.locator("#root")).to_be_focused()
    page.locator("#sources a").nth(1).press("Enter")
    expect(page.locator("#trail li")).to_have_count(2)
    expect(page.locator("#root")).to_be_focused()
    page.go_back()
    page.go_back()
    expect(page.locator("#lists a").first).to_be_focused()


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
