"""What `toolkit admin` prints for people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def change_line(change: Mapping[str, Any]) -> str:
    """One change in one line."""
    at = f"{_time(change['at']):%Y-%m-%d %H:%M:%S}"
    moved = ", ".join(
        f"{key} {_short(change['before'].get(key))} -> {_short(value)}"
        for key, value in change["after"].items()
    )
    kind = "" if change["of"] is None else f"  ({change['kind']} of {change['of']})"
    until = f"  until {_time(change['until']):%H:%M:%S}" if change["until"] else ""
    if ended_by := change.get("ended_by"):
        until = f"  ended by {ended_by}"
    reason = f"  {change['reason']}" if change["reason"] else ""
    return f"{change['id']:>4}  {at}  {change['who']}  {moved}{kind}{until}{reason}"


def state_page(state: Mapping[str, Any]) -> str:
    """All of it in plain lines; a setting that is not as configured is marked."""
    gateway = state["gateway"]
    standing = "stopping" if gateway["stopping"] else "ready" if gateway["ready"] else "not ready"
    unserved = [one["name"] for one in state["pools"] if not one["served"]]
    if len(state["pools"]) > 1 and unserved:
        standing += f", but NOBODY SERVES {'pool' if len(unserved) == 1 else 'pools'} {', '.join(unserved)}"
    kv = state["kv"]
    for_kv = f" ({kv['lacking']} for KV)" if kv["lacking"] else ""
    requests = (
        f"requests: {gateway['open_requests']} open, {gateway['preparing']} preparing, {gateway['queued']} queued{for_kv}, "
        f"{gateway['in_flight']} of {gateway['in_flight_limit']} in flight; {gateway['retries_left']} retries left"
    )
    lines = [f"{gateway['url']}  {gateway['model']}  {standing}", requests]
    if waiting := [
        f"{one['queued']} {one['workload_class']} / {one['slo_class']}" for one in gateway["queued_by_class"]
    ]:
        lines.append(f"queued: {', '.join(waiting)}")
    lines.append("")
    width = max(len(one["name"]) for one in state["instances"])
    for one in state["instances"]:
        pools = [f"pool {name}" for name in one["pools"]] if len(state["pools"]) > 1 else []
        told = ", ".join(["up" if one["up"] else "DOWN", *(["DRAINED"] if one["drained"] else []), *pools])
        lines.append(
            f"{one['name']:<{width}}  {told}, weight {one['weight']:g}, {one['requests']} requests, {one['tokens']} tokens"
        )
    out = [one for one in state["pairs"] if not one["in_rotation"]]
    lines += [f"{one['prefill']} + {one['decode']}: OUT of rotation" for one in out]
    suspects = [one for one in state["pairs"] if one["in_rotation"] and one["suspect"]]
    lines += [
        f"{one['prefill']} + {one['decode']}: suspect, serves where nothing better does" for one in suspects
    ]
    lines += [
        f"pool {one['name']}: {one['held_tokens']} tokens held in decodes, {'served' if one['served'] else 'NOBODY SERVES IT'}"
        for one in state["pools"]
        if one["held_tokens"] is not None
    ]
    lines += [
        f"{one['decode']}: KV pool {one['tokens']} tokens, {one['leased']} leased, {one['foreign']} used by others; one request"
        f" may have {one['most']}{', kept for one that is due' if one['reserved'] else ''}"
        for one in kv["pools"]
    ]
    if not kv["binding"]:
        lines.append("KV leases: none, since not every decode that serves tells its pool")
    if shared := state["shared"]:
        parts = ", ".join(f"{tokens} of {name}" for name, tokens in sorted(shared["tokens"].items()))
        lines.append(
            f"shared pools: {shared['standing']}, {shared['gateways']} gateways; this one may lease {parts or 'nothing'}"
        )
    lines += [
        f"{name}: {how}"
        + ("" if how == "works" or name == "shared ledger" else "; requests go on without it")
        for name, how in state["stores"].items()
    ]
    lines.append("")
    ending = {row["change"]: row["at"] for row in state["ending"]}
    for key, value in state["settings"].items():
        was = f"   (configured: {_short(state['configured'][key])})" if key in state["configured"] else ""
        lines.append(f"{key} = {_short(value)}{was}")
    lines += [f"change {number} ends {_time(at):%Y-%m-%d %H:%M:%S}" for number, at in ending.items()]
    return "\n".join(lines)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at).astimezone()


def _short(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
