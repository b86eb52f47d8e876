"""The baselines by name, and the choice of `--baselines`."""

from collections.abc import Sequence

from turret.data.prepared import HistoryEnd, PreparedData
from turret.training.baselines.als import ALS
from turret.training.baselines.ease import EASE
from turret.training.baselines.fitted import Baseline
from turret.training.baselines.item_items import CO_OCCURRENCE, ITEM_KNN
from turret.training.baselines.own_use import LAST_USED, MOST_USED
from turret.training.baselines.popular import POPULARITY, RECENT_POPULARITY
from turret.training.errors import TrainingError
from turret.training.evaluation.ranking import ScoresOf

ALL = "all"
BASELINES = {
    one.name: one
    for one in (POPULARITY, RECENT_POPULARITY, LAST_USED, MOST_USED, CO_OCCURRENCE, ITEM_KNN, EASE, ALS)
}

_MASKED = "the run has evaluation.exclude_seen = true, which masks the items that it ranks"


def chosen_baselines(
    names: Sequence[str], data: PreparedData, exclude_seen: bool
) -> tuple[list[Baseline], dict[str, str]]:
    """The named baselines in the order of the registry.

    Popularity is always one, and so are those of the user's own use unless `exclude_seen` masks used items.

    Returns:
        The baselines, and by name the reasons why others of "all" can't be fitted here.

    Raises:
        TrainingError: there is no such baseline, or a named one can't be fitted here.
    """
    for name in names:
        if name != ALL and name not in BASELINES:
            raise TrainingError(
                f"--baselines {name}: there is no such baseline; there are {', '.join(BASELINES)}, and all."
            )
    chosen, left_out = [], {}
    for name, baseline in BASELINES.items():
        is_masked = baseline.of_own_use and exclude_seen
        is_chosen = ALL in names or baseline is POPULARITY or baseline.of_own_use
        if name not in names and (is_masked or not is_chosen):
            continue
        obstacle = _MASKED if is_masked else baseline.obstacle(data)
        if obstacle is None:
            chosen.append(baseline)
        elif name in names:
            raise TrainingError(f"--baselines {name}: {obstacle}.")
        else:
            left_out[name] = obstacle
    return chosen, left_out


def fitted_scores(
    baseline: Baseline, data: PreparedData, until: HistoryEnd, limits: dict[str, str]
) -> ScoresOf:
    """The scores of a baseline fitted on `data`; its limits, if it met any, are entered into `limits`."""
    fitted = baseline.fit(data, until)
    if fitted.limits:
        limits[baseline.name] = fitted.limits
    return fitted.scores_of
