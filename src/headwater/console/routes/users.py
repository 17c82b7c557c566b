"""Users, and logging in and out."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from headwater.console import models
from headwater.console.access import COOKIE
from headwater.console.dependencies import FAILURES, Operator, TheAccess, Viewer
from headwater.console.guard import name_of

router = APIRouter(responses=FAILURES, tags=["users"])


@router.get("/users", response_model=models.Page[models.UserAccount])
async def users(who: Operator, access: TheAccess) -> Any:
    items = [_user(each.name, each.role, each.created) for each in access.known.values()]
    return {"items": items, "total": len(items), "next": None}


@router.post("/users", response_model=models.UserAccount, status_code=201)
async def add_user(who: Operator, access: TheAccess, user: models.NewUser) -> Any:
    """The first one has to be an operator, or nobody could add another."""
    role = user.role if access.known else "operator"
    made = await asyncio.to_thread(access.users.add, user.name, role, user.password)
    return _user(made.name, made.role, made.created)


@router.delete("/users/{name}", status_code=204)
async def remove_user(who: Operator, access: TheAccess, name: str) -> None:
    await asyncio.to_thread(access.users.remove, name_of(name))


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
async def me(who: Viewer) -> Any:
    return {"name": who.name, "role": who.role.name, "local": who.local}


def _user(name: str, role: str, created: int) -> dict[str, Any]:
    return {"name": name, "role": role, "created": created}
