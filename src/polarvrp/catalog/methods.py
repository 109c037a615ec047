"""Methods of the main tables."""

MAIN_METHODS: dict[str, tuple[str, str]] = {
    "mtpomo": ("shared", "rl"),
    "mvmoe": ("shared", "rl"),
    "routefinder": ("shared", "rl"),
    "cada": ("shared", "rl"),
    "filmmed": ("shared", "po"),
    "moses": ("shared", "rl"),
    "polarnet": ("ple", "polar"),
}
"""Encoder and paradigm of each backbone in the main tables: what its authors published."""
