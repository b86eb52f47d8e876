"""A check for schemathesis: what fits the document is refused only for what JSON Schema can't say.

schemathesis.toml lets 422 and 413 pass where there is such a thing; this sees to it that it was that.
"""

from typing import Any

import schemathesis

UNSAYABLE = {
    422: {"history_times", "at", "id", "point", "field", "filter", "features", "cap", "kind", "user_id"},
    413: {"fields"},
}


@schemathesis.check
def refused_only_for_what_schemas_can_not_say(ctx: Any, response: Any, case: Any) -> None:
    """Look at the field that a refusal of a fitting request names."""
    if (
        case.meta is None
        or not case.meta.generation.mode.is_positive
        or response.status_code not in UNSAYABLE
    ):
        return
    field = response.json()["error"]["field"]
    assert UNSAYABLE[response.status_code] & set(field.split(".")), f"{field} was refused, and fits"
