"""`penstock token`: who may use a server, and for what."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli.errors import CommandError, warn
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, new_table, plain, show, show_time
from penstock.cli.target import Target, targeted
from penstock.cli.values import parse_length
from penstock.model.tokens import NewToken, TokenInfo

if TYPE_CHECKING:
    from penstock.server.access.tokens import TokenFile

Result = TypeVar("Result")

app = new_app("Make, list and revoke tokens: who may use a server, and for what.")


@app.command()
@targeted
def create(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, such as orders-app.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", "-s", metavar="SCOPE", help="What it is for: admin, publish, consume or read; may be repeated."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="PATTERN", help="Only for topics like this; may be repeated.  [default: all]"
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="It ends after so long, such as 30d.  [default: never]")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Make a token, and show its secret: this once, for only a hash of it is kept.

    Works with `--dir` on the directory of a server, also while that runs, or on a server with a token of the scope
    admin. Whoever has the secret gives it as `--token` or `PENSTOCK_TOKEN`, and to `penstock.connect(…, token=…)`.

    For example:

        penstock token create admin --scope admin --dir ./data
        penstock token create shop --scope publish --scope read --topic 'orders.*' --expires 30d
        PENSTOCK_TOKEN=$(penstock token create me --scope admin --dir ./data) penstock status
    """
    life_s = parse_length(expires)
    arguments: dict[str, Any] = {"name": name, "scopes": scope or [], "topics": topic or ["*"], "expires_in": life_s}
    if target.directory is not None:
        made = _token_file(target.directory, new=True).create(**arguments)
    else:
        made = _ask(target, "create_token", NewToken, **arguments)
    if output is Format.TABLE:
        warn("this is the token: keep it now, it cannot be shown again")
    show({**plain(made.token), "secret": made.secret}, output, made.secret)


@app.command("list")
@targeted
def list_tokens(target: Target, output: FormatOption = Format.TABLE) -> None:
    """List all tokens, without their secrets.

    For example:

        penstock token list --dir ./data
        penstock token list -o json | jq -r '.[].name'
    """
    if target.directory is not None:
        found = [token.info for token in _token_file(target.directory).read()]
    else:
        found = _ask(target, "tokens", list[TokenInfo])
    now = datetime.now(UTC)
    rows = [
        [token.id, token.name, ", ".join(token.scopes), ", ".join(token.topics), token.created_at, _end(token, now)]
        for token in found
    ]
    table = new_table("id", "name", "scopes", "topics", "created", "expires", rows=rows)
    show(found, output, table if rows else "there are no tokens")


@app.command()
@targeted
def revoke(
    target: Target,
    which: Annotated[str, typer.Argument(metavar="ID|NAME", help="The token, as it is listed.", show_default=False)],
    output: FormatOption = Format.TABLE,
) -> None:
    """Take a token away: it opens nothing from now on, and what is connected with it is closed within a second or two.

    For example:

        penstock token revoke shop --dir ./data
        penstock token revoke 9f2c61d0b3aa
    """
    if target.directory is not None:
        gone = _token_file(target.directory).revoke(which)
    else:
        gone = _ask(target, "revoke_token", TokenInfo, token=which)
    show({"revoked": gone.id, "name": gone.name}, output, f"{gone.name} ({gone.id}) is revoked")


def _token_file(directory: Path, *, new: bool = False) -> TokenFile:
    """The tokens of a directory, which may have nothing else in it."""
    from penstock.server.access.tokens import TokenFile

    if not new and not directory.is_dir():
        raise CommandError(f"{directory} is not a directory", "give the directory of a server")
    return TokenFile(directory)


def _ask(target: Target, operation: str, result: type[Result], **arguments: Any) -> Result:
    """What a server says."""
    import penstock

    if target.bucket is not None:
        raise CommandError("tokens are those of a server: a bucket has none", "give --server")
    with penstock.connect(target.server, **target.secrets) as client:
        return client.call(operation, result, **arguments)


def _end(token: TokenInfo, now: datetime) -> str:
    if token.expires_at is None:
        return "never"
    return f"{show_time(token.expires_at)}{' (over)' if token.expires_at <= now else ''}"
