"""The beginnings of the lifecycle's walks, and the steps of walks that have found something."""

FAMILY = [("spawn prompt", 0, None), ("spawn child", 0, None), ("spawn child", 1, None)]
"""Steps: a rule with its kind, the place of the agent in the list, and those it needs or waits for."""
CHECKED = [("spawn prompt", 0, None), ("spawn checked", 0, None), ("turn result", 1, None)]
CALLED = [
    ("spawn prompt", 0, None), ("request budget tool_calls", 0, None), ("spawn child", 0, None), ("turn begin", 0, None),
    ("turn begin", 1, None), ("turn act", 1, None),
]  # fmt: skip
"""A family's tool calls are used up, so its two turns are being stopped."""
TURNED = [
    ("spawn prompt", 0, None), ("request budget turns", 0, None), ("spawn child", 0, None), ("turn result", 1, None),
    ("request send with a prompt", 1, None),
]  # fmt: skip
"""A family's turns are used up, and a child waits for one."""
BEGINNINGS = [
    CALLED, [*CALLED, ("turn exit", 1, None)], TURNED,
    [], FAMILY, [*FAMILY, ("wait any", 1, [2]), ("wait all", 0, [1])],
    [*FAMILY, ("turn ask", 1, None), ("wait all", 0, None)],
    [*FAMILY, ("wait all", 1, [2]), ("spawn child", 0, [1])],
    [*FAMILY, ("wait all", 1, [2]), ("turn result", 0, None), ("turn result", 1, None)],
    [*FAMILY[:2], ("spawn child", 0, [1]), ("wait all", 0, [1, 2])],
    [*FAMILY, ("spawn child", 0, None), ("wait all for ever", 1, [2]), ("wait all for ever", 0, [1, 3]),
     ("turn result", 0, None), ("turn result", 0, None), ("request suspend", 2, None), ("turn gone", 0, None),
     ("turn result", 0, None)],
    CHECKED, [*CHECKED, ("verdict failed", 0, None)],
    [*CHECKED, ("message request", 0, 1), ("verdict broken", 0, None)],
    [*CHECKED, ("spawn child", 0, [1]), ("request interrupt", 1, None)],
    [*CHECKED, ("request send with a prompt", 1, None), ("verdict failed", 0, None)],
    [*CHECKED, ("verdict failed", 0, None), ("request interrupt", 1, None), ("turn gone", 1, None),
     ("request send with a prompt", 1, None), ("turn result", 1, None), ("verdict failed", 0, None)],
    [*CHECKED[:2], ("spawn child", 0, [1]), ("wait all", 0, [1]), ("turn result", 1, None)],
    [*CHECKED[:2], ("message request", 0, 1), ("turn inbox", 1, None), ("turn complete", 1, None),
     ("turn result", 1, None), ("verdict failed", 0, None), ("turn result", 1, None), ("verdict passed", 0, None),
     ("turn result", 0, None)],
]  # fmt: skip
"""Few walks would come to a wait, or to a verdict with consequences, without them."""

FOUND = {
    "a question that is dismissed lets a suspended agent's request be answered": [
        ("message request", 1, 0), ("turn inbox", 0), ("turn ask", 0), ("turn result", 0), ("request suspend", 0),
        ("request dismiss", 0),
    ],
    "a request is answered at last when the question is dismissed for which its agent has sent no answer": [
        ("message request", 1, 0), ("turn inbox", 0), ("turn ask", 0), ("turn result", 0), ("request dismiss", 0),
    ],
    "a continuation that was never heard is said again as it was": [
        ("turn begin", 1), ("request suspend", 1), ("turn gone", 1), ("request resume", 1), ("turn exit", 1),
        ("request resume", 1),
    ],
    "an agent is woken once, although another wait that is due ends its wait": [
        ("wait all", 1, [2]), ("wait all", 0, [1]), ("turn exit", 1), ("turn result", 0), ("much_later", 0),
    ],
    "a failed agent has finished by being woken, and what needs it fails": [
        ("wait all", 1, [2]), ("spawn child", 0, [1]), ("turn exit", 1), ("turn result", 1),
    ],
    "a wake that the operator takes back holds no report": [
        ("wait all", 1, [2]), ("turn result", 0), ("turn result", 1), ("request take back", 1), ("turn result", 0),
    ],
    "a parent is told the end of work that was suspended after a wake": [
        ("wait all", 1, [2]), ("turn result", 1), ("turn result", 1), ("turn begin", 1), ("request suspend", 1),
        ("turn gone", 1), ("request resume", 1), ("turn result", 1),
    ],
    "an agent that has ended closes no circle": [("spawn child", 0, [1]), ("request end", 3), ("wait all", 1, [3])],
    "an agent that is being ended waits for nobody": [("request end", 1), ("wait all", 1, [2])],
    "an agent that is being ended asks nothing": [("turn ask", 1), ("request end", 1), ("turn result", 1)],
    "a child of an agent that is removed is told that its request is dropped": [
        ("message request", 1, 0), ("request suspend", 0), ("turn gone", 0), ("request remove", 0),
    ],
    "a result that was given before a restart is told": [("turn complete", 1), ("restart", 0), ("turn result", 1)],
}  # fmt: skip
