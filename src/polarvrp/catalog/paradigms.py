"""Training paradigms."""

PARADIGMS = ("rl", "po", "polar")
