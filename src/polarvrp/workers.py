"""Worker processes for solvers: one thread each, persistent, replaceable when they hang or die.

A server process is started afresh (no fork of a process that may hold a GPU, threads or locks) and forks the workers.
Each serves one task at a time from its own pipe, so a stuck task blocks nobody and can be killed on its own. A pipe may
hold some tasks ahead, so that workers go on while their starter is busy.
"""

import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS_TO_LEAVE = 1.0
"""A worker without a task that does not leave in this time is killed."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task without a result.

    Attributes:
        reason: An exception with its message, the limit that was passed, or how the process died.
        seconds: How long the task was in work.
        died: Whether its process died of itself or by somebody else's signal.
    """

    reason: str
    seconds: float = field(default=0.0, compare=False)
    died: bool = field(default=False, compare=False)


@dataclass(slots=True)
class _Worker:
    """A process and the numbers of its tasks: the first is in work, the others wait in the pipe."""

    process: BaseProcess
    connection: Connection
    tasks: deque[int] = field(default_factory=deque)
    started_s: float = 0.0


class WorkerPool(Generic[Task, Result]):
    """Processes that apply one function to tasks.

    Args:
        function: Defined at the top level of a module; tasks and results must be picklable.
        num_workers: At least 1; all are started at once.
        depth: Tasks a worker holds, the one in work included; more than 1 for small tasks only, which fit the pipe.
    """

    def __init__(self, function: Callable[[Task], Result], num_workers: int, depth: int = 1) -> None:
        self._function = function
        self._num_workers = num_workers
        self._depth = depth
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([function.__module__])
        self._workers: list[_Worker] = []
        self._tasks: dict[int, Task] = {}
        self._pending: deque[int] = deque()
        self._repeated: set[int] = set()
        self._numbers = itertools.count()
        self._fill()

    def run(
        self, tasks: Sequence[Task], hard_limit_s: float | None = None
    ) -> Iterator[tuple[int, Result | TaskFailure]]:
        """Work through tasks, when no others are in work.

        Args:
            tasks: Given out in this order.
            hard_limit_s: A task that takes longer is killed with its process, which is replaced.

        Yields:
            Position of a task and its result or failure, in the order of completion. When the caller stops early, the
            tasks in work are killed.
        """
        positions = {number: position for position, number in enumerate(self.submit(tasks))}
        try:
            while positions:
                for number, outcome in self.wait(hard_limit_s):
                    yield positions.pop(number), outcome
        finally:
            self._abandon()

    def submit(self, tasks: Iterable[Task]) -> list[int]:
        """Give tasks to the workers, behind those they have, and return at once.

        Returns:
            Numbers by which ``wait`` will report them.
        """
        numbers = []
        for number, task in zip(self._numbers, tasks, strict=False):
            self._tasks[number] = task
            numbers.append(number)
        self._pending.extend(numbers)
        self._give_out()
        return numbers

    def wait(self, hard_limit_s: float | None = None) -> list[tuple[int, Result | TaskFailure]]:
        """Wait until a worker has something to say, and give out further tasks.

        A task whose process died is given to another process once: memory may have been short for a moment, or a signal
        meant for the starter may have reached the whole group.

        Args:
            hard_limit_s: A task that takes longer is killed with its process, which is replaced.

        Returns:
            Numbers of tasks and their results or failures, in the order of completion; perhaps none.
        """
        finished: list[tuple[int, Result | TaskFailure]] = []
        for number, outcome in self._outcomes(hard_limit_s):
            if isinstance(outcome, TaskFailure) and outcome.died and number not in self._repeated:
                self._repeated.add(number)
                self._pending.appendleft(number)
                continue
            del self._tasks[number]
            self._repeated.discard(number)
            finished.append((number, outcome))
        self._give_out()
        return finished

    def close(self) -> None:
        """End all processes; safe to call twice and whatever state they are in."""
        for worker in self._workers:
            worker.connection.close()
            if worker.tasks:
                worker.process.kill()
        deadline_s = time.monotonic() + SECONDS_TO_LEAVE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline_s - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        """Replace idle processes that died and start missing ones."""
        for worker in [w for w in self._workers if not w.tasks and not w.process.is_alive()]:
            self._discard(worker)
        while len(self._workers) < self._num_workers:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs, self._function), daemon=True)
            with _one_thread(), _interrupts_held():
                process.start()
            theirs.close()  # so that the pipe ends when the process does
            self._workers.append(_Worker(process, ours))

    def _give_out(self) -> None:
        """Fill the workers' hands, the emptiest first."""
        self._fill()
        while self._pending:
            worker = min(self._workers, key=lambda worker: len(worker.tasks))
            if len(worker.tasks) >= self._depth:
                return
            number = self._pending.popleft()
            if not worker.tasks:
                worker.started_s = time.monotonic()
            worker.tasks.append(number)
            with suppress(OSError):  # if it has just died, its end of the pipe is found closed later
                worker.connection.send(self._tasks[number])

    def _outcomes(self, hard_limit_s: float | None) -> list[tuple[int, Result | TaskFailure]]:
        """Wait for a worker to finish, die or run out of time."""
        busy = [worker for worker in self._workers if worker.tasks]
        timeout_s = None
        if hard_limit_s is not None:
            timeout_s = max(0.0, min(worker.started_s for worker in busy) + hard_limit_s - time.monotonic())
        ready = wait([worker.connection for worker in busy], timeout_s)
        outcomes: list[tuple[int, Result | TaskFailure]] = []
        for worker in busy:
            number = worker.tasks[0]
            if worker.connection in ready:
                outcomes.append((number, self._receive(worker)))
            elif hard_limit_s is not None and time.monotonic() - worker.started_s >= hard_limit_s:
                self._discard(worker)
                reason = f"stopped after {hard_limit_s:.3g} s without an answer"
                outcomes.append((number, TaskFailure(reason, time.monotonic() - worker.started_s)))
        return outcomes

    def _receive(self, worker: _Worker) -> Result | TaskFailure:
        try:
            outcome: Result | TaskFailure = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(SECONDS_TO_LEAVE)
            code = worker.process.exitcode
            self._discard(worker)
            seconds = time.monotonic() - worker.started_s
            return TaskFailure(f"the worker process died (exit code {code})", seconds, died=True)
        worker.tasks.popleft()
        worker.started_s = time.monotonic()
        return outcome

    def _discard(self, worker: _Worker) -> None:
        """Kill a worker; the tasks it had not begun go back to the head of the queue."""
        self._workers.remove(worker)
        self._pending.extendleft(list(worker.tasks)[:0:-1])
        worker.process.kill()
        worker.process.join()
        worker.process.close()
        worker.connection.close()

    def _abandon(self) -> None:
        """Kill what is in work and forget all tasks."""
        for worker in [w for w in self._workers if w.tasks]:
            self._discard(worker)
        self._pending.clear()
        self._tasks.clear()
        self._repeated.clear()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Environment in which numerical libraries start no threads of their own."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while processes start: it reaches the whole group, and only the starter is to act on it."""
    resource_tracker.ensure_running()  # its own start would end the hold
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Life of a worker: it ends with its pipe or with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter decides what an interrupt means
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            outcome = function(task)
        except Exception as error:
            outcome = TaskFailure(f"{type(error).__name__}: {error}")
        connection.send(outcome)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
