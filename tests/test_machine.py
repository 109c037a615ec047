"""Freed memory stays with a process that asks for it, unless the user's environment says otherwise."""

import os
import platform
import subprocess
import sys

import pytest

from polarvrp.machine import USERS_OWN

FAULTS = """
import resource, threading
from polarvrp.machine import keep_freed_memory

def faults(mebibytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * (mebibytes << 20)  # written and freed again
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

rounds = [faults(40), faults(40)]
keep_freed_memory()
rounds += [faults(40), faults(40)]
thread = threading.Thread(target=lambda: rounds.append(faults(65)))  # more than the heap of a thread may hold
thread.start()
thread.join()
print(*rounds)
"""
BLOCK = 40 << 20
"""Bytes; what glibc hands out again by itself is at most 32 MiB."""

PAGES = BLOCK // os.sysconf("SC_PAGESIZE")


def page_faults(**settings: str) -> list[int]:
    """Those of a block's second round before and after the call, and of a larger one in another thread."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ours | settings)
    _, before, _, after, in_thread = map(int, done.stdout.split())
    return [before, after, in_thread]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_large_blocks_that_were_freed_are_used_again() -> None:
    before, after, in_thread = page_faults()
    assert before >= PAGES
    assert after < PAGES // 100
    assert in_thread >= PAGES


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
@pytest.mark.parametrize("name", USERS_OWN)
def test_a_user_s_own_settings_stay(name: str) -> None:
    for settings in ({f"MALLOC_{name.upper()}_": "65536"}, {"GLIBC_TUNABLES": f"glibc.malloc.{name}=65536"}):
        assert page_faults(**settings)[1] >= PAGES


def test_another_c_library_is_left_alone() -> None:
    code = "import ctypes, platform; platform.libc_ver = lambda: ('', ''); ctypes.CDLL = None\n"
    code += "from polarvrp.machine import keep_freed_memory; keep_freed_memory()"
    subprocess.run([sys.executable, "-c", code], check=True)
