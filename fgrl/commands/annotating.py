"""`fgrl annotate`: the page on which people mark spans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.commands import annotation_files
from fgrl.commands.completion import Commands
from fgrl.commands.shared import AsJson, echo, emit

access = lazy.load("fgrl.pages.annotation.access")
serving = lazy.load("fgrl.pages.annotation.serving")

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="The page on which people mark spans of responses, and what they stored.",
)


def _names(text: str | None) -> list[str]:
    """Return the items of a comma-separated list."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


SERVE = """
\b
Examples:
  fgrl annotate serve samples.jsonl --store page.sqlite --annotators ann,ben
  fgrl annotate serve samples.jsonl --store page.sqlite --annotators ann,ben,cleo --overlap 100
  fgrl annotate serve runs/stages/draw-3fa9c1d2 --store page.sqlite --annotators ann --settings retrieval_ab
  fgrl annotate serve --store page.sqlite             continue with an existing store

\b
Prints one link per annotator. A link is a key: give each annotator their own, and only that. It is printed once, stays valid
when the server is started again, and is replaced by --new-links NAME. Everything that the page shows as saved is in the store,
whatever happens to the server. Ctrl-C stops it.
The page can be reached from this machine only. For other machines: an SSH tunnel (ssh -L 8347:127.0.0.1:8347 HOST), or a proxy
that speaks HTTPS with --public-url.
"""
Store = Annotated[Path, typer.Option("--store", metavar="FILE", help="Store of the annotations (SQLite).")]


@app.command(epilog=SERVE)
def serve(
    store: Store,
    samples: Annotated[
        Path | None,
        typer.Argument(
            metavar="SAMPLES",
            help="JSONL of samples, or the folder of a stage that makes samples. An existing store needs none.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings", metavar="FILE", help="The page's settings (YAML), or the name of shipped ones. [retrieval]"
        ),
    ] = None,
    annotators: Annotated[
        str | None, typer.Option("--annotators", metavar="A,B,...", help="Names of annotators; new ones are added.")
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            "--overlap", metavar="N", min=0, help="Number of items, drawn at random, that every annotator gets. [0]"
        ),
    ] = None,
    each: Annotated[
        int | None, typer.Option("--each", metavar="N", min=1, help="Number of annotators of each other item. [1]")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", min=0, help="Seed of the items drawn for all, and of the order of responses. [0]"
        ),
    ] = None,
    leases: Annotated[
        int, typer.Option("--leases", metavar="N", min=1, help="Number of items that one annotator may hold.")
    ] = 3,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0: any free port.")] = 8347,
    public_url: Annotated[
        str | None, typer.Option("--public-url", metavar="URL", help="Address of the page behind a proxy.")
    ] = None,
    new_links: Annotated[
        str | None,
        typer.Option(
            "--new-links", metavar="A,B,...", help="Make new links for these, or for `all`; earlier links end."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve the page on which annotators mark spans, until Ctrl-C."""
    serving.need_packages()
    public = serving.checked_public(public_url)
    names = _names(annotators)
    if annotators is not None and not names:
        raise UsageError("--annotators: wants names, as in ann,ben")
    bound = serving.listen(host, port)
    with bound:
        address = access.Address(host, bound.getsockname()[1], public)
        opened = serving.open_store(
            store, samples, settings, names, overlap=overlap, each=each, seed=seed, leases=leases
        )
        with opened.store as ready:
            links = serving.issue_links(ready, address, renew=_names(new_links))
            token = access.new_token()
            app, managing = serving.application(ready, address, token), f"{address.url}/manage/{token}"
            for note in opened.notes:
                echo(note, err=True)
            if earlier := [name for name in ready.annotators if name not in links]:
                echo(
                    f"links of earlier starts stay valid for {', '.join(earlier)} (--new-links NAME replaces one)",
                    err=True,
                )
            if not address.local and public is None:
                echo(
                    "the page can be reached from the network, without encryption: a tunnel or a proxy with HTTPS is safer",
                    err=True,
                )
            if as_json:
                emit(
                    {
                        "url": address.url,
                        "store": str(store),
                        "items": len(ready.items),
                        "links": links,
                        "manager": managing,
                    }
                )
            else:
                echo(f"{address.url}   (Ctrl-C stops the server)", err=True)
                echo(f"your own page, with everybody's progress, until the server stops: {managing}", err=True)
                for name, link in links.items():
                    echo(f"{name}  {link}")
            serving.run(app, bound)
    echo(f"stopped; everything that was acknowledged is in {store}", err=True)


app.command(epilog=annotation_files.EXPORT)(annotation_files.export)
app.command("import", epilog=annotation_files.IMPORT)(annotation_files.import_)
app.command(epilog=annotation_files.STATS)(annotation_files.stats)
