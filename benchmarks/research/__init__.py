"""Figures of papers, and estimates that no setting selects: docs/papers.md and sections of estimators.md."""
