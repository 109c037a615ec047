"""Efforts beside the study's own, for gaps against time; imports nothing heavy."""

LIMITS = (0.1, 0.3)
"""Parts of a solver's time limit that it is run with too."""

LIMITED_INSTANCES = 100
"""First instances of each test set that solvers are run on with a part of their limit."""

PLAIN = "plain"
"""Where evaluations without symmetries lie, beside those of ``test``."""
