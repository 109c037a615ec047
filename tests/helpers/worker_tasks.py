"""Functions that tests send to other processes, which can import this module but no test module."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from polarvrp.problem.instances import Instances, NodeArrays
from polarvrp.problem.tours import check_tour, flat_actions
from polarvrp.tolerances import POLICY_TOLERANCE


def act(task: str) -> object:
    """What a task's first word asks for; the task itself where it asks for no answer."""
    word, _, argument = task.partition(" ")
    if word == "fail":
        raise ValueError(argument)
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "once" and not Path(argument).exists():
        Path(argument).touch()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if word == "touch":
        Path(argument).touch()
    if word == "sleep":
        time.sleep(float(argument))
    if word == "pid":
        time.sleep(0.05)
        return os.getpid()
    if word == "threads":
        return os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"], "torch" in sys.modules
    return task


def problems_of(instances: Instances[NodeArrays], actions: NodeArrays, cost: NodeArrays) -> list[str]:
    """What the exact checker has to say against the tours of a batch."""
    found = []
    for index, row in np.argwhere(np.isfinite(cost)).tolist():
        tour = flat_actions(actions[index, row].tolist(), instances.num_depots)
        report = check_tour(instances, index, tour, POLICY_TOLERANCE)
        if report.first_problem is not None:
            found.append(report.first_problem)
        if abs(report.cost - float(cost[index, row])) > 1e-4:
            found.append(f"cost {float(cost[index, row])} instead of {report.cost}")
    return found
