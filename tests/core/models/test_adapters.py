"""Which weights are trained, and the reference of what is trained: copies of what moves, nothing twice."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.config import LoraSpec
from core.errors import SpecError
from core.models.adapters import frozen_copy, train_only, using_weights, with_lora
from tests.fakes import small_qwen2


def names(model: Qwen2ForCausalLM) -> set[str]:
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def test_patterns_name_what_is_trained() -> None:
    model = train_only(small_qwen2(), ["model.layers.1.mlp.*", "model.norm.weight"])
    mlp = {f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
    assert names(model) == {*mlp, "model.norm.weight"}


def test_a_star_trains_everything() -> None:
    model = train_only(small_qwen2(), ["*"])
    assert names(model) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("model.layer.1.*", r"did you mean 'model\.layers\.1\.\*'\?"),
        ("model.layers.1", r"did you mean 'model\.layers\.1\.\*'\?"),  # a module holds weights, it is none
        ("model.norm.wieght", r"did you mean 'model\.norm\.weight'\?"),
        ("???", r"got '\?\?\?', which no weight of this model is called; its weights are"),
    ],
)
def test_a_pattern_that_names_nothing_is_refused_with_what_is_near(pattern: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        train_only(small_qwen2(), ["model.norm.weight", pattern])
    assert caught.value.key == "model.trainable"
    assert "\n" not in str(caught.value)


def test_a_weight_under_its_second_name_is_told_its_first() -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    tied = Qwen2ForCausalLM(Qwen2Config(vocab_size=16, intermediate_size=8, tie_word_embeddings=True, **sizes))
    with pytest.raises(SpecError, match=r"lm_head\.weight.*model\.embed_tokens\.weight"):
        train_only(tied, ["lm_head.*"])


def test_the_reference_is_copies_of_what_moves_and_of_nothing_else() -> None:
    model = train_only(small_qwen2(), ["lm_head.weight"])
    kept = frozen_copy(model)
    assert set(kept) == {"lm_head.weight"}
    assert kept["lm_head.weight"].data_ptr() != model.lm_head.weight.data_ptr()


def test_the_model_stands_at_its_reference_only_inside() -> None:
    model = train_only(small_qwen2(), ["model.layers.0.*", "lm_head.weight"]).eval()
    kept, ids = frozen_copy(model), torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        for name, weight in model.named_parameters():
            if name in kept:
                weight.add_(0.1)
        moved = model(input_ids=ids).logits
        assert not torch.allclose(moved, before)
        with using_weights(model, kept):
            assert torch.equal(model(input_ids=ids).logits, before)
        assert torch.equal(model(input_ids=ids).logits, moved)
        with pytest.raises(IndexError), using_weights(model, kept):
            model(input_ids=torch.tensor([[9999]]))  # no such token
        assert torch.equal(model(input_ids=ids).logits, moved)


def test_a_gradient_taken_across_the_reference_is_the_models_own() -> None:
    # The graph is built, the reference is scored, then backward runs: as in an update with a KL term.
    def gradient(*, between: bool) -> torch.Tensor:
        model = small_qwen2()
        kept = frozen_copy(model)
        with torch.no_grad():
            model.lm_head.weight.mul_(1.5)
        loss = model(input_ids=torch.tensor([[3, 4, 5]])).logits.square().mean()
        if between:
            with using_weights(model, kept), torch.no_grad():
                model(input_ids=torch.tensor([[3, 4, 5]]))
        loss.backward()
        grad = model.model.layers[0].mlp.up_proj.weight.grad
        assert grad is not None
        return grad

    assert torch.equal(gradient(between=True), gradient(between=False))


LORA = LoraSpec(r=4, lora_alpha=8.0, target_modules=("q_proj", "v_proj"))


def test_an_adapter_belongs_to_its_seed_and_changes_nothing_at_first() -> None:
    before = torch.get_rng_state()
    one, same, other = (with_lora(small_qwen2(), LORA, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    first, again, another = ({n: p for n, p in m.named_parameters() if p.requires_grad} for m in (one, same, other))
    assert first
    assert all("lora_" in name for name in first)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], another[name]) for name in first)
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        assert torch.allclose(one.eval()(input_ids=ids).logits, small_qwen2()(input_ids=ids).logits, atol=1e-6)


def test_a_module_the_model_does_not_have_is_named() -> None:
    lora = LORA.model_copy(update={"target_modules": ("q_proj", "query")})
    with pytest.raises(SpecError, match="got 'query', this model has no module") as caught:
        with_lora(small_qwen2(), lora, seed=0)
    assert caught.value.key == "model.lora.target_modules"


def test_all_linear_is_every_linear_layer_but_the_output_head() -> None:
    model = with_lora(small_qwen2(), LoraSpec(r=4, lora_alpha=8.0, target_modules=("all-linear",)), seed=0)
    carrying = {name.partition(".lora_A")[0].rsplit(".", 1)[-1] for name in names(model) if ".lora_A" in name}
    assert carrying == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
