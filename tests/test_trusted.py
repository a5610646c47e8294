"""Files that are run are read and written only where no other user can have changed them."""

import grp
import os
import pwd
import struct
import sys

import pytest

from batchplan.files import trusted
from batchplan.files.trusted import read_trusted, write_trusted

OTHER = 65534
SHARED = "other users may write to"
OWNED = "belongs to another user"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path):
    """above/folder/file, trusted as it is."""
    path = tmp_path / "above" / "folder" / "file"
    write_trusted(path, b"content")
    return path


def given_away(path):
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def linked(path):
    """Put a symbolic link in the place of a file or folder."""
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target.name)


def linked_through_a_shared_folder(path):
    linked(path)
    between = path.with_name("between")
    between.mkdir()
    path.rename(between / "link")
    path.symlink_to("between/link")
    (between / "elsewhere").symlink_to("../elsewhere")
    between.chmod(0o777)


def link_given_away(path):
    linked(path)
    given_away(path)


def in_sticky(spoil):
    return lambda path: (spoil(path), path.parent.chmod(0o1777))


FOLDERS = [
    (lambda folder: folder.chmod(0o777), SHARED),
    (lambda folder: folder.chmod(0o1777), SHARED),
    (lambda folder: folder.parent.chmod(0o777), SHARED),
    (lambda folder: (linked(folder), folder.chmod(0o777)), SHARED),
    (linked_through_a_shared_folder, SHARED),
    *(
        pytest.param(spoil, OWNED, marks=root_only)
        for spoil in (
            given_away,
            lambda folder: given_away(folder.parent),
            link_given_away,
            in_sticky(given_away),
            in_sticky(link_given_away),
        )
    ),
]
FILES = [
    (lambda file: file.chmod(0o666), SHARED),
    (linked, "symbolic links"),
    pytest.param(given_away, OWNED, marks=root_only),
]


@pytest.mark.parametrize(("spoil", "reason"), FOLDERS)
def test_no_folder_that_others_may_change_is_used(spoil, reason, file):
    spoil(file.parent)
    with pytest.raises(OSError, match=reason):
        read_trusted(file)
    for path in (file, file.with_name("new")):
        with pytest.raises(OSError, match=reason):
            write_trusted(path, b"new")
    assert os.listdir(file.parent) == ["file"]
    assert file.read_bytes() == b"content"


@pytest.mark.parametrize(("spoil", "reason"), FILES)
def test_no_file_that_others_may_have_written_is_read(spoil, reason, file):
    assert read_trusted(file) == b"content"
    spoil(file)
    with pytest.raises(OSError, match=reason):
        read_trusted(file)


def test_links_in_a_circle_end(file):
    (file.parent / "a").symlink_to("b")
    (file.parent / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read_trusted(file.parent / "a" / "file")


def test_a_folder_above_may_be_sticky_or_reached_by_a_link(file):
    linked(file.parent)
    file.parent.parent.chmod(0o1777)
    write_trusted(file, b"new")
    assert read_trusted(file) == b"new"
    assert read_trusted(file.parent / ".." / "folder" / "file") == b"new"


def test_nobody_else_may_write_to_what_is_written_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        write_trusted(tmp_path / "a" / "b", b"")
    finally:
        os.umask(old)
    modes = [(tmp_path / name).stat().st_mode & 0o7777 for name in ("a", "a/b")]
    assert modes == [0o755, 0o644]


def test_a_group_may_write_if_nobody_else_is_in_it(file, monkeypatch):
    file.parent.chmod(0o775)
    me, group = pwd.getpwuid(os.geteuid()), file.parent.stat().st_gid

    def other(main):
        return pwd.struct_passwd(("other", "x", OTHER, main, "", "", ""))

    for listed, users, is_trusted in (
        ([], [me, other(group + 1)], True),
        ([me.pw_name, "root"], [me, other(group + 1)], True),
        (["other"], [me, other(group + 1)], False),
        ([], [me, other(group)], False),
    ):
        trusted._is_alone_in.cache_clear()
        entry = grp.struct_group(("own", "x", group, listed))
        monkeypatch.setattr(grp, "getgrgid", lambda _, entry=entry: entry)
        monkeypatch.setattr(pwd, "getpwall", lambda users=users: users)
        if is_trusted:
            assert read_trusted(file) == b"content"
        else:
            with pytest.raises(OSError, match=SHARED):
                read_trusted(file)
    trusted._is_alone_in.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these access lists")
def test_an_access_list_may_name_others(file, monkeypatch):
    monkeypatch.setattr(trusted, "_is_alone_in", lambda *_: True)
    file.parent.chmod(0o775)
    assert read_trusted(file) == b"content"
    nobody = 0xFFFFFFFF  # rwx for the owner, OTHER, the group and the mask; r-x for all
    entries = ((1, 7, nobody), (2, 7, OTHER), (4, 7, nobody), (16, 7, nobody), (32, 5, nobody))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file.parent, "system.posix_acl_access", value)
    except OSError:
        pytest.skip("the file system keeps no access lists")
    with pytest.raises(OSError, match=SHARED):
        read_trusted(file)


def test_what_could_not_be_written_leaves_nothing(file):
    with pytest.raises(TypeError):
        write_trusted(file, "no bytes")
    assert [path.name for path in file.parent.iterdir()] == ["file"]
    assert file.read_bytes() == b"content"
