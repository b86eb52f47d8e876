from benchmarks.in_batch_page import in_batch_section


def test_a_loss_is_a_line_with_its_errors_and_its_quality() -> None:
    """Errors by set and batch size, quality by set and metric; a bias that may be none is a bound."""
    losses = [
        {"loss": "one", "batch_size": 64, "bias": 0.1, "bias_low": 0.05, "bias_high": 0.15, "variance": 0.25},
        {"loss": "one", "batch_size": 512, "bias": 0.1, "bias_low": 0.0, "bias_high": 0.15, "variance": 0.5},
    ]
    rows = [{"set": "some", "loss": "one", "seed": s, "hr@10": s / 10, "ndcg@10": 0.05} for s in (1, 3)]
    pairs = {"sampled_softmax": (0.25, 0.25), "sampled_softmax_corrected": (0.75, 0.125)}
    for loss, values in pairs.items():
        rows += [
            {"set": "some", "loss": loss, "seed": s, "hr@10": 0.5, "ndcg@10": v} for s, v in enumerate(values)
        ]
    text = in_batch_section({"rows": rows}, {"sets": {"some": {"in_batch_losses": losses}}})
    assert "| bias, variance | `some`, B = 64 | `some`, B = 512 |" in text
    assert "| one | 10.0%, 0.25 | < 15.0%, 0.5 |" in text
    assert "| loss | `some`, HR@10 | `some`, NDCG@10 |" in text
    assert "| one | 0.2000 ± 0.1000 | 0.0500 ± 0.0000 |" in text
    assert "in 1 of 2 on `some`, by +0.1875 ± 0.3125" in text
