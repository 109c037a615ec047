"""Which releases of the solvers the models were written for."""

from importlib.metadata import PackageNotFoundError, version

from polarvrp.errors import ConfigError

SERIES = {"pyvrp": "0.14.", "ortools": "9.15."}
"""Releases of PyVRP before and after number clients, pass loads and search in other ways."""


def installed_version(package: str) -> str:
    """Installed version of ``pyvrp`` or ``ortools``.

    Raises:
        ConfigError: If it is missing or belongs to another series.
    """
    series = SERIES[package]
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    if not found.startswith(series):
        state = f"{package} {found} is installed" if found else f"{package} is missing"
        raise ConfigError(f"{state}, {series}x is needed: pip install '{package}=={series}*'")
    return found
