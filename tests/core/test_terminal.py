"""Nothing that others have named or raised steers a terminal."""

from __future__ import annotations

import io
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shmjet import DAG, processors
from shmjet.cli.members import print_table
from shmjet.cli.outcome import complain
from shmjet.host.terminal_text import clean, clean_line
from shmjet.observe.flow import EdgeFlow, Flow, VertexFlow
from shmjet.observe.table import flow_view

EVIL = "\x1b]0;pwned\x07\x1b[31m[bold]\u202e\x9b2J\r\x00\ud800 \\[red]"

ODD = st.text(st.characters() | st.sampled_from("\x00\x07\x08\x1b\r\n\t\x7f\x85\x9b\u2028\u202e\u2066\ud800"))


@given(ODD)
def test_what_is_clean_has_no_characters_that_a_terminal_acts_on(text: str) -> None:
    for cleaned, kept in ((clean(text), "\n\t"), (clean_line(text), "")):
        cleaned.encode()  # no halves of surrogates
        left = {c for c in cleaned if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")}
        assert left <= set(kept)
        assert not set(cleaned) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.text(st.characters(categories=("L", "M", "N", "P", "S", "Zs"))))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == clean_line(text) == text


def is_safe(text: str) -> bool:
    return clean(text) == text


def test_tables_and_complaints_are_clean(capsys) -> None:  # type: ignore[no-untyped-def]
    print_table(("name",), [(EVIL,), ("two\nlines",)])
    complain(f"job {EVIL} failed")
    said = capsys.readouterr()
    assert is_safe(said.out)
    assert r"\x1b]0;pwned\x07" in said.out
    assert r"two\nlines" in said.out
    assert len(said.out.splitlines()) == 3
    assert is_safe(said.err)
    assert r"\u202e" in said.err


def test_a_picture_of_a_job_is_clean_and_shows_brackets_as_they_are() -> None:
    vertex = VertexFlow(EVIL, 2, 10, 10, 5.0, 5.0, 0.5, 0.9, has_ended=True)
    edge = EdgeFlow(EVIL, 0, EVIL, 0, 1, 1.0, 1, 1, 0.9)
    out = io.StringIO()
    Console(file=out, width=400, highlight=False, color_system=None).print(
        flow_view(Flow(1.0, (vertex,), (edge,), (), edge), EVIL)
    )
    assert is_safe(out.getvalue())
    assert r"[31m[bold]\u202e" in out.getvalue()


def test_drawings_are_clean() -> None:
    dag = DAG()
    dag.new_vertex(EVIL.replace("\ud800", ""), processors.noop())
    for drawn in (dag.to_dot(), dag.to_svg(), dag.to_mermaid()):
        assert is_safe(drawn)
