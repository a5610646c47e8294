"""Prepares a checkout for the package index, whose page has no files to link to:

    python .github/release.py https://github.com/OWNER/REPOSITORY v0.1.0

Links of README.md become those of the tag, and pyproject.toml gets the addresses of the project.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ".png", ".svg"


def main(address: str, tag: str, root: Path = ROOT) -> None:
    project, page = root / "pyproject.toml", root / "README.md"
    version = re.search(r'^version = "(.*)"', project.read_text(), re.MULTILINE)
    if not version or tag != f"v{version[1]}":
        sys.exit(f"tag {tag}: expected v{version and version[1]}, the version in pyproject.toml")
    page.write_text(absolute(page.read_text(), address, tag))
    host, _, name = address.removeprefix("https://github.com/").partition("/")
    urls = {
        "Documentation": f"https://{host}.github.io/{name}/",
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
    }
    lines = "\n".join(f'{label} = "{url}"' for label, url in urls.items())
    project.write_text(f"{project.read_text()}\n[project.urls]\n{lines}\n")


def absolute(text: str, address: str, tag: str) -> str:
    """The Markdown with absolute links instead of those to files of the repository."""

    def link(match: re.Match[str]) -> str:
        start, target = match.groups()
        place = "raw" if target.endswith(PICTURES) else "blob"
        path = f"README.md{target}" if target.startswith("#") else target
        return f"{start}{address}/{place}/{tag}/{path}"

    return re.sub(r"(\]\(|src=\")(?!https?:)([^)\"]+)", link, text)


if __name__ == "__main__":
    main(*sys.argv[1:])
