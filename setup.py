"""Builds the one C extension; everything else about the package is in setup.cfg."""

from setuptools import Extension, setup

SOURCES = ["module", "producer", "consumer", "bells", "routing", "codec", "codec_encode", "codec_decode", "tally"]
HEADERS = ["native", "ring", "doorbell", "hash", "layout", "codec"]

setup(
    ext_modules=[
        Extension(
            "shmjet._native._core",
            sources=[f"shmjet/_native/{name}.c" for name in SOURCES],
            depends=[f"shmjet/_native/{name}.h" for name in HEADERS],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"],
            py_limited_api=True,
        )
    ]
)
