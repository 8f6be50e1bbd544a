"""Small logs in the words of the seed project's trainer, written by hand: a line for every mark the reader goes by."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

HEAD = """\
============================================================
🚀 初始化GRPO训练器
============================================================

🌡️  Temperature Scheduling:
  Enabled: True
  Range: 0.3 → 0.15
  Warmup: 100 steps
✅ 梯度检查点已启用 (节省显存)
✅ 10分制奖励计算器初始化完成
  模式: 5档细粒度奖励 [0, 0.2, 0.4, 0.7, 1.0] (P0修复)
📈 初始化Cosine学习率调度器 (P1-3)...
  Warmup步数: 100
  总训练步数: 500
  初始LR: 2e-06
  最小优势标准差: 0.1
"""
DROPPED = "Caching is incompatible with gradient checkpointing in Qwen2DecoderLayer. Setting `past_key_values=None`."
DISABLED = "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`."
GOOD = "Custom -> Programmer -> Review ? Revise : done"
BAD = "Custom (default fallback)"


def opening(step: int, temperature: float = 0.298) -> str:
    """A step's first lines: two math problems and one of qa, two completions each."""
    return f"""
============================================================
📍 Step {step}/500
============================================================

📦 Batch {step}: 3 样本, 分布: {{'math': 2, 'qa': 1}}
🌡️  Temperature: {temperature:.3f}

🚀🚀🚀 超级batch推理: 3样本 × 2序列 = 6个workflow一次性GPU生成...
  🔧 生成批次 1/1 (6个序列)
"""


def named(group: int, number: int) -> str:
    return f"""
===== [QWEN] Workflow 代码 S{group}-{number}/2 =====
class Workflow:
    pass

===== 代码结束 =====
"""


def quality(valid: bool) -> str:
    return f"  📊 DSL质量: fallback={not valid}, ops=4, chain={valid}, DSL={GOOD if valid else BAD}\n"


def result(group: int, number: int, reward: float | None) -> str:
    """A judged completion, or one that could not be executed."""
    if reward is None:
        return f"  [S{group}-{number}/2] ❌ 执行失败 | 奖励: 0.000\n"
    domain = "qa" if group == 1 else "math"
    return f"""\
📊 评估输入 ({domain}, source=x):
  问题: 奖励?...
HTTP Request: POST https://example.org "HTTP/1.1 200 OK"
  📊 P27简单奖励: {reward:.3f}
  [S{group}-{number}/2] {"✅" if reward > 0.5 else "❌"} 正确性: {reward:.1f} | 预测: 奖励: 9.9
"""


def ending(rewards: Sequence[float], updated: bool, extra: str = "") -> str:
    """What is printed once all completions have their rewards, two of them a group."""
    pairs = [rewards[at : at + 2] for at in range(0, len(rewards), 2)]
    advantages = [
        0.0 if not pstdev(pair) else round((r - fmean(pair)) / pstdev(pair), 9) for pair in pairs for r in pair
    ]
    dead = sum(not pstdev(pair) for pair in pairs)
    details = "".join(
        f"    组{at}: [np.float64({advantages[2 * at - 2]}), {advantages[2 * at - 1]}] (mean=0.00, std=1.0000)\n"
        for at in range(1, len(pairs) + 1)
    )
    return f"""\
✅ 所有workflow执行完成，开始整理结果...

🔧 P27 简单GRPO诊断:
  零方差组: {dead}/{len(pairs)}
  平均奖励: {fmean(rewards):.3f}
  奖励范围: [{min(rewards):.3f}, {max(rewards):.3f}]

{"🔄 更新策略..." if updated else "⏭️  P28: 跳过更新 - 所有advantage为0，无学习信号"}
{extra}
🎯 准确率统计: {sum(r >= 0.9 for r in rewards)}/{len(rewards)} = 0.0% (平均正确性评分: 0.60/1.0)

🔧 GRPO诊断 (Batch级别):
  全零方差组: {dead}/{len(pairs)} (66.7%)
    ├── 全错组: {dead}
  Batch奖励: mean=0.000, std={pstdev(advantages):.4f}
  奖励范围: [{min(advantages):.3f}, {max(advantages):.3f}]
  前3组奖励详情:
{details}"""


def metrics(step: int, loss: float, kl: float) -> str:
    return f"""
📊 Metrics:
  step: {step}
  loss: {loss:.4f}
  kl_div: {kl:.4f}
  avg_reward: 0.0000
"""


def told(
    step: int,
    valid: str = "vvvvvv",
    rewards: Sequence[float | None] = (1.0,) * 6,
    updated: bool = False,
    extra: str = "",
) -> str:
    """A whole step; `valid` has a v for a workflow and an x for a fallback."""
    keys = [(1 + at // 2, 1 + at % 2) for at in range(6)]
    said = "".join(named(*key) + quality(kind == "v") for key, kind in zip(keys, valid, strict=True))
    results = "".join(result(*key, reward) for key, reward in reversed(list(zip(keys, rewards, strict=True))))
    return opening(step) + said + results + ending([reward or 0.0 for reward in rewards], updated, extra)
