"""The main job as a story: real daemon, real sandboxes, the stand-in as agent; run by `substratctl demo`."""
