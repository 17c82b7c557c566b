"""Users and what they may do, the record of it, and logging in and out."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from headwater.actions import AUDIT, HISTORY
from headwater.console import models
from headwater.console.access import COOKIE
from headwater.console.dependencies import (
    FAILURES,
    Known,
    Operator,
    TheAccess,
    TheBroker,
    by,
    check,
    shown,
)
from headwater.console.guard import name_of

router = APIRouter(responses=FAILURES, tags=["users"])


@router.get("/users", response_model=models.Page[models.UserAccount])
async def users(who: Operator, access: TheAccess) -> Any:
    items = [_user(each.name, each.role, each.created) for each in access.known.values()]
    return {"items": items, "total": len(items), "next": None}


@router.post("/users", response_model=models.UserAccount, status_code=201)
async def add_user(
    who: Operator, access: TheAccess, broker: TheBroker, user: models.NewUser
) -> Any:
    """The first one has to be an operator, or nobody could add another."""
    role = user.role if access.known else "operator"
    return await broker.ask(
        "user.add", name=user.name, role=role, password=user.password, by=by(who)
    )


@router.delete("/users/{name}", status_code=204)
async def remove_user(who: Operator, broker: TheBroker, name: str) -> None:
    await broker.ask("user.remove", name=name_of(name), by=by(who))


@router.patch("/users/{name}", response_model=models.UserAccount)
async def change_user(
    who: Operator, broker: TheBroker, name: str, change: models.UserChange
) -> Any:
    """Give a user another role, another password, or both."""
    return await broker.ask(
        "user.change",
        name=name_of(name),
        role=change.role,
        password=change.password,
        by=by(who),
    )


@router.post("/users/{name}/tokens", response_model=models.NewToken, status_code=201)
async def add_token(who: Operator, broker: TheBroker, name: str) -> Any:
    """Create a token; it is shown only once."""
    return await broker.ask("user.token", name=name_of(name), by=by(who))


@router.delete("/users/{name}/tokens", status_code=204)
async def remove_tokens(who: Operator, broker: TheBroker, name: str) -> None:
    """Make all tokens of a user void."""
    await broker.ask("user.revoke", name=name_of(name), by=by(who))


@router.get("/access", response_model=models.Page[models.AccessRule])
async def rules(who: Operator, broker: TheBroker) -> Any:
    """The rules: what no rule allows is refused."""
    items = await broker.ask("access.list")
    return {"items": items, "total": len(items), "next": None}


@router.post("/access", response_model=models.Success, status_code=201)
async def allow(who: Operator, broker: TheBroker, rule: models.AccessRule) -> Any:
    """Add a rule, or more to one."""
    await broker.ask("access.allow", who=rule.who, may=rule.may, topics=rule.topics, by=by(who))
    return {"done": True}


@router.post("/access/revoke", response_model=models.Success)
async def revoke(who: Operator, broker: TheBroker, rule: models.AccessRule) -> Any:
    """Take back what a rule allows."""
    await broker.ask("access.revoke", who=rule.who, may=rule.may, topics=rule.topics, by=by(who))
    return {"done": True}


@router.get("/access/explain", response_model=models.AccessExplanation)
async def explain(
    who: Operator,
    broker: TheBroker,
    subject: Annotated[str, Query(alias="who", max_length=100)],
    action: Annotated[str, Query(max_length=20)],
    topic: Annotated[str, Query(max_length=65535)],
) -> Any:
    """Whether someone may do something, and why."""
    return await broker.ask("access.explain", who=subject, action=action, topic=topic)


@router.get("/audit", response_model=models.Messages)
async def audit(
    request: Request,
    who: Known,
    broker: TheBroker,
    before: Annotated[int | None, Query(ge=0, le=models.MOST)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> Any:
    """What is on record under `$audit/`: the newest, or those before an offset."""
    check(request, who, HISTORY, f"{AUDIT}/access")
    found = await broker.ask(
        "messages.read", topic=f"{AUDIT}/*", kind="levels", before=before, limit=limit
    )
    return {**found, "items": [shown(dict(each)) for each in found["items"]]}


@router.post("/login", response_model=models.Me)
async def login(
    request: Request, response: Response, access: TheAccess, login: models.Login
) -> Any:
    """Begin a session, in a cookie."""
    address = request.client.host if request.client else ""
    session, user = await access.log_in(login.name, login.password, address)
    response.set_cookie(
        COOKIE,
        session,
        max_age=access.seconds,
        httponly=True,
        samesite="strict",
        secure=request.app.state.settings.secure,
    )
    return {"name": user.name, "role": user.role, "local": False}


@router.post("/logout", response_model=models.Success)
async def logout(request: Request, response: Response, access: TheAccess) -> Any:
    access.log_out(request)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return {"done": True}


@router.get("/me", response_model=models.Me)
async def me(who: Known) -> Any:
    return {"name": who.name, "role": who.role, "local": who.local}


def _user(name: str, role: str, created: int) -> dict[str, Any]:
    return {"name": name, "role": role, "created": created}
