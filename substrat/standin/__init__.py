"""cursor-agent-standin: a scripted program that behaves like cursor-agent without an account; it is no agent.

It imports nothing of the rest of Substrat and only the standard library, and it is never presented as the real
program: `--version` and `--help` say so.
"""
