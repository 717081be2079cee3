"""The agents' tools over MCP: the companion that runs in the sandbox and the protocol's side in the daemon."""
