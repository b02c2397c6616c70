"""What the help of commands has that click does not: arguments that are explained, and commands in sections."""

from __future__ import annotations

from typing import Any

import click

from shmjet.data.suggestions import meant

HELP_NAMES = ["-h", "--help"]
WIDTH = 100
"""Columns that help takes at most, where the terminal has them."""


class Argument(click.Argument):
    """An argument with a text for the help of its command."""

    def __init__(self, *names: Any, metavar: str, text: str, **others: Any) -> None:
        super().__init__(*names, metavar=metavar, **others)
        self._record = metavar, text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self._record


class Command(click.Command):
    """A command that stands in a section of its group's help.

    Args:
        section: the section's title.
        others: of `click.Command`.
    """

    def __init__(self, *names: Any, section: str, **others: Any) -> None:
        settings = {"help_option_names": HELP_NAMES, "show_default": True, "max_content_width": WIDTH}
        super().__init__(*names, **{**others, "context_settings": settings | others.get("context_settings", {})})
        self.section = section

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kind in (("Arguments", Argument), ("Options", click.Option)):
            found = [param.get_help_record(ctx) for param in self.get_params(ctx) if isinstance(param, kind)]
            if lines := [line for line in found if line is not None]:
                with formatter.section(title):
                    formatter.write_dl(lines)


class Group(click.Group):
    """A group whose help lists the commands by section, in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{meant(args[0], self.commands)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            section = command.section if isinstance(command, Command) else "Commands"
            sections.setdefault(section, []).append((name, command.get_short_help_str(limit=1000)))
        for section, lines in sections.items():
            with formatter.section(section):
                formatter.write_dl(lines)
