"""Formulas as MathML: browsers draw them, with no script and nothing fetched.

They are written in LaTeX, as GitHub draws it too: `$...$` in a line, a fence `math` as a block;
docs/docstrings.py brings those of docstrings into that form. One that cannot be converted fails
the build.
"""

import html
import re
import xml.etree.ElementTree as ElementTree

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

FOUND = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', flags=re.DOTALL
)
"""What the extension arithmatex leaves of a formula: a span in a line, a div as a block."""


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The formulas of a page, converted."""

    def formula(found: re.Match[str]) -> str:
        tex = html.unescape(found["tex"]).strip()
        try:
            if found["tag"] == "span":
                return mathml(tex, "inline")
            return f'<div class="wide formula">{mathml(tex, "block")}</div>'
        except ValueError as problem:
            raise PluginError(f"{page.file.src_uri}: {problem}") from None

    return FOUND.sub(formula, content)


def mathml(tex: str, display: str) -> str:
    """LaTeX as MathML; `display` is "inline" or "block"."""
    try:
        made = convert(tex, display=display)
        ElementTree.fromstring(made)
    except Exception as problem:  # the library has a dozen of its own
        raise ValueError(f"this formula is not LaTeX ({type(problem).__name__}): {tex}") from None
    if "\\" in made:  # an unknown command comes out as it went in
        raise ValueError(f"a command in this formula is not known: {tex}")
    return made
