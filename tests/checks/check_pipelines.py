#!/usr/bin/env python3
"""Compares the results of a device's compiler for every pipeline with a committed table.

    check_pipelines.py INFO TABLE [--device CHOICE]   INFO: the program tools/info, on that device
    check_pipelines.py INFO TABLE --write             makes the table anew; allowed spills and "varies" stay in it
    check_pipelines.py FILE.json TABLE                FILE: what `info --pipelines --json` wrote

A pipeline fails if it spills registers and is not allowed to, needs more registers or instructions than
the table says (with another driver that is only a note, as where the table says why results of one
compiler vary), is not in the table, or is gone. On AMD none may round toward zero when it converts to f16."""

import argparse
import json
import subprocess
import sys

COLUMNS = ("registers", "spills", "shared_bytes", "instructions")
# The figures of a shader that may grow silently, and by which factor.
SLACK = {"registers": (4, 1.0), "shared_bytes": (0, 1.0), "instructions": (8, 1.05)}
# AMD's v_cvt_pkrtz_f16_f32, on newer devices v_cvt_pk_rtz_f16_f32, gives 65504 for larger values.
ROUNDS_TO_ZERO = "rtz_f16"


def read_device(program, choice):
    """Returns the device as `info` describes it, with its pipelines."""
    if program.endswith(".json"):
        with open(program, encoding="utf-8") as file:
            devices = json.load(file)
    else:
        command = [program, "--pipelines", "--json", "--count", ROUNDS_TO_ZERO]
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
    return devices[0]


def table_of(device):
    """{module: {constants: [registers, spills, shared_bytes, instructions]}}"""
    modules = {}
    for p in device["pipelines"]:
        module = ", ".join(filter(None, (f"{p['kernel']} {p['dtypes']}", p["storage"], p["bindings"])))
        entry = modules.setdefault(module, {})
        if p["constants"] in entry:
            sys.exit(f"{module} {p['constants']}: a pipeline must be there once, got two")
        entry[p["constants"]] = [p.get(column) for column in COLUMNS]
    return modules


def write_table(path, device, kept):
    """Writes one module per line, so that a change of one is one line. `kept` has what no device tells."""
    modules = table_of(device)
    lines = ",\n".join(f"    {json.dumps(m)}: {json.dumps(modules[m])}" for m in sorted(modules))
    head = {"device": device["name"], "driver": device["driver"], "columns": COLUMNS, **kept}
    text = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + text + ',\n  "pipelines": {\n' + lines + "\n  }\n}\n")


def grew(column, before, now):
    if column not in SLACK or before is None or now is None:
        return False
    plus, factor = SLACK[column]
    return now > before * factor + plus


def chip(name):
    """Returns the chip's name. RADV takes the text before "(RADV NAVI31)" from a file that may be absent."""
    return name[name.find("(RADV"):] if "(RADV" in name else name


def compare(device, table):
    """Returns (faults, notes) of a device, compared with its table."""
    faults, notes = [], []
    if chip(device["name"]) != chip(table["device"]):
        return [f"the table is of '{table['device']}', got '{device['name']}'"], []
    same_driver = device["driver"] == table["driver"]
    is_bound = same_driver and "varies" not in table
    if not same_driver:
        notes.append(f"the table is of {table['driver']}, this is {device['driver']}: growth is only told")
    now = table_of(device)
    if not any(row[0] is not None for entry in now.values() for row in entry.values()):
        faults.append("the driver must tell registers of some pipeline, it tells none")
    for module, entry in now.items():
        for constants, row in entry.items():
            name = f"{module} {constants}".strip()
            most, reason = table["allowed_spills"].get(module, [0, ""])
            if "varies" in table:  # any module may be the one that spills
                most = max((most, *(m for m, _ in table["allowed_spills"].values())))
            if row[1] and row[1] > most:
                faults.append(f"{name}: {row[1]} spills, {most} are allowed" + (f" ({reason})" if reason else ""))
            known = table["pipelines"].get(module, {}).get(constants)
            if known is None:
                faults.append(f"{name}: not in the table; write it again")
                continue
            for column, before, value in zip(COLUMNS, known, row):
                if grew(column, before, value):
                    (faults if is_bound else notes).append(f"{name}: {column} grew from {before} to {value}")
    for module, entry in table["pipelines"].items():
        for constants in entry:
            if constants not in now.get(module, {}):
                faults.append(f"{module} {constants}".strip() + ": in the table, and gone; write it again")
    if "radv" in device["driver"]:
        for p in device["pipelines"]:
            if p["found"]:
                faults.append(f"{p['kernel']} {p['dtypes']} {p['storage']} {p['constants']}: makes halves with "
                              f"{ROUNDS_TO_ZERO} ({p['found']} times)")
    return faults, notes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("table")
    parser.add_argument("--device", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    device = read_device(options.program, options.device)
    table = {"allowed_spills": {}}
    try:
        with open(options.table, encoding="utf-8") as file:
            table = json.load(file)
    except FileNotFoundError:
        if not options.write:
            sys.exit(f"there is no table {options.table}; --write makes one")
    if options.write:
        write_table(options.table, device, {k: table[k] for k in ("varies", "allowed_spills") if k in table})
        return
    faults, notes = compare(device, table)
    for line in notes + faults:
        print(line)
    print(f"{device['name']}: {len(device['pipelines'])} pipelines, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
