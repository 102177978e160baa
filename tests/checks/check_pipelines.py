#!/usr/bin/env python3
"""Compares the results of a device's compiler for every module with a committed table of several devices.

    check_pipelines.py INFO TABLE NAME [--device CHOICE]   INFO: the program tools/info; NAME: of the device in the table
    check_pipelines.py INFO TABLE NAME --write             makes its column anew; allowed spills and "varies" stay in it
    check_pipelines.py FILE.json TABLE NAME                FILE: what `info --pipelines --json` wrote
    check_pipelines.py ... --only TEXT                     only kernels whose names contain this: seconds, not minutes

A module has a pipeline for each value of its constants: the table has the number of them, the most registers, spills and
shared bytes of one, and the instructions of all. A module fails if a pipeline spills registers and is not allowed to, if
it needs more registers, shared bytes or instructions than the table says (with another driver that is only a note, as
where the table says why results of one compiler vary), is not in the table, or is gone. On AMD no pipeline may round
toward zero when it converts to f16."""

import argparse
import json
import subprocess
import sys

COLUMNS = ("pipelines", "registers", "spills", "shared_bytes", "instructions")
# The figures of a module that may grow silently, and by which factor.
SLACK = {"registers": (4, 1.0), "shared_bytes": (0, 1.0), "instructions": (8, 1.03)}
# AMD's v_cvt_pkrtz_f16_f32, on newer devices v_cvt_pk_rtz_f16_f32, gives 65504 for larger values.
ROUNDS_TO_ZERO = "rtz_f16"


def read_device(program, choice, only):
    """Returns the device as `info` describes it, with its pipelines."""
    if program.endswith(".json"):
        with open(program, encoding="utf-8") as file:
            devices = json.load(file)
    else:
        command = [program, "--pipelines", "--json", "--count", ROUNDS_TO_ZERO, "--only", only]
        done = subprocess.run(command + (["--device", choice] if choice else []), capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        devices = json.loads(done.stdout)
    if len(devices) != 1:
        sys.exit(f"one device must be asked, got {len(devices)}; see --device")
    fault = devices[0].get("fault") or devices[0].get("pipelines_fault")
    if fault:
        sys.exit(fault)
    devices[0]["pipelines"] = [p for p in devices[0]["pipelines"] if only in p["kernel"]]
    return devices[0]


def module_of(pipeline):
    name = f"{pipeline['kernel']} {pipeline['dtypes']}"
    return ", ".join(filter(None, (name, pipeline["storage"], pipeline["bindings"])))


def rows_of(device):
    """{module: [pipelines, registers, spills, shared_bytes, instructions]}; None: the driver does not tell"""
    modules = {}
    for p in device["pipelines"]:
        entry = modules.setdefault(module_of(p), {})
        if p["constants"] in entry:
            sys.exit(f"{module_of(p)} {p['constants']}: a pipeline must be there once, got two")
        entry[p["constants"]] = p

    def over(how, entry, column):
        told = [p[column] for p in entry.values() if p.get(column) is not None]
        return how(told) if told else None
    return {module: [len(entry), *(over(max, entry, c) for c in COLUMNS[1:4]), over(sum, entry, "instructions")]
            for module, entry in modules.items()}


def write_table(path, table):
    """Writes one module per line, so that a change of one is one line."""
    def lines(entries):
        return ",\n".join(f"    {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries))
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{\n  "columns": {json.dumps(COLUMNS)},\n  "devices": {{\n{lines(table["devices"])}\n  }},\n'
                   f'  "modules": {{\n{lines(table["modules"])}\n  }}\n}}\n')


def is_of(module, only):
    return only in module.split()[0]


def take(table, name, device, only=""):
    """Puts a device's results in the place of those that the table has."""
    known = table["devices"].get(name, {"allowed_spills": {}})
    if only and known.get("driver") != device["driver"]:
        sys.exit(f"the other rows of {name} are of the driver {known.get('driver')}, got {device['driver']}")
    table["devices"][name] = {**known, "device": device["name"], "driver": device["driver"]}
    for module, entry in table["modules"].items():
        if is_of(module, only):
            entry.pop(name, None)
    for module, row in rows_of(device).items():
        table["modules"].setdefault(module, {})[name] = row
    table["modules"] = {module: dict(sorted(entry.items())) for module, entry in table["modules"].items() if entry}


def grew(column, before, now):
    if column not in SLACK or before is None or now is None:
        return False
    plus, factor = SLACK[column]
    return now > before * factor + plus


def chip(name):
    """Returns the chip's name. RADV takes the text before "(RADV NAVI31)" from a file that may be absent."""
    return name[name.find("(RADV"):] if "(RADV" in name else name


def spill_faults(device, about):
    faults = []
    for p in device["pipelines"]:
        most, reason = about["allowed_spills"].get(module_of(p), [0, ""])
        if "varies" in about:  # any module may be the one that spills
            most = max((most, *(m for m, _ in about["allowed_spills"].values())))
        if p["spills"] and p["spills"] > most:
            faults.append(f"{module_of(p)} {p['constants']}".strip() + f": {p['spills']} spills, {most} are allowed" +
                          (f" ({reason})" if reason else ""))
    return faults


def compare(device, table, name, only=""):
    """Returns (faults, notes) of a device, compared with the table's column of this name."""
    about = table["devices"].get(name)
    if about is None:
        return [f"the table must have the device {name}, it has {', '.join(table['devices'])}"], []
    if chip(device["name"]) != chip(about["device"]):
        return [f"the table's {name} is '{about['device']}', got '{device['name']}'"], []
    faults, notes = spill_faults(device, about), []
    same_driver = device["driver"] == about["driver"]
    is_bound = same_driver and "varies" not in about
    if not same_driver:
        notes.append(f"the table is of {about['driver']}, this is {device['driver']}: growth is only told")
    now = rows_of(device)
    if not any(row[1] is not None for row in now.values()):
        faults.append("the driver must tell registers of some pipeline, it tells none")
    known = {module: entry[name] for module, entry in table["modules"].items() if name in entry and is_of(module, only)}
    for module, row in now.items():
        if module not in known:
            faults.append(f"{module}: not in the table; write it again")
            continue
        if row[0] != known[module][0]:
            faults.append(f"{module}: {row[0]} pipelines, the table has {known[module][0]}; write it again")
            continue
        for column, before, value in zip(COLUMNS, known[module], row):
            if grew(column, before, value):
                (faults if is_bound else notes).append(f"{module}: {column} grew from {before} to {value}")
    faults += [f"{module}: in the table, and gone; write it again" for module in known if module not in now]
    if "radv" in device["driver"]:
        faults += [f"{module_of(p)} {p['constants']}: makes halves with {ROUNDS_TO_ZERO} ({p['found']} times)"
                   for p in device["pipelines"] if p["found"]]
    return faults, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("table")
    parser.add_argument("name")
    parser.add_argument("--device", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    device = read_device(options.program, options.device, options.only)
    with open(options.table, encoding="utf-8") as file:
        table = json.load(file)
    if options.write:
        take(table, options.name, device, options.only)
        write_table(options.table, table)
        return
    faults, notes = compare(device, table, options.name, options.only)
    for line in notes + faults:
        print(line)
    print(f"{device['name']}: {len(device['pipelines'])} pipelines, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
