"""What git does in a workspace where nobody is there to answer it."""


def test_no_editor_of_the_repositorys_configuration_is_waited_for(daemon):
    daemon.start()
    work = daemon.workspace(git=True)
    for key in ("core.editor", "sequence.editor", "core.pager"):
        daemon.git(work, "config", key, "sleep 1000; :")
    commands = (
        "git commit -q --allow-empty -m one", "git commit -q --allow-empty -m two", "git commit -q --amend --allow-empty",
        "git rebase -q -i --keep-empty HEAD~1", "git -p log --format=%s -2",
    )  # fmt: skip
    agent = daemon.spawn("anna", work, f"/shell {' && '.join(commands)}")
    assert agent["turn"]["outcome"] == "success"
    assert daemon.shell("anna").split() == ["two", "one"]
