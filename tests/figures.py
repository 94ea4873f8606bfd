"""What a benchmark says."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its value in `unit`, and the largest that passes; without a limit it is only said."""

    name: str
    value: float
    unit: str
    limit: float | None
    note: str

    @property
    def passes(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        verdict = "" if self.limit is None else f"{'PASS' if self.passes else 'FAIL'}  at most {self.limit:g}"
        return f"{self.name:48} {self.value:7.2f} {self.unit:6} {verdict:18} {self.note}"
