"""Builds the C extensions: the engine's, the column kernels and the Arrow exchange; all else is in setup.cfg.

What is missing for that is named before anything is copied or compiled: pip shows all that a build has printed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

SOURCES = [
    "shmjet/_native/module.c",
    "shmjet/_native/memory_reserve.c",
    *sorted(glob("shmjet/_native/ring/*.c")),
    *sorted(glob("shmjet/_native/codec/*.c")),
    *sorted(glob("shmjet/_native/items/*.c")),
    *sorted(glob("shmjet/_native/link/*.c")),
]
HEADERS = sorted([*glob("shmjet/_native/*.h"), *glob("shmjet/_native/*/*.h")])
KERNELS = sorted(glob("shmjet/_native/columns/*.c"))
EXCHANGE = sorted(glob("shmjet/_native/arrow/*.c"))
LIMITED = [("Py_LIMITED_API", "0x030B0000")]
OPTIONS = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"]
BUILDING = {"build", "build_ext", "bdist_wheel", "bdist", "editable_wheel", "develop", "install"}


def missing() -> str | None:
    """Return what this machine lacks to build the extensions, and what to do about it; None when it can build them."""
    if sys.platform != "linux":
        return f"it runs on Linux only, this is {sys.platform}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"no C compiler {compiler[0]!r}; install one (e.g. apt-get install build-essential) or name it by CC=..."
    include = sysconfig.get_path("include")
    if not os.path.isfile(f"{include}/Python.h"):
        return f"no Python.h in {include}; install the C headers of {sys.executable} (e.g. apt-get install python3-dev)"
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, "trial.c")
        trial.write_text("#include <Python.h>\n#include <stdatomic.h>\n#include <linux/futex.h>\n")
        command = [*compiler, "-std=c11", f"-I{include}", "-c", str(trial), "-o", f"{folder}/trial.o"]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if answer.returncode:
        says = "\n  ".join(answer.stderr.splitlines()[:4])
        return (
            f"{shlex.join(compiler)} cannot compile a file that includes Python.h (exit {answer.returncode}):\n  {says}"
        )
    return None


if BUILDING & set(sys.argv[1:]):
    lack = missing()
    if lack is not None:
        raise SystemExit(f"shmjet cannot be built here: {lack}")

setup(
    ext_modules=[
        Extension(
            "shmjet._native._core",
            sources=SOURCES,
            depends=HEADERS,
            include_dirs=["shmjet/_native"],
            define_macros=LIMITED,
            extra_compile_args=OPTIONS,
            py_limited_api=True,
        ),
        Extension(
            "shmjet._native._columns",
            sources=KERNELS,
            depends=HEADERS,
            include_dirs=["shmjet/_native"],
            define_macros=LIMITED,
            extra_compile_args=OPTIONS,
            py_limited_api=True,
        ),
        Extension(
            "shmjet._native._arrow",
            sources=EXCHANGE,
            depends=HEADERS,
            include_dirs=["shmjet/_native"],
            define_macros=LIMITED,
            extra_compile_args=OPTIONS,
            py_limited_api=True,
        ),
    ]
)
