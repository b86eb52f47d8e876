"""Settings of the scoring, which all towers share, and the types of their settings."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Widths and lengths are strict: `true` is not a number.
Width = Annotated[int, Field(strict=True, ge=1, le=8192)]
Length = Annotated[int, Field(strict=True, ge=1, le=100_000)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
FeatureNames = tuple[str, ...] | Literal["all"]

# A version that goes live has at least this measured recall and this overlap with the live version
# (TURRET_RECALL_MINIMUM and TURRET_OVERLAP_MINIMUM replace them), and opening it takes so many times the size
# of its files in memory. The constants are here, as a service reads its settings before NumPy may be loaded.
RECALL_MINIMUM, OVERLAP_MINIMUM, MEMORY_FACTOR = 0.95, 0.05, 1.5


class Settings(BaseModel):
    """A frozen table of settings in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScoringConfig(Settings):
    """The score of two vectors: inner product or cosine, divided by the temperature.

    For `cosine`, all item and user vectors, without their bias columns, are of length 1.
    `absolute` takes the absolute value (Blanc & Rendle 2018, eq. 11). `item_bias` adds a learned bias for
    each item, such as its popularity, which a cosine can't express: the last of an item vector's D columns,
    against a constant 1 in the user vector. `pairs` columns before those of the towers hold factors of pairs
    of items: an item's own, and of a user the sum of those of the history over the root of its length.
    """

    kind: Literal["cosine", "dot"] = "cosine"
    temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 0.07
    absolute: bool = False
    item_bias: bool = False
    pairs: Annotated[int, Field(strict=True, ge=0, le=4096)] = 0

    @model_validator(mode="after")
    def _sums_have_a_sign(self) -> "ScoringConfig":
        if self.absolute and self.item_bias:
            raise ValueError(
                "scoring.absolute = true drops the sign of the bias too; set scoring.item_bias = false"
            )
        if self.absolute and self.pairs:
            raise ValueError(
                f"scoring.pairs = {self.pairs} adds scores whose sign scoring.absolute = true drops; "
                "set scoring.pairs = 0, or scoring.absolute = false"
            )
        return self
