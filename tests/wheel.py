"""``make test-wheel``: the built wheel and source distribution hold what users need, and only that.

Usage: python tests/wheel.py DIST
"""

import sys
import tarfile
import zipfile
from pathlib import Path


def main(dist: Path) -> None:
    (wheel,), (source,) = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    tree = (path for path in Path("batchplan").rglob("*") if path.is_file())
    package = {str(path) for path in tree if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    installed = {name for name in names if ".dist-info/" not in name}
    if installed != package:
        sys.exit(f"{wheel}: differs from the package: {sorted(installed ^ package)}")
    if not any(name.endswith("/LICENSE") for name in names):
        sys.exit(f"{wheel}: holds no LICENSE")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = (package | {"pyproject.toml", "README.md", "LICENSE"}) - names
    if missing:
        sys.exit(f"{source}: lacks {sorted(missing)}")
    print(f"{wheel.name} has {len(installed)} files, {source.name} has them too")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
