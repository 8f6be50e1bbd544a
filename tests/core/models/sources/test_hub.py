"""The hub: what is downloaded of a model, what its cache must hold to count, and a download from a hub of our own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from core.models.sources import hub
from tests.fakes import small_qwen2

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("names", "remote_code", "wanted"),
    [
        (
            ["config.json", "model.safetensors", "tokenizer.json", "README.md", "pytorch_model.bin", "onnx/model.onnx"],
            False,
            ["config.json", "tokenizer.json", "model.safetensors"],
        ),
        (["config.json", "pytorch_model-1.bin", "training_args.bin"], False, ["config.json", "pytorch_model-1.bin"]),
        (["model-1.safetensors", "model.safetensors.index.json", "consolidated.safetensors"], False,
         ["model.safetensors.index.json", "model-1.safetensors"]),
        (["model.safetensors", "modeling_x.py", "original/model.safetensors"], False, ["model.safetensors"]),
        (["model.safetensors", "modeling_x.py"], True, ["model.safetensors", "modeling_x.py"]),
    ],
)  # fmt: skip
def test_what_is_downloaded_of_a_model(names: list[str], remote_code: bool, wanted: list[str]) -> None:
    assert hub.files_to_download(names, remote_code=remote_code) == wanted


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_means_that_the_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv(name, "1")
    assert hub.why_unreachable() == f"the model hub is not asked: {name} is set"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://127.0.0.1:99999"])
def test_a_hub_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name in ("HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert hub.why_unreachable() == f"the model hub ({endpoint}) cannot be reached"


class Shelf(BaseHTTPRequestHandler):
    """As much of the hub as downloading one model of one commit takes."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.asked.append(path)
        names = sorted(file.name for file in self.folder.iterdir())
        if path.startswith("/api/models/mine/model/tree/"):
            files = [self.folder / name for name in names]
            listed = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)} for f in files]
            self.give(200, json.dumps(listed).encode(), body=body)
        elif path.startswith("/api/models/mine/model"):
            info = {"id": "mine/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
            self.give(200, json.dumps(info).encode(), body=body)
        elif path.startswith("/mine/model/resolve/") and path.rpartition("/")[2] in names:
            file = self.folder / path.rpartition("/")[2]
            self.give(200, file.read_bytes(), body=body, tag=etag(file))
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def give(self, code: int, content: bytes, *, body: bool, tag: str = "x") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{tag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def etag(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:40]


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[tuple[str, type[Shelf]]]:
    """The address of a hub that holds one small model."""
    folder = tmp_path / "shelf"
    model = small_qwen2()
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    words = {"model": {"type": "WordLevel", "vocab": {"a": 0, "</s>": 1}, "unk_token": "a"}, "version": "1.0"}
    (folder / "tokenizer.json").write_text(json.dumps({**words, "added_tokens": []}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"})
    )
    (folder / "README.md").write_text("not needed")
    handler = type("Here", (Shelf,), {"folder": folder, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()


LOAD = """
import sys
from core.errors import GrpoError
from core.models import loading
from core.config import ModelSpec
for source in sys.argv[1:]:
    try:
        loaded = loading.load_with_origin(ModelSpec(source=source), list)
        print(loaded.origin.kind, loaded.origin.commit, loaded.model.name_or_path)
    except GrpoError as error:
        print(type(error).__name__, error)
"""


def load(sources: list[str], home: Path, endpoint: str) -> tuple[list[str], str]:
    """What loading each says, in a process of its own: the hub's client reads its settings when it is imported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env = {**kept, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *sources], env=env, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.splitlines(), done.stderr


@pytest.mark.process
@pytest.mark.slow
def test_a_model_is_downloaded_once_and_then_is_in_the_cache(shelf: tuple[str, type[Shelf]], tmp_path: Path) -> None:
    endpoint, handler = shelf
    (other, said), told = load(["mine/other", "mine/model"], tmp_path / "home", endpoint)
    assert said == f"hub {COMMIT} mine/model"
    assert f"note: downloads mine/model at {COMMIT}" in told
    assert not any(path.endswith("README.md") for path in handler.asked)
    assert other.startswith("ModelError cannot load the model 'mine/other': the hub has no model 'mine/other'")
    assert load(["mine/model"], tmp_path / "home", "http://127.0.0.1:1") == ([f"hub {COMMIT} mine/model"], "")
