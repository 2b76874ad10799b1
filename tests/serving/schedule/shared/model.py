"""The ledger's script as Python, with its time passed in: held to the real one by test_ledger.py."""

import json
from dataclasses import dataclass, field
from typing import Any

from serving.schedule.shared.script import GAP


@dataclass
class Ledger:
    """One hash of the server. `book`: by gateway what it wrote."""

    book: dict[str, dict[str, Any]] = field(default_factory=dict)
    served: dict[str, Any] | None = None

    def renew(self, name: str, ask: str, now: int) -> str:
        """The answer as it travels, of the server's time `now`, ms."""
        life, epoch, number, by, pools, said = json.loads(ask)
        if by > 0 and now > by:
            return json.dumps({"now": now, "late": True})
        self.book = {who: one for who, one in self.book.items() if one["ends"] > now}
        others = {who: one for who, one in self.book.items() if who != name}
        for one in others.values():
            one["ends"] = min(one["ends"], now + life)
        mine = self.book.get(name)
        served = dict(self.served) if self.served is not None else None
        if served is not None and served["life"] != life and others:
            raise ValueError("LIFE")
        if served is None or served["life"] != life:
            served = {"life": life, "since": now, "last": now, "epoch": 0}
        if now < served["last"] or now - served["last"] > GAP * life:
            served["since"] = now
        served["last"] = now
        settled = now >= served["since"] + life
        if mine is not None and number <= mine["number"]:
            return json.dumps({"now": now, "late": True})
        lapsed = mine is None or mine["epoch"] != epoch
        if lapsed:
            epoch = served["epoch"] = max(served["epoch"] + 1, now)
        parts = {}
        for url, (pages, keep, want, keep_alone, want_alone) in pools.items():
            part = []
            for which, (kept, wanted) in enumerate(((keep, want), (keep_alone, want_alone))):
                free = pages - sum(one["parts"].get(url, (0, 0))[which] for one in others.values())
                part.append(max(0, min(free, max(kept, wanted) if settled else kept)))
            parts[url] = part
        self.book[name] = {
            "ends": now + life,
            "epoch": epoch,
            "number": number,
            "parts": parts,
            "said": said,
        }
        self.served = served
        return json.dumps({"now": now, "epoch": epoch, "lapsed": lapsed, "parts": parts, "others": others})

    def leave(self, name: str) -> None:
        self.book.pop(name, None)
