"""What may be wider than a phone scrolls in a box of its own: code, formulas, and here tables.

`assets/site.css` shows by a shadow that there is more, and `assets/wide.js` makes a box that
scrolls a stop of the keyboard.
"""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Every table in a box."""
    content = re.sub(r"<table\b", r'<div class="wide"><table', content)
    return content.replace("</table>", "</table></div>")
