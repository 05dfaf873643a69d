"""What may be wider than a phone scrolls in a box of its own: code, formulas, tables and plots.

`assets/site.css` shows by a shadow that there is more, and `assets/wide.js` makes a box that
scrolls a stop of the keyboard.
"""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Every table and every plot in a box."""
    content = re.sub(r"<table\b", r'<div class="wide"><table', content)
    content = content.replace("</table>", "</table></div>")
    # GitHub wants \| for a bar in the code of a cell; Markdown here would show both signs.
    content = re.sub(
        r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), content, flags=re.DOTALL
    )
    plot = r'<p>(<img [^>]*\.svg"[^>]*>)</p>'
    return re.sub(plot, r'<div class="wide plot">\1</div>', content)
