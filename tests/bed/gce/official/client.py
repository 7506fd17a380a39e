"""Google's own client, told what to do: client.py http://127.0.0.1:PORT [TOKEN]

One call a line on stdin, as JSON: {"client": "InstancesClient", "method": "insert_unary", "request": {...},
"query": {...}}, the last being further parameters. One answer a line on stdout:
{"answer": ...}, or {"error": {"type", "code", "message", "reasons"}} as the client understood it. Nothing is tried again.
"""
import functools
import json
import sys

from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError
from google.cloud import compute_v1
from google.oauth2.credentials import Credentials

options = ClientOptions(api_endpoint=sys.argv[1])
credentials = Credentials(token=sys.argv[2]) if len(sys.argv) > 2 else AnonymousCredentials()
clients, more = {}, []


def send(request, method, url, params=(), **rest):
    return request(method, url, params=list(params) + more, **rest)


def plain(message):
    return type(message).to_dict(message, use_integers_for_enums=False)


def call(said):
    name = said["client"]
    if name not in clients:
        clients[name] = getattr(compute_v1, name)(credentials=credentials, client_options=options)
        session = clients[name].transport._session
        session.request = functools.partial(send, session.request)
    # The client's own words have no returnPartialSuccess, as little as the document's parameters do: it goes by the session.
    more[:] = said["query"].items()
    result = getattr(clients[name], said["method"])(request=said["request"], retry=None, timeout=20)
    if hasattr(result, "pages"):
        return [plain(page) for page in result.pages]
    return plain(result)


for line in sys.stdin:
    try:
        answer = {"answer": call(json.loads(line))}
    except GoogleAPICallError as error:
        reasons = [each.get("reason") for each in error.errors if isinstance(each, dict)]
        answer = {"error": {"type": type(error).__name__, "code": int(error.code), "message": error.message, "reasons": reasons}}
    except RefreshError as error:
        # A refused token is one that the client would fetch anew.
        answer = {"error": {"type": "RefreshError", "code": 401, "message": str(error), "reasons": []}}
    print(json.dumps(answer), flush=True)
