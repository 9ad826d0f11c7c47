"""What an index shows of the project: README.md with links that lead somewhere from there.

The build calls this (`tool.hatch.metadata.hooks.custom` in pyproject.toml, where `repository` stands). Relative links
and pictures get the repository's address at the tag of the version. Without an address they lose their link and stay
as words: a dead link helps nobody, and no address is invented.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A picture or a link in Markdown: `!` or nothing, the words, the target.
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


class Hook(MetadataHookInterface):
    """The long description, and the repository's address among the project's."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata."""
        repository = str(self.config.get("repository", ""))
        root = Path(self.root)
        module = (root / "src/context_bench/__init__.py").read_text("utf-8")
        version = re.search(r'^__version__ = "(.+)"$', module, re.MULTILINE)
        readme = (root / "README.md").read_text("utf-8")
        text = long_description(readme, repository, f"v{version[1]}" if version else "HEAD")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = (
            {
                "Repository": repository,
                "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
            if repository
            else {}
        )


def long_description(readme: str, repository: str, revision: str) -> str:
    """The text with absolute links, as a host of the form of GitHub takes them; without those that are relative where
    `repository` is empty.
    """
    parts = _CODE.split(readme)  # code at every second place
    parts[::2] = [_absolute(part, repository.rstrip("/"), revision) for part in parts[::2]]
    return "".join(parts)


def _absolute(text: str, repository: str, revision: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        words = _LINK.sub(replaced, words)  # a badge: a picture within a link
        if re.match(r"[a-z]+:|#", target):
            return f"{mark}[{words}]({target})"
        if not repository:
            return f"*{words}*" if mark else words
        return f"{mark}[{words}]({repository}/{'raw' if mark else 'blob'}/{revision}/{target})"

    return _LINK.sub(replaced, text)


def get_metadata_hook() -> type[MetadataHookInterface]:
    """What the build looks for in this file."""
    return Hook
