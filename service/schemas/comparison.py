"""The bodies of the calls that compare a version with the live one."""

from typing import Any

from pydantic import ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from turret.service.schemas.fields import VersionName
from turret.service.schemas.requests import Body, RecommendRequest

_OF_PAGES = ("cursor", "min_version")


def _without_pages(schema: dict[str, Any]) -> None:
    """Describe a RecommendRequest without the fields that `ComparedRequest` refuses."""
    schema["additionalProperties"] = False
    for name in _OF_PAGES:
        del schema["properties"][name]


class ComparisonRequest(Body):
    """The version to compare with the live one."""

    version: VersionName


class ComparedRequest(RecommendRequest):
    """A request to both versions: that of `POST /v1/recommend`, without `cursor` and `min_version`."""

    model_config = ConfigDict(json_schema_extra=_without_pages)

    @model_validator(mode="before")
    @classmethod
    def _refuse_pages(cls, data: Any) -> Any:
        for name in _OF_PAGES:
            if isinstance(data, dict) and name in data:
                message = f"a comparison has one page, of two given versions; leave {name} out"
                raise PydanticCustomError("unknown_field", "{message}", {"name": name, "message": message})
        return data
