"""Tool calls that are only shown: every kind and every alternative of its result."""

import json

from substrat.standin import recorded


def shown(standin, kinds):
    """Show every arm of some kinds in one run; returns the lines of each call, by kind and arm."""
    wanted = [(kind, arm) for kind in kinds for arm in recorded.table("shapes")[kind][1]]
    outcome = standin.run("".join(f"/show {kind} {arm}\n" for kind, arm in wanted))
    lines = outcome.of("tool_call")
    assert outcome.text == ""
    return dict(zip(wanted, zip(lines[::2], lines[1::2], strict=True), strict=True))


def test_every_kind_comes_with_every_arm(standin):
    for (kind, arm), (started, completed) in shown(standin, recorded.table("shapes")).items():
        assert (started["subtype"], completed["subtype"]) == ("started", "completed")
        assert started["call_id"] == completed["call_id"]
        before, after = (line["tool_call"][f"{kind}ToolCall"] for line in (started, completed))
        assert list(after["result"]) == [arm]
        assert before["args"]
        assert ("args" in after) == (arm not in {"rejected", "permissionDenied"})


def test_the_workspace_stands_in_them(standin):
    lines = shown(standin, ["read", "glob"])
    _, completed = lines["read", "success"]
    assert completed["tool_call"]["readToolCall"]["result"]["success"]["path"] == str(standin.workspace / "example.txt")
    assert "@workspace" not in json.dumps(list(lines.values()))
    assert list(standin.workspace.iterdir()) == [], "nothing is done"


def test_what_is_performed_has_the_keys_of_what_is_shown(standin):
    """Both forms of a call tell the same things, in the same order."""
    (standin.workspace / "example.txt").write_text("hello\n")
    done = standin.run("/write example.txt hi\n/shell exit 3\n/ask Which way?")
    for kind, arm in (("edit", "success"), ("askQuestion", "rejected")):
        (performed,) = done.calls(kind)
        assert list(performed[arm]) == list(recorded.table("shapes")[kind][1][arm])
    (failed,) = done.calls("shell")
    assert set(recorded.table("shapes")["shell"][1]["failure"]) - set(failed["failure"]) == {"abortReason"}
