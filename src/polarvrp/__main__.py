"""``python -m polarvrp``: the same as the console script ``polarvrp``."""

from polarvrp.cli.main import run

if __name__ == "__main__":
    run()
