"""Compute Engine's discovery document as the judge (GC-30). It ships in google-api-python-client.

  discovery.py check         reads exchanges, one JSON object a line; prints what is wrong with each, ends with 1 if anything is
  discovery.py enum A b      prints the values of the field b of the schema A

Refused are: a method or path that does not exist, a parameter that is unknown, missing or ill-formed, a body with an unknown field or a
value of another type, an error in another form than GC-16. The document does not say which fields of a body are required.
"""
import json
import re
import sys
from importlib.resources import files
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema

DOC = json.loads((files("googleapiclient") / "discovery_cache/documents/compute.v1.json").read_text())
# Google's own client sends it with every request; the document does not list it.
SYSTEM = {"$alt"}
ERROR = {
    "type": "object", "additionalProperties": False, "required": ["error"],
    "properties": {"error": {
        "type": "object", "additionalProperties": False, "required": ["code", "message", "errors"],
        "properties": {
            "code": {"type": "integer"}, "message": {"type": "string"}, "status": {"type": "string"}, "details": {"type": "array"},
            "errors": {"type": "array", "minItems": 1, "items": {
                "type": "object", "additionalProperties": False, "required": ["message", "domain", "reason"],
                "properties": {key: {"type": "string"} for key in ("message", "domain", "reason", "location", "locationType")}}}}}},
}
INTEGERS = {"int64": r"^-?\d+$", "uint64": r"^\d+$"}  # 64-bit numbers travel as strings


def schema(node):
    """A node of the document as JSON Schema, unknown fields refused."""
    if isinstance(node, list):
        return [schema(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": "#/$defs/" + node["$ref"]}
    out = {key: node[key] for key in ("type", "enum") if key in node and node[key] != "any"}
    if "pattern" in node:
        out["pattern"] = "^(?:%s)$" % node["pattern"]
    if node.get("type") == "string" and node.get("format") in INTEGERS:
        out["pattern"] = INTEGERS[node["format"]]
    if "items" in node:
        out["items"] = schema(node["items"])
    if "properties" in node:
        out["properties"] = {key: schema(value) for key, value in node["properties"].items()}
        out["additionalProperties"] = False
    if "additionalProperties" in node:
        out["additionalProperties"] = schema(node["additionalProperties"])
    return out


DEFS = {name: schema(node) for name, node in DOC["schemas"].items()}
VALIDATORS = {}


def faults_of(name, body):
    if name not in VALIDATORS:
        VALIDATORS[name] = jsonschema.Draft202012Validator({"$ref": "#/$defs/" + name, "$defs": DEFS})
    return ["%s %s: %s" % (name, "/".join(map(str, e.path)) or ".", e.message[:200]) for e in VALIDATORS[name].iter_errors(body)]


def methods(resource):
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


ROUTES = [(m["httpMethod"], re.compile("^/compute/v1/" + re.sub(r"\{\+?(\w+)\}", r"(?P<\1>[^/]+)", m["path"]) + "$"), m) for m in methods(DOC)]


def ill_formed(parameter, value):
    kind = parameter.get("type")
    if kind == "integer":
        number = int(value) if re.fullmatch(r"-?\d+", value) else None
        # The document has the upper bound of maxResults only in words.
        highest = re.search(r"`0` to `(\d+)`", parameter.get("description", ""))
        return number is None or number < int(parameter.get("minimum", number)) or number > int(highest[1] if highest else number)
    if kind == "boolean":
        # gcloud writes them as Python does.
        return value.lower() not in ("true", "false")
    return "pattern" in parameter and not re.fullmatch(parameter["pattern"], value)


def check(exchange):
    url = urlsplit(exchange["path"])
    found = [(m, hit) for verb, pattern, m in ROUTES if verb == exchange["method"] and (hit := pattern.match(url.path))]
    if not found:
        return ["no such method"]
    method, hit = found[0]
    parameters, faults = method.get("parameters", {}), []
    given = [(key, unquote(value)) for key, value in hit.groupdict().items()] + parse_qsl(url.query, keep_blank_values=True)
    for key, value in given:
        known = parameters.get(key) or DOC["parameters"].get(key)
        if known is not None:
            if ill_formed(known, value):
                faults.append("parameter %s: %r is ill-formed" % (key, value))
        # Revision 20261106 names returnPartialSuccess only where it describes the method.
        elif key not in SYSTEM and not (key == "returnPartialSuccess" and key in method["description"]):
            faults.append("unknown parameter " + key)
    if len({key for key, _ in given}) < len(given):
        faults.append("a parameter is given twice")
    faults += ["missing parameter " + key for key, p in parameters.items() if p.get("required") and key not in dict(given)]
    if "request" in method:
        faults += ["request " + fault for fault in faults_of(method["request"]["$ref"], exchange["request"])]
    elif exchange["request"] is not None:
        faults.append("request: the method takes no body")
    if exchange["status"] < 300:
        faults += ["answer " + fault for fault in faults_of(method["response"]["$ref"], exchange["response"])]
    else:
        faults += ["answer error %s" % e.message[:200] for e in jsonschema.Draft202012Validator(ERROR).iter_errors(exchange["response"])]
        if not faults and exchange["response"]["error"]["code"] != exchange["status"]:
            faults.append("answer: the code is not the status")
    return faults


if sys.argv[1] == "enum":
    print("\n".join(DOC["schemas"][sys.argv[2]]["properties"][sys.argv[3]]["enum"]))
else:
    count = bad = 0
    for line in sys.stdin:
        exchange, count = json.loads(line), count + 1
        for fault in check(exchange):
            bad += 1
            print("%s %s -> %s: %s" % (exchange["method"], exchange["path"], exchange["status"], fault))
    print("compute.v1 revision %s: %d exchanges, %d faults" % (DOC["revision"], count, bad))
    sys.exit(1 if bad or not count else 0)
