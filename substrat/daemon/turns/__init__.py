"""Runs turns and the operator's commands, and clears old turns away."""
