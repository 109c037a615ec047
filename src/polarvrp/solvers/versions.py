"""Which releases of the solvers the models were written for."""

from importlib.metadata import PackageNotFoundError, version

from polarvrp.errors import ConfigError

PYVRP_SERIES = "0.14."
"""Releases before and after number clients, pass loads and search in other ways."""

ORTOOLS_SERIES = "9.15."


def pyvrp_version() -> str:
    """Installed version of PyVRP.

    Raises:
        ConfigError: If it is missing or belongs to another series.
    """
    return _require("pyvrp", PYVRP_SERIES)


def ortools_version() -> str:
    """Installed version of OR-Tools.

    Raises:
        ConfigError: If it is missing or belongs to another series.
    """
    return _require("ortools", ORTOOLS_SERIES)


def _require(package: str, series: str) -> str:
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    if not found.startswith(series):
        state = f"{package} {found} is installed" if found else f"{package} is missing"
        raise ConfigError(f"{state}, {series}x is needed: pip install '{package}=={series}*'")
    return found
