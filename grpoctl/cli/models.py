"""`grpoctl models`: the models that profiles use, what of them is on this machine, and what else is in the caches."""

from __future__ import annotations

from grpoctl.cli.options import Json


def models(json: Json = False) -> None:
    """List models that profiles use, and those on this machine."""
    from core.models.cache import cache_root
    from core.models.catalogue import list_models
    from grpoctl import console

    found = list_models()
    if json:
        fields = ("name", "source", "cached", "path", "bytes", "origin", "note")
        listed = [{field: getattr(one, field) for field in fields} for one in found]
        document = [{**one, "path": str(one["path"]) if one["path"] else None} for one in listed]
        console.print_json({"schema": 1, "cache": str(cache_root()), "models": document})
        return
    rows = [(one.name, one.source, one.origin or "no", _size(one.bytes), one.note) for one in found]
    console.print_table("Models", ("name", "model.source", "here", "size", "note"), rows)
    places = [(one.name, str(one.path)) for one in found if one.path is not None]
    console.print_table("Where they are", ("name", "folder"), places)
    console.print_text("model.source is one of these, a folder, a .gguf file, or any model of the hub.")


def _size(count: int | None) -> str:
    """Bytes as a person reads them."""
    if count is None:
        return "-"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
