"""Examples at the end of each command's help."""

from __future__ import annotations

EXAMPLES = {
    "train": (
        "harmonium train digits runs/digits --binarise sample --hidden 200",
        "harmonium train rows.csv runs/rows --label species --hidden 50",
        "harmonium train digits runs/deep --binarise sample --hidden 200,100 --rule mean_field_pcd",
        "harmonium train --config runs/digits/run.toml runs/again --seed 1",
        "harmonium train --resume runs/digits --epochs 200",
        "harmonium train --from runs/digits runs/slower --learning-rate 0.005",
    ),
    "evaluate": (
        "harmonium evaluate runs/digits digits",
        "harmonium evaluate runs/digits train.npy test.npy --temperatures 10000 --json",
        "harmonium evaluate runs/digits digits --mixing-plot mixing.png",
    ),
    "sample": (
        "harmonium sample runs/digits --out samples.png",
        "harmonium sample runs/rows --out rows.csv --number 1000 --given species=setosa",
    ),
    "denoise": (
        "harmonium denoise runs/digits noisy.npy --flip-probability 0.1 --out clean.png",
        "harmonium denoise runs/digits digits --corrupt --flip-probability 0.1 --out clean.npy",
    ),
    "impute": (
        "harmonium impute runs/rows holes.csv --out complete.csv",
        "harmonium impute runs/rows holes.csv --out complete.csv --imputations 5",
    ),
    "predict": (
        "harmonium predict runs/rows new.csv --out predicted.csv",
        "harmonium predict runs/rows new.csv --column petal_length --out predicted.csv",
    ),
    "landscape": ("harmonium landscape runs/digits digits --starts 500",),
    "report": (
        "harmonium report runs/digits",
        "harmonium report runs/digits --compare runs/slower --out both.html",
    ),
    "data": (
        "harmonium data digits --grid digits.png",
        "harmonium data images/ --out images.npz",
    ),
    "info": ("harmonium info", "harmonium info --json"),
    "reproduce": (
        "harmonium reproduce",
        "harmonium reproduce meeting_times --budget quick",
    ),
}


def epilog(command: str) -> str:
    """The examples of a command as paragraphs, which keep their lines apart."""
    return "\n\n".join(["Examples:", *EXAMPLES[command]])
