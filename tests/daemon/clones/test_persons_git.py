"""A person's configuration as git answers in a checkout."""

from dataclasses import replace


async def test_includes_and_conditions_count_in_linked_worktrees_too(room):
    """With a home behind a link, too, as on systems whose `/home` is one."""
    room.is_kept(room.tip())
    (room.top / ".git" / "filters").write_text('[filter "odd"]\n\tclean = sh tool\n')
    room.git("config", "include.path", "filters")
    with (room.home / ".gitconfig").open("a") as config:
        config.write('[includeIf "gitdir:~/"]\n\tpath = ~/work\n[include]\n\tpath = /no/such\n')
    (room.home / "work").write_text("[user]\n\temail = work@example.invalid\n")
    (room.home / "rules").touch()
    linked = room.home / "linked"
    room.git("worktree", "add", "-q", str(linked))
    room.git("config", "extensions.worktreeConfig", "true")
    room.git("config", "--worktree", "core.attributesFile", "~/rules", at=linked)
    moved = room.home / "app.git"
    (room.top / ".git").rename(moved)
    (room.top / ".git").write_text(f"gitdir: {moved}\n")
    (linked / ".git").write_text(f"gitdir: {moved}/worktrees/linked\n")
    room.git("config", "core.worktree", str(room.top))
    home = room.home.parent / "link"
    home.symlink_to(room.home)
    room.environ["HOME"] = str(home)
    room.clone = replace(room.clone, git_dir=str(moved))
    room = room.again()
    found = await room.host_git.persons_git(room.clone.repository, ())
    assert (found.settings.name, found.settings.email) == ("Me", "work@example.invalid")
    assert (found.settings.filters["odd"], found.rules) == (("sh tool",), {})
    assert (await room.checkout("linked")).top == str(linked)
    beside = await room.host_git.persons_git(str(linked), ())
    assert beside.settings == found.settings._replace(attributes="~/rules")
    assert beside.rules == {"core.attributesFile": f"{home}/rules"}
