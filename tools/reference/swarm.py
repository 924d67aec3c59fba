"""Compares a running swarm with an expected.json, through the local socket of any of its nodes."""
import array
import base64
import http.client
import json
import math
import pathlib
import socket
import sys


class Node(http.client.HTTPConnection):
    """A daemon's local interface: JSON over HTTP on a Unix socket."""

    def __init__(self, folder):
        super().__init__("starling")
        self.folder = folder

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(pathlib.Path(self.folder) / "starling.sock"))


def run(folder, request):
    """The account of a run (package node/control), and the values of its probe's rows in order."""
    node = Node(folder)
    try:
        node.request("POST", "/v1/run", json.dumps(request), {"Content-Type": "application/json"})
    except OSError as err:
        raise SystemExit(f"no node answers in {folder}: {err}") from err
    values = array.array("f")
    for line in node.getresponse():
        event = json.loads(line)
        if event["kind"] == "error":
            raise SystemExit(f"the node says: {event['error']}")
        if event["kind"] == "rows":
            values.frombytes(base64.b64decode(event["rows"]["data"]))
        if event["kind"] == "done":
            if sys.byteorder == "big":
                values.byteswap()
            return event["run"], values
    raise SystemExit("the node ended before its answer was complete")


def cosine(a, b):
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else float(a == b)


def compare(folder, model, expected, cut, peers, least):
    """Prints each row's cosine with the reference's; the first one below least is the error."""
    prompt, greedy = expected["prompt"], expected["greedy"]
    if not 0 < cut < len(expected["hidden"]):
        raise SystemExit(f"a cut at layer {cut}: the model has {len(expected['hidden']) - 1} layers, and before the first there is nothing to compare")
    positions = expected["hidden_positions"]
    first, last = min(positions), max(positions) + 1
    request = {"model": model, "tokens": prompt, "max_new_tokens": len(greedy) + 1, "cuts": [cut],
               "probe": {"first": first, "last": last, "layers": [cut]}}
    if peers:
        request["assign"] = peers
    account, hidden = run(folder, request)
    if cut not in [stage["layers"]["last"] + 1 for stage in account["stages"]]:
        raise SystemExit(f"the run had no cut at layer {cut}: {account.get('recovered') or 'no stage took part'}")
    width = len(hidden) // (last - first)

    def logits(tokens):
        """Of the last of tokens, over the caches that the run has left."""
        at = len(tokens) - 1
        return run(folder, {"model": model, "tokens": tokens, "prompt_only": True, "continued": True, "decoder": account["decoder"]["peer"], "cuts": [cut],
                            "assign": peers or [], "probe": {"first": at, "last": at + 1, "logits": True}})[1]

    for stage in account["stages"]:
        print(f"layers {stage['layers']['first']}-{stage['layers']['last']}: {stage['peer']}")

    def check(what, mine, want):
        if len(mine) != len(want):
            raise SystemExit(f"{what}: {len(mine)} values, want {len(want)}")
        c = cosine(mine, want)
        print(f"{what}: cosine {c:.6f}, largest difference {max(abs(x - y) for x, y in zip(mine, want)):.3g}")
        if not c >= least:
            raise SystemExit(f"{what}: the cosine with the reference's is {c:.4f}, less than {least}")
    for pos, want in zip(positions, expected["hidden"][cut], strict=True):
        check(f"hidden state into layer {cut} at position {pos}", hidden[(pos - first) * width:(pos - first + 1) * width], want)
    end = len(prompt) - 1
    check(f"logits at position {end}", logits(prompt), expected["logits"][-1])
    new = account["new_tokens"][:len(greedy)]
    same = next((i for i, (a, b) in enumerate(zip(new, greedy)) if a != b), len(new))
    print(f"greedy tokens: the first {same} of {len(greedy)} agree" + (", then the swarm met an end of text" if same == len(new) < len(greedy) else ""))
    if same == len(greedy):
        check(f"logits at position {end + same}, after decoding", logits(prompt + new), expected["greedy_last_logits"])
