"""The settings of the two towers, as an experiment's `[tower]` tables hold them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

# Strict: `true` is no number.
Width = Annotated[int, Field(strict=True, ge=1, le=8192)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


Reads = Literal["before", "run", "others", "all"]
"""What a tower reads of a user's events to predict one: those before it, each example by itself; those before
it from a place on that many examples share; all others, as a set; or all, as one set for all examples."""


class Settings(BaseModel):
    """A frozen table of settings in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScoringConfig(Settings):
    """How two vectors become a score: inner product or cosine, divided by the temperature.

    `absolute` drops the sign (Blanc & Rendle 2018, eq. 11): far on the other side is as near. `item_bias`
    adds to each score what is learned of the item alone, such as how popular it is, which a cosine can say
    of no item: the last of an item vector's D numbers, whose counterpart in a user vector is 1.
    """

    kind: Literal["cosine", "dot"] = "cosine"
    temperature: Annotated[float, Field(gt=0.0, le=100.0)] = 0.07
    absolute: bool = False
    item_bias: bool = False

    @model_validator(mode="after")
    def _a_bias_has_a_sign(self) -> "ScoringConfig":
        if self.absolute and self.item_bias:
            raise ValueError(
                "scoring.absolute = true drops the sign of a score, and of the bias in it; set "
                "scoring.item_bias = false"
            )
        return self


class ItemTowerConfig(Settings):
    """DSSM's item tower (Huang et al. 2013): what an item's vector is computed from.

    With `id` alone and no `hidden` layer the vector is the row of one table. `features` names the
    prepared item features to read, or takes all of them with `"all"`. `id_dropout` is the share of items that
    training takes for unknown ones, of which only the features count (DropoutNet, Volkovs et al. 2017).
    """

    id: bool = True
    id_dropout: Rate = 0.0
    features: tuple[str, ...] | Literal["all"] = ()
    feature_width: Width = 32
    hidden: tuple[Width, ...] = ()
    dropout: Rate = 0.0

    @model_validator(mode="after")
    def _has_something_to_drop(self) -> "ItemTowerConfig":
        if self.id_dropout and not (self.id and self.features):
            raise ValueError(
                f"item.id_dropout = {self.id_dropout} leaves items their features alone, and needs both: set "
                "item.id = true and item.features, or leave it 0"
            )
        if self.dropout and not self.hidden:
            raise ValueError(
                f"item.dropout = {self.dropout} has no hidden layer to act on; set item.hidden, or leave it 0"
            )
        return self


class PooledUserConfig(Settings):
    """YouTubeDNN's user tower (Covington et al. 2016, section 3.2): a mean over the history, then an MLP.

    `history_length` is how many of the newest items the mean covers. `last_item` puts the newest item's
    vector beside the mean. `example_age` feeds how old an example was when training ended, as a share of
    the training period; when served it is zero. Without `ordered` a history is a set: to predict an item, all
    others of the user are read, also those that came later; without `leave_out` it is read as well, so that a
    user has one vector, which is to predict all items of the set. `item_dropout` is the share of items that
    training leaves out of each mean.
    """

    kind: Literal["pooled"] = "pooled"
    history_length: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 50
    last_item: bool = True
    ordered: bool = True
    leave_out: bool = True
    item_dropout: Rate = 0.0
    features: tuple[str, ...] | Literal["all"] = ()
    feature_width: Width = 8
    example_age: bool = False
    hidden: tuple[Width, ...] = (128,)
    dropout: Rate = 0.1

    times: ClassVar[bool] = False

    @property
    def reads(self) -> Reads:
        """What comes before, all but what is predicted, or all."""
        if self.ordered:
            return "before"
        return "others" if self.leave_out else "all"

    @model_validator(mode="after")
    def _sets_have_no_last_item(self) -> "PooledUserConfig":
        if not self.ordered and (self.last_item or self.example_age):
            name = "last_item" if self.last_item else "example_age"
            raise ValueError(
                f"user.ordered = false makes a set of the history, which contradicts user.{name} = true; "
                "set one of them the other way"
            )
        if self.ordered and not self.leave_out:
            raise ValueError(
                "user.leave_out = false reads what is to be predicted, which a history in order never does; "
                "set user.ordered = false as well"
            )
        return self


class AttentiveUserConfig(Settings):
    """A mean over the history, weighted by a score of each item alone (Lin et al. 2017), then an MLP.

    `history_length` is how many of the newest items the mean covers, `attention` the width of the layer that
    scores them.
    """

    kind: Literal["attentive"]
    history_length: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 50
    attention: Width = 64
    features: tuple[str, ...] | Literal["all"] = ()
    feature_width: Width = 8
    hidden: tuple[Width, ...] = (128,)
    dropout: Rate = 0.1

    reads: ClassVar[Reads] = "before"
    times: ClassVar[bool] = False


class RecurrentUserConfig(Settings):
    """A gated recurrent network over the history (GRU4Rec, Hidasi et al. 2016).

    `history_length` is how many of the newest items it reads, `state` the width of what it remembers.
    """

    kind: Literal["recurrent"]
    history_length: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 50
    state: Width = 128
    features: tuple[str, ...] | Literal["all"] = ()
    feature_width: Width = 8
    dropout: Rate = 0.2

    reads: ClassVar[Reads] = "run"
    times: ClassVar[bool] = False


class TransformerUserConfig(Settings):
    """A causal transformer over the history (SASRec, Kang & McAuley 2018), pre-norm and gated.

    `history_length` is how many of the newest items it reads, `feed_forward` the width of its gated layer.
    `positions` are learned vectors, turns of queries and keys by their distance (`rotary`), or nothing.
    `times` reads when items were used, and when the request comes.
    """

    kind: Literal["transformer"]
    history_length: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 200
    blocks: Annotated[int, Field(strict=True, ge=1, le=64)] = 2
    heads: Annotated[int, Field(strict=True, ge=1, le=64)] = 2
    feed_forward: Width = 128
    positions: Literal["learned", "rotary", "none"] = "learned"
    times: bool = False
    features: tuple[str, ...] | Literal["all"] = ()
    feature_width: Width = 8
    dropout: Rate = 0.2

    reads: ClassVar[Reads] = "run"


def _with_kind(given: Any) -> Any:
    # A table without a kind is a pooled tower's.
    return {"kind": "pooled", **given} if isinstance(given, dict) else given


UserTowerConfig = Annotated[
    PooledUserConfig | AttentiveUserConfig | RecurrentUserConfig | TransformerUserConfig,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]


class TowerConfig(Settings):
    """Both towers and the scoring between them; `dimension` is D, the width of their vectors."""

    dimension: Width = 64
    scoring: ScoringConfig = ScoringConfig()
    user: UserTowerConfig = PooledUserConfig()
    item: ItemTowerConfig = ItemTowerConfig()

    @model_validator(mode="after")
    def _a_bias_leaves_a_direction(self) -> "TowerConfig":
        if self.scoring.item_bias and self.dimension < 2:
            raise ValueError(
                "tower.dimension = 1 has no number left beside the one of scoring.item_bias; use at least 2"
            )
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> "TowerConfig":
        user = self.user
        if not isinstance(user, TransformerUserConfig):
            return self
        step = user.heads * (2 if user.positions == "rotary" else 1)
        if self.dimension % step:
            raise ValueError(
                f"tower.dimension = {self.dimension} can't be shared by user.heads = {user.heads}"
                f"{' in pairs of coordinates' if step > user.heads else ''}; use a multiple of {step}"
            )
        return self
