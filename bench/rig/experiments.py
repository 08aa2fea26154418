"""The experiments that `run` knows, in its order: each is the script of that name beside this folder.

Apart from them stand `balancing` (records for tests) and `yardsticks` (needs suites that are no part of the project)."""

import ast
import os

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALL = ["hot", "memory", "mixed", "stall", "syscalls", "foreign", "spread", "reload", "large", "article", "cached", "wide", "kinds", "stores", "spikes", "filling", "crowd", "disks", "sickdisks", "written",
       "cachecalls", "cachecosts", "restart", "millions", "killed", "powercut", "chaos", "hitratio", "small", "tight", "slowclients", "fairness", "attack", "floods", "pools", "tls", "http2", "far", "pieces"]
APART = ["balancing", "yardsticks"]
# Options of `run` that only these have.
TAKES = {"ats": ["stores", "spikes", "sickdisks", "cachecosts", "hitratio"], "also": ["hot", "cached", "http2"], "origin_core": ["wide", "kinds", "cached", "stores", "spikes", "filling", "crowd", "disks", "sickdisks", "cachecalls", "cachecosts", "restart", "millions", "killed", "powercut", "chaos", "hitratio", "small", "tight", "slowclients"]}


def script(name):
    return os.path.join(FOLDER, name)


def about(name):
    """The first sentence of what the script says it is."""
    with open(script(name)) as f:
        said = ast.get_docstring(ast.parse(f.read()))
    return said.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".") + "."


def chosen(names):
    """Those that were named, in the order of the list, `all` for all; an error names what is not there."""
    unknown = [name for name in names if name not in (*ALL, "all")]
    if unknown:
        raise SystemExit("no such experiment: %s (bench/run --list)" % ", ".join(unknown))
    return ALL if "all" in names else [name for name in ALL if name in names]


def command(name, args, json):
    """How `run` starts it."""
    given = {"freewheel": args.freewheel, "nginx": args.nginx, "dir": args.dir, "server-core": args.server_core, "load-core": args.load_core, "json": json}
    given.update({option.replace("_", "-"): getattr(args, option, None) for option, takers in TAKES.items() if name in takers and option != "also"})
    words = [word for option, value in given.items() if value is not None for word in ("--" + option, str(value))]
    if name in TAKES["also"]:
        words += [word for peer in getattr(args, "also", None) or [] for word in ("--also", "%s=%s" % peer)]
    return [script(name), *words, *(["--quick"] if args.quick else [])]
