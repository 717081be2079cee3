"""What Substrat knows about Claude Code, the program `claude`."""
