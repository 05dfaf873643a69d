"""What makes one site of Markdown files that also read well where they lie.

Links in them lead to files of the repository. Here a linked Markdown file becomes a page, a linked
Python file a page with its source, any other linked file a copy; a linked folder has no page, so
its name stays and the link goes. A link to what is not there is a warning, and so a failure of
`mkdocs build --strict`.
"""

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parents[1]
PLACES = {"README.md": "index.md", "src/subtree_attention/ops/README.md": "maths.md"}
"""Files whose place in the site is another than in the repository."""
LINK = re.compile(
    r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\s*</picture>'
)
"""Two files for a picture, of which GitHub shows that of the reader's colours."""
log = logging.getLogger("mkdocs.hooks.links")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all that is linked to, and what that links to, and so on."""
    starts = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
    waiting = [ROOT / name for name in starts]
    waiting += [Path(str(file.abs_src_path)) for file in files.documentation_pages()]
    done = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        if files.get_file_from_path(place(path)) is None:
            files.append(_made(path, config))
        if path.suffix == ".md":
            waiting += [target for target in links(path) if target.is_file()]
    files.append(File.generated(config, "assets/code.css", content=_colours()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository as links between places of the site."""
    if page.file.abs_src_path is None:  # a page made from source: none of its brackets are links
        return markdown
    source = Path(page.file.abs_src_path)

    def link(match: re.Match[str]) -> str:
        target = resolved(source, match["path"])
        if target is None:
            return match[0]
        if not target.exists():
            log.warning(
                "%s links to %s, which is not there", source.relative_to(ROOT), match["path"]
            )
            return match[0]
        if target.is_dir():
            return match["text"][1:-1]
        way = posixpath.relpath(place(target), posixpath.dirname(page.file.src_uri))
        return f"{match['text']}({way}{match['anchor'] or ''})"

    return LINK.sub(link, PICTURE.sub(_by_class, markdown))


def links(path: Path) -> Iterator[Path]:
    """What a Markdown file links to in the repository."""
    for match in LINK.finditer(PICTURE.sub(_by_class, path.read_text(encoding="utf-8"))):
        target = resolved(path, match["path"])
        if target is not None:
            yield target


def resolved(source: Path, link: str) -> Path | None:
    """The file or folder that a link leads to; None if it leads out into the world."""
    if re.match(r"[a-z]+:", link):
        return None
    return Path(posixpath.normpath(source.parent / link))


def place(path: Path) -> str:
    """Where a file of the repository is in the site."""
    name = path.relative_to(ROOT).as_posix()
    name = PLACES.get(name, name.removeprefix("docs/"))
    return f"{name}.md" if path.suffix == ".py" else name


def _by_class(picture: re.Match[str]) -> str:
    """Two pictures, of which the style sheet shows one: a page may be dark on a light system."""
    return " ".join(
        f"![{picture['alt']}]({picture[way]}){{ .on-{way} }}" for way in ("light", "dark")
    )


def _made(path: Path, config: MkDocsConfig) -> File:
    if path.suffix != ".py":
        return File.generated(config, place(path), abs_src_path=str(path))
    title = path.relative_to(ROOT).as_posix()
    page = f"# {title}\n\n````python\n{path.read_text(encoding='utf-8')}````\n"
    return File.generated(config, place(path), content=page)


def _colours() -> str:
    """Colours of code for light and dark pages."""
    light, dark = (HtmlFormatter(style=name).get_style_defs for name in ("default", "github-dark"))
    return f"{light('.highlight')}\n{dark('[data-bs-theme=dark] .highlight')}\n"
