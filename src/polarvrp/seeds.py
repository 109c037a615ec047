"""Seeds derived from one root by role, so that no two streams of random numbers are related."""

import hashlib


def derive_seed(root: int, *roles: str | int) -> int:
    """Seed of the stream named by ``roles`` under the root seed.

    Args:
        root: The study's seed.
        roles: What the stream is for, e.g. ``"train", "data", epoch``.

    Returns:
        A non-negative 63-bit integer, the same on every platform.
    """
    text = "/".join(str(part) for part in (root, *roles))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
