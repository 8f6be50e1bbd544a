"""No password is shown: not in a URL, not in a mistyped one, not in what somebody says about it."""

from __future__ import annotations

import sys

import pytest

from grpoctl.credentials import masked, mistyped, without_credentials

# URL, with its user, without
URLS = [
    ("postgresql://me:geheim@host:5432/db", "postgresql://me:***@host:5432/db", "postgresql://***@host:5432/db"),
    ("postgresql://me:p@ss:w@host/db", "postgresql://me:***@host/db", "postgresql://***@host/db"),
    ("postgresql://me@corp:ge/heim@host/db", "postgresql://me@corp:***@host/db", "postgresql://***@host/db"),
    ("postgresql://me:ge heim@host/db", "postgresql://me:***@host/db", "postgresql://***@host/db"),
    ("postgresql://u:12/cd@host/db", "postgresql://u:***@host/db", "postgresql://***@host/db"),
    ("postgresql://host/db?user=me&password=ge@im&x=1", *["postgresql://host/db?user=me&password=***&x=1"] * 2),
    ("mysql+pymysql://me@host/db", "mysql+pymysql://me@host/db", "mysql+pymysql://***@host/db"),
    ("https://TOKEN@host", "https://TOKEN@host", "https://***@host"),
    ("http://host:5000/path", *["http://host:5000/path"] * 2),
    ("http://host/path@2x", *["http://host/path@2x"] * 2),
    ("sqlite:////data/a:b@c/study.db", *["sqlite:////data/a:b@c/study.db"] * 2),
    ("sqlite+pysqlcipher://:geheim@/a.db", "sqlite+pysqlcipher://:***@/a.db", "sqlite+pysqlcipher://***@/a.db"),
    ("file:///data/a:b@c", *["file:///data/a:b@c"] * 2),
    ("/data/a:b@c", *["/data/a:b@c"] * 2),
    ("mlruns", "mlruns", "mlruns"),
    # mistyped
    ("http//u:PW@host", "http//u:***@host", "http//***@host"),
    ("http:/u:PW@host", "http:/u:***@host", "http:/***@host"),
    ("http:u:PW@host", "http:***@host", "http:***@host"),
    ("http/u:PW@host", "http/u:***@host", "http/***@host"),
    ("//u:PW@host", "//u:***@host", "//***@host"),
    ("u:PW@host", "u:***@host", "u:***@host"),
    ("u:ab@cd@host", "u:***@host", "u:***@host"),
    ("://u:PW@host", "***@host", "***@host"),
    ("postgresql+psycopg//u:PW@host/db", "postgresql+psycopg//u:***@host/db", "postgresql+psycopg//***@host/db"),
]


@pytest.mark.parametrize(("url", "with_user", "without"), URLS, ids=[url for url, *_ in URLS])
def test_a_password_is_masked(url: str, with_user: str, without: str) -> None:
    assert (masked(url), masked(url, user=False)) == (with_user, without)
    assert masked(with_user) == with_user


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://u:PW@host", False),
        ("http://host", False),
        ("mlruns", False),
        ("/data/a:b@c", False),
        ("http//u:PW@host", True),
        ("http:/u:PW@host", True),
        ("u:PW@host", True),
    ],
)
def test_a_mistyped_url_is_known_by_its_password(url: str, is_one: bool) -> None:
    assert mistyped(url) is is_one


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://me:hunter2@host/x.git", "https://***@host/x.git"),
        ("postgresql://u:p@ss@db:5432/mlflow", "postgresql://***@db:5432/mlflow"),
        ("https://token@host", "https://***@host"),
        ("http://host:5000/path@2x", "http://host:5000/path@2x"),
        ("git@host:me/x.git", "git@host:me/x.git"),
        ("sqlite:////home/a/mlflow.db", "sqlite:////home/a/mlflow.db"),
        ("https://h/x?api_key=abc&n=1&Password=def", "https://h/x?api_key=***&n=1&Password=***"),
        ("two: http://a:b@c/ and http://d:e@f/", "two: http://***@c/ and http://***@f/"),
        ("cannot lock http//u:PW@host/.x.lock", "cannot lock http//***@host/.x.lock"),
        ("kept in postgresql://me:***@host/db", "kept in postgresql://me:***@host/db"),
        ("model.lora.r=8", "model.lora.r=8"),
    ],
)
def test_credentials_are_taken_out_of_a_text(text: str, clean: str) -> None:
    assert without_credentials(text) == clean


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:ab@cd@host/db", 'could not translate host name "cd@host" to address'),
        ("postgresql://u:geh%40im@host/db", "password geh@im is wrong"),
        ("http://u:PW77#x7@host", "Failed to parse: 'u:PW77' is not a valid host or port"),
        ("http//u:PW77@host", "no folder /home/me/http/u:PW77@host"),
        ("http//u:PW77@host", "file:///home/me/http/u%3APW77%40host has no runs"),
        ("http://host/?token=PW77", "the token PW77 has expired"),
    ],
)
def test_what_is_known_to_be_secret_is_hidden_also_by_itself(
    url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = [without_credentials(said, url)]
    for name in ("MLFLOW_TRACKING_URI", "GRPOCTL_STORAGE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, url)
            hidden.append(without_credentials(said))
    if "@" in url:
        monkeypatch.setattr(sys, "argv", ["grpoctl", "sweep", f"--storage={url}"])
        hidden.append(without_credentials(said))
    assert [text for text in hidden for secret in ("cd@", "geh", "PW77") if secret in text] == []
    assert all("***" in text for text in hidden)
