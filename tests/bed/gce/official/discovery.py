"""Judges recorded exchanges by the discovery document of Compute Engine v1, one JSON object a line on stdin.

An exchange is {method, path, request, status, response}. Every method and query parameter must be in the document, and every body must fit its
schema, whose unknown fields are refused. Prints what does not fit; exit 1 if anything does not.
"""
import importlib.resources
import json
import re
import sys
import urllib.parse

import jsonschema

DOCUMENT = json.loads((importlib.resources.files("googleapiclient") / "discovery_cache/documents/compute.v1.json").read_text())
# Revision 20261106 names it in the method's description and not among its parameters.
IN_PROSE_ONLY = {("compute.instances.aggregatedList", "returnPartialSuccess")}
DIGITS = {"int64": r"^-?[0-9]+$", "uint64": r"^[0-9]+$"}


def schema(node):
    """A schema of the document as JSON Schema: closed objects, whole patterns, 64-bit numbers as texts."""
    if isinstance(node, list):
        return [schema(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": f"#/$defs/{node['$ref']}"}
    made = {key: node[key] for key in ("type", "enum") if node.get(key) not in (None, "any")}
    if "pattern" in node:
        made["pattern"] = f"^(?:{node['pattern']})$"
    if node.get("type") == "string" and node.get("format") in DIGITS:
        made["pattern"] = DIGITS[node["format"]]
    if "items" in node:
        made["items"] = schema(node["items"])
    if "properties" in node:
        made["properties"] = {key: schema(inner) for key, inner in node["properties"].items()}
        made["additionalProperties"] = False
    if "additionalProperties" in node:
        made["additionalProperties"] = schema(node["additionalProperties"])
    return made


DEFINITIONS = {name: schema(node) for name, node in DOCUMENT["schemas"].items()}


def methods(resource):
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


ROUTES = [(method["httpMethod"], re.compile(re.sub(r"\{\+?\w+\}", "[^/]+", method["path"])), method) for method in methods(DOCUMENT)]


def misfits(name, body):
    judge = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": DEFINITIONS})
    for error in judge.iter_errors(body):
        yield f"{'/'.join(map(str, error.path)) or '.'}: {error.message[:200]}"


def judge(exchange):
    url = urllib.parse.urlsplit(exchange["path"])
    path = url.path.removeprefix("/compute/v1/")
    method = next((method for verb, pattern, method in ROUTES if verb == exchange["method"] and pattern.fullmatch(path)), None)
    if method is None:
        yield "there is no such method"
        return
    known = {*method.get("parameters", {}), *DOCUMENT["parameters"]}
    for key, _ in urllib.parse.parse_qsl(url.query, keep_blank_values=True):
        if key not in known and (method["id"], key) not in IN_PROSE_ONLY:
            yield f"{method['id']} has no query parameter {key}"
    if "request" in method:
        yield from (f"request {misfit}" for misfit in misfits(method["request"]["$ref"], exchange["request"]))
    elif exchange["request"] is not None:
        yield f"{method['id']} takes no body"
    if exchange["status"] < 300:
        yield from (f"answer {misfit}" for misfit in misfits(method["response"]["$ref"], exchange["response"]))


count, wrong = 0, 0
for line in sys.stdin:
    exchange = json.loads(line)
    count += 1
    for misfit in judge(exchange):
        wrong += 1
        print(f"{exchange['method']} {exchange['path']} ({exchange['status']}): {misfit}")
print(f"revision {DOCUMENT['revision']}: {count} exchanges, {wrong} misfits")
if "--statuses" in sys.argv:
    print("statuses", " ".join(sorted(DOCUMENT["schemas"]["Instance"]["properties"]["status"]["enum"])))
sys.exit(1 if wrong else 0)
