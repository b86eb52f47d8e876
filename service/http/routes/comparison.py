"""`/admin/comparison`: a version that isn't live, compared with the live one; calls of the scope admin."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from turret.service.http.routes.dependencies import Parts, Reads
from turret.service.http.routes.responses import RecommendAnswer, answers, json_response
from turret.service.schemas.fields import K_LIMIT, VersionName
from turret.service.schemas.requests import ComparedRequest, ComparisonRequest

USERS_LIMIT = 1_000


class ComparisonAnswer(BaseModel):
    """The compared version and the live one, since when, and the seconds until the comparison ends.

    `version` is null if no version is compared.
    """

    version: str | None
    live: str | None
    opened: str | None = None
    expires_seconds: float | None = None


class Move(BaseModel):
    """An item of either answer with its ranks, from 1; null: it isn't in that answer."""

    id: int | str
    live_rank: int | None
    other_rank: int | None


class ComparedAnswer(BaseModel):
    """Both versions' answers, the share of items in both, and the moves of all items."""

    live: RecommendAnswer
    other: RecommendAnswer
    overlap: float
    moves: list[Move]


class OverlapAnswer(BaseModel):
    """The overlap of both versions' best k over `histories` histories.

    `source`: the first stored users of a scan, or the recorded queries of the live version if none is stored.
    `overlap_histogram` counts the histories by tenth of their overlap; `changed_first` is the share of
    histories with another best item.
    """

    version: str
    live: str
    source: Literal["users", "golden"]
    histories: int
    overlap_mean: float
    overlap_histogram: list[int]
    changed_first: float


router = APIRouter(prefix="/admin/comparison", tags=["admin"])


@router.post("", responses=answers(ComparisonAnswer, 404, 409))
async def open_comparison(
    body: Annotated[ComparisonRequest, Depends(Reads(ComparisonRequest))], parts: Parts
) -> Response:
    """Open a version beside the live one, in place of any other, after it has passed the gate."""
    return json_response(await parts.comparison.open(body.version))


@router.get("", responses=answers(ComparisonAnswer))
async def show_comparison(parts: Parts, version: VersionName | None = None) -> Response:
    """Show which version is compared, if any; `version` asks for that one alone."""
    return json_response(parts.comparison.state(version))


@router.delete("", responses=answers(ComparisonAnswer))
async def close_comparison(parts: Parts, version: VersionName | None = None) -> Response:
    """End the comparison; with `version`, only if it is of that one."""
    return json_response(await parts.comparison.end(version))


@router.post("/recommend", responses=answers(ComparedAnswer, 404, 409))
async def recommend(
    body: Annotated[ComparedRequest, Depends(Reads(ComparedRequest))],
    parts: Parts,
    version: VersionName | None = None,
) -> Response:
    """Answer one request from both versions. `version` opens another one first, here and below."""
    return json_response(await parts.comparison.recommend(body, version))


@router.get("/overlap", responses=answers(OverlapAnswer, 404, 409))
async def overlap(
    parts: Parts,
    version: VersionName | None = None,
    users: Annotated[int, Query(ge=1, le=USERS_LIMIT)] = 200,
    k: Annotated[int, Query(ge=1, le=K_LIMIT)] = 10,
) -> Response:
    """Measure the overlap of both versions' answers over stored users, or over recorded queries."""
    return json_response(await parts.comparison.overlap(users, k, version))
