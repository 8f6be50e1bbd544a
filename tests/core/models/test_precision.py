"""Which dtype `auto` stands for, on machines that are a record of facts; and what stays float32 whatever it is."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from core.config import LoraSpec, ModelSpec
from core.errors import ModelError
from core.models import loading, precision
from core.models.adapters import with_lora
from core.models.precision import MachineFacts, fastest_dtype, resolve_dtype
from tests.fakes import small_qwen2

LORA = LoraSpec(r=4, lora_alpha=8.0, target_modules=("q_proj", "v_proj"))
ADAPTED = ModelSpec(source="some/model", lora=LORA)
HAS_IT = MachineFacts(cpu={"amx_bf16": True, "avx512_bf16": True})
EMULATES = MachineFacts(cpu={"avx512_f": True, "avx512_vnni": True, "amx_bf16": False, "avx512_bf16": False})


@pytest.mark.parametrize(
    ("facts", "dtype"),
    [
        (MachineFacts(capability=(9, 0)), "bfloat16"),  # H100
        (MachineFacts(capability=(8, 0)), "bfloat16"),  # A100
        (MachineFacts(capability=(7, 5)), "float32"),  # T4: bfloat16 is emulated
        (
            MachineFacts(capability=(7, 5), cpu=HAS_IT.cpu),
            "float32",
        ),  # the model runs on the GPU, whatever the CPU can do
        (HAS_IT, "bfloat16"),
        (MachineFacts(cpu={"avx512_bf16": True}), "bfloat16"),  # Zen 4
        (MachineFacts(cpu={"amx_bf16": True}), "bfloat16"),
        (EMULATES, "float32"),
        (MachineFacts(cpu={"avx512_bf16": 1}), "float32"),  # a number is some other property
        (MachineFacts(cpu={"neon": True, "bf16": True}), "float32"),  # ARM: not measured
        (MachineFacts(), "float32"),  # nothing is known: MPS, an older torch
    ],
)
def test_bfloat16_where_the_device_has_hardware_for_it(facts: MachineFacts, dtype: str) -> None:
    assert fastest_dtype(ADAPTED, facts) == dtype
    assert resolve_dtype(ADAPTED, lambda: facts).dtype == dtype


@pytest.mark.parametrize(
    "change",
    [
        {"source": "builtin:tiny"},
        {"lora": None},
        {"lora": None, "trainable": ("model.norm.weight",)},
    ],
)
def test_float32_on_any_machine_for_the_built_in_model_and_for_weights_that_are_trained(
    change: dict[str, object],
) -> None:
    asked = ADAPTED.model_copy(update=change)  # as code changes a spec: nothing is validated anew
    assert asked.dtype == "auto"
    assert fastest_dtype(asked, HAS_IT) == "float32"
    assert resolve_dtype(asked, lambda: pytest.fail("no machine has to be asked")).dtype == "float32"
    assert ModelSpec.model_validate({**ADAPTED.model_dump(), **change}).dtype == "float32"  # as a spec is read


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_stated_stands(dtype: str) -> None:
    asked = ModelSpec.model_validate({"source": "some/model", "dtype": dtype})
    assert resolve_dtype(asked, lambda: pytest.fail("no machine has to be asked")) is asked


def test_an_open_auto_computes_in_the_coarser_one() -> None:
    assert (ADAPTED.dtype, ADAPTED.computes_in) == ("auto", "bfloat16")
    assert resolve_dtype(ADAPTED, lambda: EMULATES).computes_in == "float32"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (HAS_IT, "dtype bfloat16 (auto: this CPU has it)"),
        (MachineFacts(capability=(9, 0)), "dtype bfloat16 (auto: this GPU has it)"),
        (EMULATES, "dtype float32 (auto: this CPU has no hardware for bfloat16)"),
        (MachineFacts(capability=(7, 5)), "dtype float32 (auto: this GPU has no hardware for bfloat16)"),
    ],
)
def test_it_is_said_in_one_line(facts: MachineFacts, text: str) -> None:
    assert precision.explain_dtype(facts) == text


def test_this_machine_answers_for_its_cpu_too() -> None:
    facts = precision.machine_facts(cuda=False)
    assert facts.capability is None
    assert facts.bfloat16 == any(facts.cpu.get(name) is True for name in ("amx_bf16", "avx512_bf16"))


def test_auto_never_reaches_torch(tmp_path: Path) -> None:
    # A GGUF file's folder in the cache is named by the dtype: `auto` would be a third one.
    (tmp_path / "model.gguf").write_bytes(b"no such file")
    with pytest.raises(ModelError, match="is not a GGUF file"):
        loading.locate(ModelSpec(source=str(tmp_path / "model.gguf"), lora=LORA), list)


@pytest.mark.parametrize("lora", [None, LORA])
def test_a_model_is_loaded_in_what_auto_stands_for(lora: LoraSpec | None, tmp_path: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=3, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path)
    raw = Tokenizer(models.BPE({"<end>": 0, "a": 1, "b": 2}, []))
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>").save_pretrained(tmp_path)
    spec = ModelSpec(source=str(tmp_path), lora=lora)
    model, _ = loading.load(spec, list)
    assert {p.dtype for p in model.parameters()} == {getattr(torch, resolve_dtype(spec).dtype)}
    assert lora is not None or model.dtype is torch.float32  # all of it is trained


def test_an_adapter_is_float32_beside_bfloat16_weights_and_keeps_small_updates() -> None:
    model = with_lora(small_qwen2().to(torch.bfloat16), LORA, seed=0)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {p.dtype for p in trained.values()} == {torch.float32}
    assert {p.dtype for p in model.parameters() if not p.requires_grad} == {torch.bfloat16}
    # 1 + 1/1024: float32 has 23 bits behind the 1, bfloat16 7 (steps of 1/128), and rounds it back to 1.
    one, step = torch.ones(1), math.ldexp(1.0, -10)
    assert (one + step).item() > 1.0
    assert (one.bfloat16() + step).item() == 1.0
