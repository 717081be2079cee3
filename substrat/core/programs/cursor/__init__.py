"""cursor-agent's own: its command line, lines, tool calls, chats, failures and `mcp.json`."""
