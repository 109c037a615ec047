"""Commands that only pass time, so that the workflow's schedule can be watched."""

import os
from dataclasses import dataclass
from pathlib import Path

from helpers.snakemake import environment

SCRIPT = Path(__file__).with_name("stub_command.sh")


@dataclass(frozen=True, slots=True)
class Span:
    """A job of the schedule.

    Attributes:
        command: What it ran.
        begin_s: When it began, in seconds.
        end_s: When it ended.
    """

    command: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class StubCommands:
    """Commands of a workflow in ``folder`` that sleep for so many seconds."""

    folder: Path
    seconds: dict[str, float]

    def environment(self) -> dict[str, str]:
        """Environment in which ``python`` is the stub; written when asked for."""
        script = self.folder / "stub" / "python"
        script.parent.mkdir()
        script.symlink_to(SCRIPT)
        inherited = environment()
        return {
            **inherited,
            "PATH": os.pathsep.join([str(script.parent), inherited["PATH"]]),
            "STUB_CLOCK": str(self._clock),
            **{f"STUB_SECONDS_{command}": str(seconds) for command, seconds in self.seconds.items()},
        }

    def spans(self) -> list[Span]:
        """Every job that ended, by its beginning."""
        begun: dict[str, tuple[str, float]] = {}
        spans = []
        for line in self._clock.read_text().splitlines():
            time, command, what, process = line.split()
            if what == "begins":
                begun[process] = (command, float(time))
            else:
                spans.append(Span(*begun.pop(process), float(time)))
        return sorted(spans, key=lambda span: span.begin_s)

    @property
    def _clock(self) -> Path:
        return self.folder / "clock.txt"
