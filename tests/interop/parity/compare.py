"""Where two outcomes of one line differ: the points, as short texts that table.py can name."""

import re

# Set by ddprun only, or of no meaning for a worker; docs/environment.md describes them.
OWN_VARIABLES = re.compile(r"DDPRUN_\w+|TORCHELASTIC_SIGNALS_TO_HANDLE|OMP_NUM_THREADS")
LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "HOST")


def general(worker, line):
    """The worker's record without what no two runs share: an address or port that the line does not name, a random id."""
    words = " ".join([*line.words, *line.environment.values()])
    result = {}
    for name, value in worker["environment"].items():
        if OWN_VARIABLES.fullmatch(name):
            continue
        if name == "MASTER_ADDR" and value in LOOPBACK:
            value = "this machine"
        elif name == "MASTER_PORT" and value != "PORT":
            value = "a free port"
        elif name == "TORCHELASTIC_RUN_ID" and (not value or value not in words):
            value = "made by the launcher"
        elif name == "TORCHELASTIC_ERROR_FILE" and value:
            value = "in the log folder" if "FOLDER/cwd/logs/" in value else "a temporary file"
        result[name] = value
    return {**worker, "environment": result}


def normal(outcome, line):
    return {**outcome, "workers": [general(worker, line) for worker in outcome["workers"]]}


def differences(theirs, ours):
    """Both are results of normal(). Returns the points in which `ours` differs."""
    points = []
    for theirs_code, ours_code in dict.fromkeys(zip(theirs["exit"], ours["exit"])):
        if theirs_code != ours_code:
            points.append(f"exit {theirs_code}, {ours_code}")
    if len(theirs["workers"]) != len(ours["workers"]):
        points.append(f"workers {len(theirs['workers'])}, {len(ours['workers'])}")
    for theirs_worker, ours_worker in zip(theirs["workers"], ours["workers"]):
        names = {*theirs_worker["environment"], *ours_worker["environment"]}
        for name in sorted(names):
            values = [w["environment"].get(name, "not set") for w in (theirs_worker, ours_worker)]
            if values[0] != values[1]:
                points.append(f"{name} {values[0]}, {values[1]}")
        points += [key for key in theirs_worker if key != "environment" and theirs_worker[key] != ours_worker[key]]
    points += [
        key
        for key in ("signals", "stdout", "stderr", "error file", "left in the working directory")
        if theirs[key] != ours[key]
    ]
    written, ours_written = ({name: text for name, text in files.items() if text} for files in (theirs["files"], ours["files"]))
    if any(ours_written.get(name) != text for name, text in written.items()):
        points.append("files")
    if ours_written.keys() - written.keys():
        points.append("more files")
    return list(dict.fromkeys(points))
