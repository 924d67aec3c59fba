"""Compares a running swarm with an expected.json, through the local socket of the node that decodes."""
import http.client
import json
import math
import pathlib
import socket


class Node(http.client.HTTPConnection):
    """A daemon's local interface: JSON over HTTP on a Unix socket."""

    def __init__(self, folder):
        super().__init__("starling")
        self.folder = folder

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(pathlib.Path(self.folder) / "starling.sock"))


def run(folder, request):
    """The account of a run (package node/control)."""
    node = Node(folder)
    try:
        node.request("POST", "/v1/run", json.dumps(request), {"Content-Type": "application/json"})
    except OSError as err:
        raise SystemExit(f"no node answers in {folder}: {err}") from err
    for line in node.getresponse():
        event = json.loads(line)
        if event["kind"] == "error":
            raise SystemExit(f"the node says: {event['error']}")
        if event["kind"] == "done":
            return event["run"]
    raise SystemExit("the node ended before its answer was complete")


def cosine(a, b):
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else float(a == b)


def compare(folder, model, expected, cut, peers, least):
    """Prints each row's cosine with the reference's; the first one below least is the error."""
    prompt, greedy = expected["prompt"], expected["greedy"]
    if not 0 < cut < len(expected["hidden"]):
        raise SystemExit(f"a cut at layer {cut}: the model has {len(expected['hidden']) - 1} layers, and before the first there is nothing to compare")
    end = len(prompt) - 1
    request = {"model": model, "tokens": prompt, "max_new_tokens": len(greedy) + 1, "cuts": [cut], "decode": "here",
               "trace": {"hidden": expected["hidden_positions"], "logits": [end, end + len(greedy)]}}
    if peers:
        request["assign"] = peers
    account = run(folder, request)
    got = account["trace"]
    if got["cut"] != cut or not account["stages"]:
        raise SystemExit(f"the run had its seam at layer {got['cut']}, not at {cut}: {account.get('recovered') or 'no stage took part'}")
    for stage in account["stages"]:
        print(f"layers {stage['layers']['first']}-{stage['layers']['last']}: {stage['peer']}")

    def check(what, mine, want):
        if mine is None or len(mine) != len(want):
            raise SystemExit(f"{what}: {0 if mine is None else len(mine)} values, want {len(want)}")
        c = cosine(mine, want)
        print(f"{what}: cosine {c:.6f}, largest difference {max(abs(x - y) for x, y in zip(mine, want)):.3g}")
        if not c >= least:
            raise SystemExit(f"{what}: the cosine with the reference's is {c:.4f}, less than {least}")
    for pos, mine, want in zip(expected["hidden_positions"], got["hidden"], expected["hidden"][cut], strict=True):
        check(f"hidden state into layer {cut} at position {pos}", mine, want)
    check(f"logits at position {end}", got["logits"][0], expected["logits"][-1])
    new = account["new_tokens"][:len(greedy)]
    same = next((i for i, (a, b) in enumerate(zip(new, greedy)) if a != b), len(new))
    print(f"greedy tokens: the first {same} of {len(greedy)} agree" + (", then the swarm met an end of text" if same == len(new) < len(greedy) else ""))
    if same == len(greedy):
        check(f"logits at position {end + same}, after decoding", got["logits"][1], expected["greedy_last_logits"])
