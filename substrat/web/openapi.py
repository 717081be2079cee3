"""The API's OpenAPI 3.1 document, made from the table of paths, the methods' parameters and the objects' types. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from substrat import __version__
from substrat.protocol.objects import EventObject
from substrat.protocol.vocabulary import AGENT_STATES
from substrat.web.routes import API, ROUTES

if TYPE_CHECKING:
    from substrat.web.routes import Route

Object = dict[str, Any]

_SCHEMAS: dict[str, Object] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "minimum": 0},
    "boolean": {"type": "boolean"},
    "strings": {"type": "array", "items": {"type": "string"}},
    "integers": {"type": "array", "items": {"type": "integer", "format": "int64"}},
    "states": {"type": "array", "items": {"enum": list(AGENT_STATES)}},
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
_LINK: Object = {
    "description": '`<PATH>; rel="next"` (RFC 8288), where more may follow: the path of the next page.',
    "schema": {"type": "string"},
}
_FAILURES = {
    "400": "A parameter is wrong, or the body isn't JSON.", "401": "The token is missing or wrong.",
    "403": "Another origin asks, or the server is read-only.", "404": "There is no such thing.",
    "409": "The state of things is against it.", "421": "The Host is another.", "429": "A limit is reached.",
    "503": "The daemon isn't running.",
}  # fmt: skip


def document(server: str) -> Object:
    """Return the document.

    Args:
        server: the server's address, such as `http://127.0.0.1:8675`.
    """
    (event, *schemas), components = msgspec.json.schema_components(
        [EventObject, *(route.result for route in ROUTES)],
        schema_hook=_any_value,
        ref_template="#/components/schemas/{name}",
    )
    paths: Object = {}
    for route, schema in zip(ROUTES, schemas, strict=True):
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schema)
    paths["/events"] = {"get": _events(event)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Substrat", "version": __version__, "summary": "The agents of one daemon."},
        "servers": [{"url": server + API}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Failure": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schema: Object) -> Object:
    inside = [_parameter(name, *route.kind_of(name), where="path") for name in route.in_path]
    found: Object = {
        "summary": route.about,
        "operationId": f"{route.verb.lower()}{''.join(part.strip('{}').capitalize() for part in route.path.split('/'))}",
        "parameters": inside,
        "responses": _responses(str(route.status), schema),
    }
    if "after" in route.parameters:
        found["responses"][str(route.status)]["headers"] = {"Link": _LINK}
    if route.verb == "GET":
        inside += [_parameter(name, *about, where="query") for name, about in route.parameters.items()]
    else:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _body(route)}}}
    return found


def _parameter(name: str, kind: str, required: bool, about: str, *, where: str) -> Object:
    must = required or where == "path"
    return {"name": name, "in": where, "required": must, "description": about, "schema": _SCHEMAS[kind]}


def _body(route: Route) -> Object:
    properties = {name: {**_SCHEMAS[kind], "description": about} for name, (kind, _, about) in route.parameters.items()}
    required = [name for name, (_, must, __) in route.parameters.items() if must]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _responses(status: str, schema: Object) -> Object:
    failure = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
    failures = {code: {"description": about, "content": failure} for code, about in _FAILURES.items()}
    return {status: {"description": "It is done.", "content": {"application/json": {"schema": schema}}}, **failures}


def _events(event: Object) -> Object:
    """Describe the page of events, which is a stream for who accepts one."""
    page = {
        "type": "object",
        "required": ["events", "cursor", "journal"],
        "properties": {
            "events": {"type": "array", "items": event},
            "cursor": {"type": "integer"},
            "journal": {"type": "string"},
        },
    }
    responses = _responses("200", page)
    responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    query = {
        "since": ("integer", "the cursor to read after; default: 0 for a page, from now on for a stream"),
        "journal": ("string", "the id of the cursor's journal, so that another one fails"),
        "limit": ("integer", "how many at most in a page, from 1 to 1000"),
        "agent": ("string", "only this agent's"),
        "filter": ("string", "`no-thinking` leaves `thinking:*` out of a stream"),
    }
    parameters = [_parameter(name, kind, False, about, where="query") for name, (kind, about) in query.items()]
    summary = "A page of events; with Accept: text/event-stream all later ones as they come."
    return {"summary": summary, "operationId": "getEvents", "parameters": parameters, "responses": responses}


def _any_value(kind: type) -> Object:
    """Return the schema of a type that isn't JSON's own: `object` stands for any value."""
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError
