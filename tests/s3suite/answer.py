"""Owns the one shape in which every client of the suite hands back what the service said. Raises nothing: a status is data."""

from dataclasses import dataclass, field


@dataclass
class Answer:
    """One HTTP answer. `parsed` is boto3's view of it, empty for raw requests."""

    step: str
    status: int
    code: str | None
    headers: list[tuple[str, str]]
    body: bytes
    parsed: dict = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers if found.lower() == name.lower()), None)

    def __getitem__(self, key: str):
        return self.parsed[key]

    def get(self, key: str, default=None):
        return self.parsed.get(key, default)

    @property
    def verdict(self) -> str:
        """What `expect` compares: "200", "404 NoSuchKey"."""
        return f"{self.status} {self.code}" if self.code else str(self.status)
