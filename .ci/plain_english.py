"""Names the phrases that this project does not write, with the usual ones in their place. A list, no grammar.

python .ci/plain_english.py [PATH ...]      files, or folders with all that git knows in them (default: everything)
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {".py", ".pyi", ".md", ".c", ".h", ".pml", ".toml", ".cfg", ".yml", ".yaml", ""}
LEFT_OUT = {".ci/plain_english.py", "LICENSE"}
BUILT = {"build", "dist", "out", "_build", "__pycache__", "shmjet.egg-info"}
HIDDEN = (".venv", ".git", ".mypy", ".ruff", ".pytest", ".hypothesis", ".import")
INSTEAD = {
    r"whoever|whomever|whom": "a noun: the member, the caller, the process that",
    r"(?<!there )(is|are|was|were) no(?= )(?! (longer|more|less|fewer|other|one)\b)": "'is not a', 'has no'",
    r"in vain": "'without success', or what happens then",
    r"(those|ones?) (that|who|which)": "a noun: the members that, a value that",
    r"mend(s|ed|ing)?": "'fix', 'repair'",
    r"(some|any|every|no)body('s)?": "a noun, or 'someone', 'anyone', 'all', 'no one', 'nothing'",
    r"again and again": "'repeatedly', 'every second'",
    r"(can|may|to|could|might|must) be had": "'is available'",
    r"what (becomes|became|has become) of": "'what happens to'",
    r"besides?": "'next to', 'with', 'compared with', 'also'",
    r"of one's own": "'its own', 'your own'",
}
PATTERNS = [(re.compile(rf"\b(?:{phrase})(?!\w)", re.I), usual) for phrase, usual in INSTEAD.items()]


def files(places: list[str]) -> list[Path]:
    """Return what git knows below these places, as far as people read it; in a copy without git what is not built."""
    git = subprocess.run(["git", "ls-files", "--", *places], capture_output=True, text=True, check=False)
    known = [Path(name) for name in git.stdout.splitlines()] if git.returncode == 0 else list(walk(places or ["."]))
    return [path for path in known if path.suffix in SUFFIXES and str(path) not in LEFT_OUT]


def walk(places: list[str]) -> Iterator[Path]:
    """Yield all files below these places but built, installed and hidden ones."""
    for place in map(Path, places):
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file() and not any(part in BUILT or part.startswith(HIDDEN) for part in path.parts):
                yield path


def main(places: list[str]) -> int:
    """Print each phrase as file:line: phrase: the usual one, and return 1 when there is any."""
    found = 0
    for path in files(places):
        try:
            lines = path.read_text().splitlines()
        except (UnicodeDecodeError, OSError):
            continue
        for number, line in enumerate(lines, 1):
            for pattern, usual in PATTERNS:
                for hit in pattern.finditer(line):
                    found += 1
                    print(f"{path}:{number}: {hit[0]!r}: rather {usual}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
