"""Builds the two C extensions, the engine's and the column kernels; all else is in setup.cfg."""

from glob import glob

from setuptools import Extension, setup

CODEC = ["codec", "codec_encode", "codec_decode"]
SOURCES = [
    *("module", "producer", "producer_peer", "consumer", "bells", "poller", "slab", "claims", "routing"),
    *("tally", "totals", "ordering", "text_ordering", "numbers", "nans"),
    *("edge_flow", "packet_writer", "packet_reader", "packet_batches", "courier"),
    *CODEC,
]
HEADERS = sorted(glob("shmjet/_native/*.h"))
KERNELS = ["hash", "scatter", "group", "text", "sort", "join", "rows", "csv", "csv_write"]
LIMITED = [("Py_LIMITED_API", "0x030B0000")]
OPTIONS = ["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"]

setup(
    ext_modules=[
        Extension(
            "shmjet._native._core",
            sources=[f"shmjet/_native/{name}.c" for name in SOURCES],
            depends=HEADERS,
            define_macros=LIMITED,
            extra_compile_args=OPTIONS,
            py_limited_api=True,
        ),
        Extension(
            "shmjet._native._columns",
            sources=["shmjet/_native/columns_module.c", *(f"shmjet/_native/columns_{name}.c" for name in KERNELS)],
            depends=HEADERS,
            define_macros=LIMITED,
            extra_compile_args=OPTIONS,
            py_limited_api=True,
        ),
    ]
)
