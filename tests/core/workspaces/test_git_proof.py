"""A file stood at a commit if the ids of all objects from the commit down to it are the hashes of their contents."""

from substrat.core.workspaces.git_proof import object_id, read, stands_at
from tests.support.cases import each

FILE, PATH = b"{}\n", b".vscode/settings.json"


def printed(*objects):
    """What `git cat-file --batch` prints, with ids that nobody has to believe."""
    return b"".join(b"%b %b %d\n%b\n" % (b"0" * 40, kind, len(content), content) for kind, content in objects)


def tree(mode, name, identity):
    return b"tree", b"%b %b\0%b" % (mode, name, bytes.fromhex(identity))


def commit(identity):
    return b"commit", b"tree %b\nauthor A <a@b> 0 +0000\n\nmade\n" % identity.encode()


def chain(data=FILE, mode=b"100644", name=b"settings.json"):
    """A commit with one file, as objects from the commit down."""
    inner = tree(mode, name, object_id(b"blob", data))
    outer = tree(b"40000", b".vscode", object_id(*inner))
    return commit(object_id(*outer)), outer, inner


def test_ids_are_gits():
    assert object_id(b"tree", b"") == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_a_file_of_a_commit_and_of_an_annotated_tag_stands_there():
    top, *trees = chain()
    tag = b"tag", b"object %b\ntype commit\ntag v1\n\n" % object_id(*top).encode()
    objects = read(b"x missing\n" + printed(tag, top, *trees) + b"y missing\n")
    assert len(objects) == 4
    for tip in (top, tag):
        assert stands_at(["1" * 40, object_id(*tip)], PATH, FILE, objects)


@each(
    ("path", "data"),
    [
        (PATH, b"{ }\n"),
        (b".vscode/settings.json/x", FILE),
        (b".vscode", FILE),
        (b"settings.json", FILE),
        (b"", FILE),
    ],
)
def test_what_does_not_stand_there(path, data):
    top, *trees = chain()
    assert not stands_at([object_id(*top)], path, data, read(printed(top, *trees)))


@each("mode", [b"120000", b"160000"])
def test_a_link_or_a_submodule_is_no_file(mode):
    top, *trees = chain(mode=mode)
    assert not stands_at([object_id(*top)], PATH, FILE, read(printed(top, *trees)))


def test_other_content_under_an_objects_id_proves_nothing():
    """As an agent leaves it that can write to the repository: git prints what it finds under the id."""
    top, outer, inner = chain()
    evil_top, evil_outer, evil_inner = chain(data=b"evil\n")
    for forged in ((evil_top, evil_outer, evil_inner), (top, evil_outer, evil_inner), (top, outer, evil_inner)):
        assert not stands_at([object_id(*top)], PATH, b"evil\n", read(printed(*forged)))
    assert stands_at([object_id(*top)], PATH, FILE, read(printed(top, outer, inner))), "the control"


@each(
    "output",
    [
        printed((b"blob", b"0123456789"))[:-6],
        b"0 blob 2\n0123456789\n",
        b"0 blob " + b"9" * 5000 + b"\nx\n",
        b"0 blob -1\nx\n",
        b"",
        b"0 blob 3",
        printed((b"tree", b"40000 .vscode\0\1\2"), (b"tree", b"40000"), (b"commit", b""), (b"commit", b"tree \xff\n")),
    ],
)
def test_odd_output_is_read_to_its_end(output):
    objects = read(output)
    assert not stands_at(list(objects), PATH, FILE, objects)
