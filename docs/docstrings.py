"""Docstrings for the site: PyG's conventions (reStructuredText roles, maths) as Markdown."""

import re
import textwrap
from typing import Any

from griffe import Extension, Object

MATHS = re.compile(r"^\.\. math::\n((?:[ \t]+.*\n?|\n)+)", flags=re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|attr):(`[^`]+`)")
INLINE = re.compile(r":math:`([^`]+)`")
LINK = re.compile(r"`(?P<text>[^`<]+?)\s*<(?P<url>https?://[^>]+)>`_")


class Markdown(Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """`:class:` and the like as code, links as links, formulas as docs/formulas.py knows them."""
    text = LINK.sub(lambda found: f"[{' '.join(found['text'].split())}]({found['url']})", text)
    text = INLINE.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    return MATHS.sub(_block, ROLE.sub(r"\1", text))


def _block(found: re.Match[str]) -> str:
    body = textwrap.dedent(found[1]).strip("\n")
    return f"```math\n{body}\n```\n\n"
