"""How the texts of a column are read as numbers: 1,234.5 or 1.234,5, percent, amounts, dates.

The reading is found once, from all values of a column, and kept: other tables are read alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..._check import flag, kind, known
from . import ranks
from .lazy import pl

FORMS = {
    "plain": "number",
    "decimal-point": "number with a decimal point",
    "decimal-comma": "number with a decimal comma",
    "year-first": "date, the year first",
    "day-first": "date, the day first",
    "month-first": "date, the month first",
    "time": "time of the day",
}
"""The forms that the values of a column may have, and their words. `plain` is how programs write
numbers: 1234.5, 1e-3. The next two may also have thousands set apart."""
DATES = ("year-first", "day-first", "month-first")
NUMBERS = ("plain", "decimal-point", "decimal-comma")
ASKED = {
    "date": DATES,
    "day-first": ("day-first",),
    "month-first": ("month-first",),
    "decimal-comma": ("decimal-comma",),
    "decimal-point": ("decimal-point",),
}
"""What may be asked for in place of a kind of column: a number of some forms only."""
_RIVALS = {
    "plain": "decimal-comma",
    "decimal-point": "decimal-comma",
    "decimal-comma": "decimal-point",
    "day-first": "month-first",
    "month-first": "day-first",
}
NAMED_MONTH = (
    r"(?i)^(\d{1,2}[ .-]+)?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ .,-]+\d{1,4}"
)
"""The beginning of 5-Jan-2024 and of Jan 5, 2024."""
SAMPLE = 1000
"""Values by which forms are ruled out, so that long texts cost nothing."""

_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|TRY|RUB"
CURRENCY = rf"(?:US|CA|AU|NZ|HK|R|S|A|C)\$|\p{{Sc}}|{_CODES}|kr\.?|zł|Kč|Ft|Fr\."
_BLANKS = "[\u00a0\u2007\u2009\u202f]"
_QUOTE = "['\u2019]"
_THOUSANDS = {"decimal-point": (",", " ", _QUOTE), "decimal-comma": (r"\.", " ", _QUOTE)}
_DIGITS = "[0-9.,' \u2019]+"


@dataclass(frozen=True)
class Reading:
    """How texts are read as numbers.

    Attributes:
        form: one of `FORMS`.
        percent: every value ends with a percent sign: 12 % is 12.
        currency: the sign or code that values may have before or behind them; "" for none.
        sure: whether the values fit no other form that makes other numbers of them.
    """

    form: str = "plain"
    percent: bool = False
    currency: str = ""
    sure: bool = True

    @property
    def what(self) -> str:
        """What a value is, such as 'number with a decimal comma, in €'."""
        unit = "percent" if self.percent else self.currency
        return FORMS[self.form] + (f", in {unit}" if unit else "")

    @property
    def many(self) -> str:
        """What several values are."""
        return re.sub("^(number|date|time)", r"\1s", self.what)

    def words(self, name: str = "") -> str:
        """What to say of a column that is read so; nothing of plain numbers.

        `name` is that of a feature, for which another reading can be asked.
        """
        if self.sure:
            return "" if self == PLAIN else f"read as {self.many}"
        taken = replace(self, form="decimal-point") if self.form == "plain" else self
        rival = Reading(_RIVALS[self.form])
        hint = f": '{name}:{rival.form}'" if name else ""
        return f"read as {taken.many}; they could also be {rival.many}{hint}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Any) -> Reading:
        """The inverse of `to_dict`; what does not fit is a `ValueError` or `TypeError`."""
        reading = cls(**kind("reading", content, dict, "a table"))
        known("form of numbers", reading.form, FORMS)
        flag("percent", reading.percent)
        flag("sure", reading.sure)
        kind("currency", reading.currency, str, "a text")
        return reading


PLAIN = Reading()


def parse(texts: pl.Series, reading: Reading) -> pl.Series:
    """Texts as numbers, dates as microseconds; null where one does not fit."""
    if reading.form in DATES:
        return _dates(texts, reading.form)
    if reading.form == "time":
        return _times(texts)
    if replace(reading, sure=True) == PLAIN:
        numbers = _cast(texts)
        if numbers.null_count() == texts.null_count():
            return numbers
    return _number(_bare(_ascii(texts), reading), reading.form)


def find(texts: pl.Series, forms: Sequence[str] = tuple(FORMS)) -> tuple[Reading, pl.Series]:
    """The reading that fits texts best, and a mask of those that it does not fit.

    `texts` are stripped, and none is missing. Where several fit all of them, one is preferred, and
    is not sure if the other makes other numbers of them.
    """
    if "plain" in forms and not ranks.any_of(wrong := _wrong(texts, PLAIN)):
        unsure = "decimal-comma" in forms and _may_be_thousands(texts)
        return Reading(sure=not unsure), wrong
    sample = ranks.head(texts, SAMPLE)
    marks = _marks(sample)
    readings = [replace(marks, form=form) if form in NUMBERS else Reading(form) for form in forms]
    half = ranks.size_of(sample) // 2
    likely = [each for each in readings if ranks.count_of(_wrong(sample, each)) <= half]
    wrongs = [(reading, _wrong(texts, reading)) for reading in likely or readings[:1]]
    counts = [ranks.count_of(wrong) for _, wrong in wrongs]
    fitting = [reading for reading, count in zip(likely, counts, strict=False) if not count]
    if fitting:
        return _preferred(texts, fitting), texts.is_null()
    return wrongs[counts.index(min(counts))]


def currencies(texts: pl.Series) -> list[str]:
    """The signs and codes that stand before or behind numbers, if most texts are such amounts."""
    texts = _ascii(texts)
    before = texts.str.extract(rf"^[+-]?\s*({CURRENCY})\s*[+-]?{_DIGITS}$")
    behind = texts.str.extract(rf"^[+-]?{_DIGITS}({CURRENCY})$")
    found = before.zip_with(before.is_not_null(), behind).drop_nulls()
    most = 2 * ranks.size_of(found) >= ranks.size_of(texts)
    return ranks.unique_of(found) if most else []


def _wrong(texts: pl.Series, reading: Reading) -> pl.Series:
    return parse(texts, reading).is_null()


def _marks(sample: pl.Series) -> Reading:
    """Percent or currency, if the numbers of a sample have one."""
    if ranks.share_of(sample.str.ends_with("%")) > 0.5:
        return Reading(percent=True)
    signs = currencies(sample)
    return Reading(currency=signs[0] if len(signs) == 1 else "")


def _preferred(texts: pl.Series, fitting: list[Reading]) -> Reading:
    """One of several readings that all fit."""
    by_form = {reading.form: reading for reading in fitting}
    first = fitting[0]
    if first.form == "plain" and "decimal-comma" not in by_form:
        return first
    rival = by_form.get(_RIVALS.get(first.form, ""))
    if rival is None or ranks.all_of(parse(texts, first) == parse(texts, rival)):
        return first
    if first.form in DATES:
        dotted = not ranks.any_of(texts.str.contains(r"^\d+[-/]"))  # no month comes first so
        if dotted:
            return first
        # As where the month comes first.
        noon = ranks.any_of(texts.str.contains(r"(?i)\d ?[ap]\.?m\.?$"))
        return replace(rival if noon else first, sure=False)
    bare = _bare(_ascii(texts), first)
    if ranks.any_of(bare.str.contains(",", literal=True)):  # thousands, but not beside 1 234
        comma = ranks.any_of(bare.str.contains(" ", literal=True))
    else:
        comma = bool(first.currency)  # amounts seldom have three decimals
    point = by_form.get("decimal-point", first)
    return replace(by_form["decimal-comma"] if comma else point, sure=False)


# -------------------------------------------------------------------------------------- numbers


def _ascii(texts: pl.Series) -> pl.Series:
    """Texts with the minus and the blanks of a keyboard."""
    texts = texts.str.replace_all(_BLANKS, " ")
    return texts.str.replace("\u2212", "-", literal=True)


def _bare(texts: pl.Series, reading: Reading) -> pl.Series:
    """Texts without percent and currency; null where the percent sign lacks."""
    if reading.percent:
        lacks = ~texts.str.ends_with("%")
        texts = texts.str.strip_suffix("%").str.strip_chars().set(lacks, None)
    if reading.currency:
        sign = re.escape(reading.currency)
        texts = texts.str.replace(rf"^([+-]?)\s*{sign}\s*", "${1}")
        texts = texts.str.replace(rf"\s*{sign}$", "")
    return texts


def _number(texts: pl.Series, form: str) -> pl.Series:
    """Numbers of one of the forms `NUMBERS`, null where one is none."""
    if form == "plain":
        return _cast(texts)
    sign, groups = ("," if form == "decimal-comma" else "."), _THOUSANDS[form]
    parts = "|".join(rf"(?:{group}\d{{3}})+" for group in groups)
    point = re.escape(sign)
    whole = rf"(?:[1-9]\d{{0,2}}(?:{parts})|\d+)"
    right = rf"^[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?$"
    joined = texts.str.replace_all("|".join(groups), "").str.replace(sign, ".", literal=True)
    return _cast(joined.set(~texts.str.contains(right), None))


def _cast(texts: pl.Series) -> pl.Series:
    return texts.cast(pl.Float64, strict=False).fill_nan(None)  # polars knows -nan too


def _may_be_thousands(texts: pl.Series) -> bool:
    """Whether every point of plain numbers could be one of thousands: 1.234 and 17, but not 0.5."""
    for some in (ranks.head(texts, SAMPLE), texts):
        if not ranks.all_of(some.str.contains(r"^[+-]?(?:[1-9]\d{0,2}(?:\.\d{3})+|\d{1,3})$")):
            return False
    return ranks.any_of(texts.str.contains(".", literal=True))


# ---------------------------------------------------------------------------------------- dates

_TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r"(?: ?(?P<noon>[AaPp])\.?[Mm]\.?)?"
)
_ZONE = r"(?: ?(?P<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?"
_CLOCK = rf"(?:(?:[Tt]|,? +){_TIME}{_ZONE})?$"
_SPLIT = {
    "year-first": r"^(?P<year>\d{4})[-/.](?P<month>\d{1,2})(?:[-/.](?P<day>\d{1,2}))?",
    "day-first": r"^(?:(?P<day>\d{1,2})[-/.])?(?P<month>\d{1,2})[-/.](?P<year>\d{2,4})",
    "month-first": r"^(?P<month>\d{1,2})[-/.](?:(?P<day>\d{1,2})[-/.])?(?P<year>\d{2,4})",
}
_MONTHS = r"(?:1[89]|2[01])\d\d"
"""Years of months: 4711-01 is a number of something else."""
_SHAPES = {
    "year-first": rf"\d{{4}}(?:-\d\d?-\d\d?|/\d\d?/\d\d?|\.\d\d?\.\d\d?)|{_MONTHS}[-/]\d\d?",
    "day-first": (
        r"\d\d?(?:-\d\d?-|/\d\d?/|\.\d\d?\.)\d{4}|\d\d(?:/\d\d/|\.\d\d\.)\d\d"
        rf"|\d\d?[-/]{_MONTHS}"
    ),
}
_SHAPES["month-first"] = _SHAPES["day-first"]
_USUAL = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f")
"""Forms that polars reads itself, many times as fast."""
_SECOND = 1_000_000  # in microseconds


def zones(texts: pl.Series) -> tuple[int, int]:
    """How many dates with a time say their zone, and how many do not."""
    clocks = texts.filter(texts.str.contains(r"\d:\d\d"))
    zone = clocks.str.contains(r"\d.*:\d\d.*(?:[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)$")
    named = ranks.count_of(zone)
    return named, ranks.size_of(clocks) - named


def usual_dates(texts: pl.Series) -> pl.Series | None:
    """The microseconds of dates, if all texts are dates of one usual form."""
    first = pl.Series([ranks.first_of(texts.drop_nulls())], dtype=pl.String)
    for form in _USUAL:
        if first.str.to_datetime(form, strict=False).null_count() == 0:
            dates = texts.str.to_datetime(form, strict=False, time_unit="us")
            if not ranks.any_of(dates.is_null() & texts.is_not_null()):
                return dates.to_physical()
    return None


def _dates(texts: pl.Series, form: str) -> pl.Series:
    """The microseconds of dates; null where one is none."""
    usual = usual_dates(texts) if form == "year-first" else None
    if usual is not None:
        return usual
    texts = _ascii(texts)
    fits = texts.str.contains(rf"^(?:{_SHAPES[form]})(?:[Tt ,].*)?$")
    parts = texts.set(~fits, None).str.extract_groups(_SPLIT[form] + _CLOCK).struct.unnest()
    year = pl.col("year")
    century = pl.when(year < "70").then(pl.lit("20")).otherwise(pl.lit("19"))
    year = pl.when(year.str.len_chars() == 2).then(century + year).otherwise(year)
    month, day = pl.col("month").str.zfill(2), pl.col("day").fill_null("01").str.zfill(2)
    day = pl.concat_str(year, month, day, separator="-")
    days = day.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")).to_physical()
    hours, minutes = (pl.col("zone").str.extract(digits) for digits in (r"^.(\d\d)", r"(\d\d)$"))
    away = (60 * _whole(hours) + _whole(minutes) * (pl.col("zone").str.len_chars() > 3)) * 60
    away = pl.when(pl.col("zone").str.starts_with("-")).then(-away).otherwise(away).fill_null(0)
    clock = pl.when(pl.col("hour").is_null()).then(0).otherwise(_clock())
    return parts.select(days + clock - away * _SECOND).to_series()


def _times(texts: pl.Series) -> pl.Series:
    """The microseconds of times of the day since midnight; null where one is none."""
    parts = _ascii(texts).str.extract_groups(rf"^{_TIME}$").struct.unnest()
    return parts.select(_clock()).to_series()


def _whole(text: pl.Expr) -> pl.Expr:
    return text.cast(pl.Int64, strict=False).fill_null(0)


def _clock() -> pl.Expr:
    """Microseconds since midnight from the groups of `_TIME`; null where there is no such time."""
    hour, minute, second = (_whole(pl.col(name)) for name in ("hour", "minute", "second"))
    noon = pl.col("noon").str.to_lowercase()
    right = pl.when(noon.is_null()).then(hour < 24).otherwise((hour >= 1) & (hour <= 12))
    hour = pl.when(noon.is_null()).then(hour).otherwise(hour % 12)
    hour = pl.when(noon == "p").then(hour + 12).otherwise(hour)
    part = _whole(pl.col("part").str.slice(0, 6).str.pad_end(6, "0"))
    right = right & pl.col("hour").is_not_null() & (minute < 60) & (second < 60)
    return pl.when(right).then(((hour * 60 + minute) * 60 + second) * _SECOND + part)
