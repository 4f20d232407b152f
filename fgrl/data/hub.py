"""Sources of the rows of a data set: the Hugging Face hub, a local folder, or local files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError, Requires, Unavailable
from fgrl.base.files import has_more_files, kept, sha256_of_file, sha256_of_folder
from fgrl.data.row import Row
from fgrl.data.row_reader import RowReader
from fgrl.data.text_file import check_csv, check_utf8, delimiter_of, read_json_rows, with_all_columns
from fgrl.kinds.specs import names_source
from fgrl.registry import File, FolderOrName

datasets = lazy.load("datasets")
huggingface_hub = lazy.load("huggingface_hub")

KINDS = ("json", "parquet", "csv")
HubPath = Annotated[str, FolderOrName(KINDS)]
MOST_FILES = 10_000
"""Maximum number of files in a folder of data: a larger folder, such as `..`, would be hashed for hours with everything
in it.
"""
MOST_BYTES = 64 * 2**20
"""Maximum size in bytes of local JSON files that are read at once: larger files are left to `datasets`, which maps them
from disk. The import of `datasets` alone takes longer than reading small files.
"""


class Hub(RowReader):
    """Reader of the rows of a data set on the hub, of a local folder, or of local files of one kind (`path: json` with
    `files`).
    """

    path: HubPath
    """Hub id; or a folder (data files, or the output of `save_to_disk`), in a recipe relative to the recipe; or `json`,
    `parquet`, `csv` with `files`.
    """
    files: list[Annotated[str, File]] = []
    """Local files, with `path: json | parquet | csv`."""
    data_files: list[str] = []
    """Files inside the hub data set or the folder; if it is empty, all files are read."""
    config: str | None = None
    """Configuration of the data set (the library's `name`)."""
    split: str = "train"
    """Name of the split, e.g. `train[:10%]`."""
    revision: str | None = None
    """Commit, tag or branch on the hub. Pin a commit: otherwise the data may change under a finished recipe."""

    @model_validator(mode="after")
    def _files_need_their_kind(self) -> Hub:
        if (self.path in KINDS) != bool(self.files):
            raise ValueError(f"files: goes with path: {' | '.join(KINDS)}, and these go with files")
        if self.files and (self.data_files or self.revision or self._unless_default("config")):
            raise ValueError("files: local files have no data_files, revision or config")
        if self.path not in KINDS and "://" not in self.path and not names_source(self.path):
            raise ValueError(f"path: no such folder: {self.path} (a hub id looks like owner/name)")
        if self.path not in KINDS and has_more_files(Path(self.path), MOST_FILES):
            raise ValueError(
                f"path: the folder {self.path} has more than {MOST_FILES:,} files, all of which count in the stage's key: give the "
                "folder that has the data alone"
            )
        return self

    def identity(self) -> dict[str, Any]:
        """Return a hash of the contents of a local folder, or the revision of data on the hub (null: the revision is
        not pinned).
        """
        if self.files:
            return {}
        if not Path(self.path).is_dir():
            return {"revision": self.revision}

        def entry(name: str, file: Path) -> bytes:
            return f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape") + bytes.fromhex(
                sha256_of_file(file)
            )

        return {"folder": sha256_of_folder(Path(self.path), entry)}

    def placed(self) -> tuple[str, ...]:
        return () if self.files or not Path(self.path).is_dir() else ("path",)

    def check_machine(self) -> None:
        if not self.reads_at_once():
            Requires("datasets", f"reading {self.path} needs the package datasets", extra="hub").check()

    def rows(self) -> tuple[str, Sequence[Row]]:
        where = f"{self.path}, split {self.split}" if not self.files else ", ".join(self.files)
        if self.reads_at_once():
            return where, with_all_columns(read_json_rows(self.files))
        for file in self._text_files():
            check_utf8(file)
        self.check_machine()
        try:
            data = self._load()
        except ConnectionError as error:
            then = f"try again with a network, or name local files (hf download --repo-type dataset {self.path} --local-dir FOLDER)"
            raise Unavailable(f"{where}: cannot be reached: {error}; {then}") from error
        except (OSError, ValueError, RecursionError, datasets.exceptions.DatasetsError) as error:
            self._check_files()
            raise DataError(f"{where}: cannot be loaded: {error.__cause__ or error}") from error
        except RuntimeError as error:
            if "scripts are no longer supported" not in str(error):
                raise
            raise DataError(
                f"{where}: the hub has this data set as a program, which is not run. Set `revision: refs/convert/parquet` "
                "where the hub keeps a converted copy, or read files that you downloaded: `path: parquet | csv | json` "
                "with `files`"
            ) from None
        commit = _commit(data)
        if not self.files and commit:
            pin = "" if self.revision else "; no `revision` is pinned"
            self.say(f"{where}: {len(data)} rows at revision {commit}{pin}")
        return where, data

    def at(self, rows: Any, numbers: Sequence[int]) -> Iterator[Row]:
        if isinstance(rows, list):
            yield from super().at(rows, numbers)
            return
        for start in range(0, len(numbers), 64):  # many at a time, which is two to four times as fast
            columns = rows[list(numbers[start : start + 64])]
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    def hub_config(self) -> str | None:
        """Return the configuration to request from the hub."""
        return self.config

    def reads_at_once(self) -> bool:
        """Return True if the rows are all rows of JSON files that are read at once, without `datasets`."""
        if self.path != "json" or (self._unless_default("split") or "train") != "train":
            return False
        sizes = [file.stat().st_size for name in self.files if (file := Path(name)).is_file()]
        return len(sizes) == len(self.files) and sum(sizes) <= MOST_BYTES

    def _text_files(self) -> list[Path]:
        """Return the local files whose rows are text: the library that loads them accepts any bytes."""
        if self.path in ("json", "csv"):
            return [Path(file) for file in self.files]
        named = [Path(self.path) / name for name in self.data_files if Path(self.path).is_dir()]
        return [file for file in named if file.suffix in (".json", ".jsonl", ".csv") and file.is_file()]

    def _delimiter(self) -> str:
        """Return the delimiter of the fields of local CSV files."""
        found = [file for file in self._text_files() if self.path == "csv" or file.suffix == ".csv"]
        given: str | None = getattr(self, "separator", None)
        return given or (delimiter_of(found[0]) if found else ",")

    def _check_files(self) -> None:
        """Raise `DataError` with the line at which a local file is malformed."""
        for file in self._text_files():
            if self.path == "csv" or file.suffix == ".csv":
                check_csv(file, self._delimiter())
            else:
                read_json_rows([file])

    def _unless_default(self, name: str) -> Any:
        """Return the value of a field; None if it is the reader's default, which is a name that only the hub knows."""
        value = getattr(self, name)
        return None if value == type(self).model_fields[name].default else value

    def _load(self) -> Any:
        folder = Path(self.path)
        if folder.is_dir() and ((folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()):
            saved = datasets.load_from_disk(self.path)
            if not isinstance(saved, datasets.DatasetDict):
                return saved
            if self.split not in saved:
                raise ValueError(f'no split "{self.split}"; it has {", ".join(saved)}')
            return saved[self.split]
        inside = [str(kept(file)) for file in self.files] or self.data_files or None
        config = self._unless_default("config") if self.files or folder.is_dir() else self.hub_config()
        # the split of files alone is always called train
        split = (self._unless_default("split") or "train") if self.files else self.split
        options = {} if (sign := self._delimiter()) == "," else {"sep": sign}
        return datasets.load_dataset(
            self.path, config, data_files=inside, split=split, revision=self.revision, **options
        )


def download(
    repo: str, files: Sequence[str], revision: str | None, say: Callable[[str], None]
) -> tuple[str, list[Path]]:
    """Return the name of files of a data set on the hub, and their paths in the local cache. Raises `Unavailable` if
    neither the hub nor the cache has them, `DataError` for files that the data set does not have. say: called if no
    revision is pinned.
    """
    where = ", ".join(f"{repo}/{name}" for name in files)
    try:
        paths = [
            Path(huggingface_hub.hf_hub_download(repo, name, repo_type="dataset", revision=revision)) for name in files
        ]
    except (ConnectionError, huggingface_hub.errors.LocalEntryNotFoundError) as error:
        raise Unavailable(f"{where}: not in the local cache, and the hub cannot be asked") from error
    except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise DataError(f"{where}: cannot be loaded: {error}") from error
    if revision is None:
        say(f"{where}: no `revision` is pinned")
    return where, paths


def _commit(data: Any) -> str | None:
    """Return the hub's commit that the rows were downloaded from; None for local data."""
    for address in data.info.download_checksums or {}:
        if address.startswith("hf://") and "@" in address:
            return address.split("@", 1)[1].split("/", 1)[0]
    return None
