"""The check of what the sdist and the wheel hold: `python3 .ci/dist_contents.py FOLDER`, from the root of a checkout.

Prints what is missing and what does not belong there, and exits with 1 if there is anything.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def tracked(*patterns: str) -> set[str]:
    """Return the files of the package that git knows; without a git checkout, all files that lie here."""
    listed = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return set(listed.stdout.split("\n")) - {""}
    return {str(path) for pattern in patterns for path in Path().glob(pattern)}


def wheel_faults(path: Path) -> list[str]:
    """Return what is wrong with a wheel: its tags, and what it lacks or has too much."""
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
    wanted = tracked("shmjet/**/*.py", "shmjet/*.py", "shmjet/_native/*.pyi", "shmjet/console/static/*")
    wanted |= tracked("shmjet/spark/direct/*.java")
    wanted |= {"shmjet/py.typed", "shmjet/_native/_core.abi3.so", "shmjet/_native/_columns.abi3.so"}
    faults = [f"{name} is missing" for name in sorted(wanted - names)]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        faults.append("LICENSE is missing")
    for name in sorted(names):
        if name.endswith((".c", ".h", ".o")) or not name.startswith(("shmjet/", "shmjet-")):
            faults.append(f"{name} does not belong into a wheel")
    if "-abi3-manylinux" not in path.name:
        faults.append("the tag is not abi3-manylinux")
    return faults


def sdist_faults(path: Path) -> list[str]:
    """Return what is wrong with an sdist: what it lacks, and compiled files or tests that it has."""
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    wanted = tracked("shmjet/**", "shmjet/*") | {"LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}
    wanted = {name for name in wanted if Path(name).is_file() and not name.endswith((".so", ".pyc"))}
    faults = [f"{name} is missing" for name in sorted(wanted - names)]
    for name in sorted(names):
        if name.endswith((".so", ".o", ".pyc")) or name.startswith("tests"):
            faults.append(f"{name} does not belong into an sdist")
    return faults


def main() -> int:
    """Check all wheels and sdists in a folder."""
    folder = Path(sys.argv[1])
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    faults = [f"{path.name}: {fault}" for path in wheels for fault in wheel_faults(path)]
    faults += [f"{path.name}: {fault}" for path in sdists for fault in sdist_faults(path)]
    if not wheels or not sdists:
        faults.append(f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists; there must be one of each at least")
    print("\n".join(faults) or f"{len(wheels) + len(sdists)} files hold what they should")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
