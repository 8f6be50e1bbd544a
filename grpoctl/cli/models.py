"""`grpoctl models`: the models that profiles use, what of them is on this machine, and what else is in the caches."""

from __future__ import annotations

from core.models.cache import cache_root
from core.models.catalogue import list_models
from grpoctl import console
from grpoctl.cli.options import Json


def models(json: Json = False) -> None:
    known = list_models()
    if json:
        fields = ("name", "source", "cached", "path", "bytes", "origin", "note")
        entries = [{field: getattr(model, field) for field in fields} for model in known]
        document = [{**entry, "path": str(entry["path"]) if entry["path"] else None} for entry in entries]
        console.print_json({"schema": 1, "cache": str(cache_root()), "models": document})
        return
    rows = [(model.name, model.source, model.origin or "no", _size(model.bytes), model.note) for model in known]
    console.print_table("Models", ("name", "model.source", "here", "size", "note"), rows)
    places = [(model.name, str(model.path)) for model in known if model.path is not None]
    console.print_table("Where they are", ("name", "folder"), places)
    console.print_text("model.source is one of these, a folder, a .gguf file, or any model of the hub.")


def _size(count: int | None) -> str:
    """Bytes as a person reads them."""
    if count is None:
        return "-"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
