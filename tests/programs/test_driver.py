#!/usr/bin/env python3
"""`./rewind driver` against an apt that refuses, hangs, brings rubbish, or works. Usage: test_driver.py REWIND INFO

The system's own lavapipe is what that apt brings, so what is fetched is loaded and tried as a true one is.
"""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REWIND, INFO = (os.path.abspath(path) for path in sys.argv[1:])
NAME = "lavapipe-backports"

# Notes its calls; the file `mode` says what it does. In place of a download it puts the package where apt would.
APT = """#!/bin/sh
top=$(dirname "$(dirname "$0")")
echo "$@" >> "$top/calls"
mode=$(cat "$top/mode")
for word; do
  case $word in
    Dir::Cache=*) archives=${word#*=}/archives ;;
    indextargets) exit ;;
    update)
      [ "$mode" != unsigned ] || { echo "E: The repository is not signed." >&2; exit 100; } ;;
    install)
      [ "$mode" != hang ] || { head -c 1000 "$top/good.deb" > "$archives/mesa.deb"; touch "$top/hangs"; exec sleep 60; }
      [ "$mode" != slow ] || { mode=good; sleep 2; }
      [ "$mode" = nothing ] || cp "$top/$mode.deb" "$archives/mesa.deb" ;;
  esac
done
"""
PROGRAM = '#!/bin/sh\necho "runs on ${VK_DRIVER_FILES:-the system}"\n'
GPU = '#!/bin/sh\necho "vulkan:0  A Card, discrete GPU"\necho "  in use        everything"\n'


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


class Machine:
    """A folder with an apt, a built tree, and a cache."""

    def __init__(self, top, library):
        self.top, self.cache = top, top + "/cache"
        self.drivers = self.cache + "/drivers"
        self.variables = {**os.environ, "PATH": f"{top}/bin:{os.environ['PATH']}", "REWIND_CACHE": self.cache,
                          "REWIND_BUILD": top + "/build", "REWIND_OS_RELEASE": top + "/os-release", "HOME": top,
                          "TMPDIR": top}
        for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "REWIND_DEVICE", "REWIND_NO_INSTALL"):
            self.variables.pop(name, None)
        write(top + "/bin/apt-get", APT)
        write(top + "/bin/ninja", "#!/bin/sh\necho 'ninja: no work to do.'\n")
        write(top + "/build/build.ninja", "")
        write(top + "/build/apps/resnet", PROGRAM)
        self.info(link=INFO)
        self.system("debian", "bookworm")
        for name, content in (("good", library), ("rubbish", b"this is no library"), ("unloadable", b"\x7fELF" + library[4:5000])):
            self.package(name, content)
        with open(top + "/good.deb", "rb") as good, open(top + "/torn.deb", "wb") as torn:
            torn.write(good.read(100000))

    def package(self, name, library):
        """Makes NAME.deb: a library and its manifest."""
        tree = f"{self.top}/{name}"
        write(tree + "/DEBIAN/control", "Package: mesa\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a\n")
        write(tree + "/usr/share/vulkan/icd.d/lvp_icd.json",
              '{"ICD": {"api_version": "1.3.230", "library_path": "libvulkan_lvp.so"}, "file_format_version": "1.0.0"}')
        os.makedirs(tree + "/usr/lib/any")
        with open(tree + "/usr/lib/any/libvulkan_lvp.so", "wb") as file:
            file.write(library)
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, f"{self.top}/{name}.deb"], check=True,
                       capture_output=True)

    def info(self, link=None, text=""):
        path = self.top + "/build/tools/info"
        if os.path.lexists(path):
            os.remove(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if link:
            os.symlink(link, path)
        else:
            write(path, text)

    def system(self, name, codename):
        write(self.top + "/os-release", f'ID={name}\nVERSION_CODENAME={codename}\nPRETTY_NAME="{name} {codename}"\n')

    def fresh(self, mode):
        """Forgets all drivers; what the self-check found stays, it would only take time."""
        shutil.rmtree(self.drivers, ignore_errors=True)
        self.mode(mode)

    def mode(self, mode):
        write(self.top + "/mode", mode)
        write(self.top + "/calls", "")

    def start(self, *command, **variables):
        return subprocess.Popen([REWIND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**self.variables, **variables}, start_new_session=True)

    def run(self, *command, **variables):
        process = self.start(*command, **variables)
        process.out, process.err = process.communicate(timeout=120)
        return process

    def installs(self):
        """How often apt was asked for packages."""
        with open(self.top + "/calls") as calls:
            return sum(" install " in line for line in calls)

    def left(self):
        """What is in the folder of drivers, locks aside."""
        return sorted(os.path.basename(path) for path in glob.glob(self.drivers + "/*") + glob.glob(self.drivers + "/.*")
                      if not path.endswith(".lock"))


def expect(condition, what, *results):
    if not condition:
        sys.exit("\n".join([what] + [f"{r.args}: {r.returncode}\n{r.out}\n{r.err}" for r in results]))


def uses(machine, where, *command, **variables):
    """Trains, and checks on which driver."""
    result = machine.run(*(command or ("resnet",)), **variables)
    manifest = f"{machine.drivers}/{NAME}/icd.json" if where == "fetched" else where
    expect(result.returncode == 0 and result.out == f"runs on {manifest}\n", f"must run on {manifest}", result)
    return result


def test_fetches_once(machine):
    machine.fresh("good")
    first = uses(machine, "fetched")
    expect("fetching the Vulkan driver" in first.err and "REWIND_NO_INSTALL=1" in first.err, "says so before", first)
    expect(machine.left() == [NAME] and machine.installs() == 1, f"whole and alone: {machine.left()}", first)
    uses(machine, "fetched")
    shown = machine.run("driver")
    expect(shown.returncode == 0 and f"in use is {machine.drivers}/{NAME}" in shown.err and "self-check    passed" in shown.out,
           "shows it", shown)
    expect(machine.installs() == 1, "fetched once", shown)
    uses(machine, "fetched", REWIND_NO_INSTALL="1")  # which is about fetching
    with open(machine.top + "/calls") as calls:
        options = calls.read()
    for option in ("Acquire::AllowInsecureRepositories=false", "APT::Get::AllowUnauthenticated=false"):
        expect(options.count(option) == 2, f"update and install have {option}")
    shutil.copy(machine.top + "/rubbish.deb", f"{machine.drivers}/{NAME}/lib/libvulkan_lvp.so")
    result = uses(machine, "the system")  # as after an update of the system that removed what the driver needs
    expect("going on without" in result.err and "--remove" in result.err, "says so", result)


def test_failures(machine):
    for mode, message in (("unsigned", "is not signed"), ("rubbish", "does not load here"), ("unloadable", "does not load here"),
                          ("torn", "dpkg-deb failed"), ("nothing", "none newer")):
        machine.fresh(mode)
        result = uses(machine, "the system")
        expect(message in result.err and "going on with the system's driver" in result.err, mode, result)
        expect(machine.left() == [NAME + ".why"], f"nothing is left of it: {machine.left()}", result)
        machine.mode("good")
        uses(machine, "the system")
        expect(machine.installs() == 0, "not tried at every start", result)
        os.utime(f"{machine.drivers}/{NAME}.why", (time.time() - 2 * 86400,) * 2)
        uses(machine, "fetched")
        expect(machine.left() == [NAME], f"whole and alone: {machine.left()}", result)
    machine.fresh("unsigned")
    result = machine.run("driver")
    expect("is not signed" in result.err and "in use is the system's driver" in result.err, "driver", result)
    machine.mode("good")
    result = machine.run("driver")
    expect(f"in use is {machine.drivers}/{NAME}" in result.err, "who asks for it does not wait a day", result)


def test_no_room(machine):
    machine.fresh("good")
    blocked = machine.top + "/blocked"
    write(blocked, "a file where the folder should be")
    result = uses(machine, "the system", REWIND_CACHE=blocked)
    expect("must be a folder that can be written" in result.err, "no folder", result)
    write(machine.top + "/bin/df", "#!/bin/sh\necho 'Filesystem 1M-blocks Used Available Capacity Mounted'\necho 'any 99 90 9 90% /'\n")
    result = uses(machine, "the system")
    os.remove(machine.top + "/bin/df")
    expect("takes 300 MiB" in result.err and "there are 9 MiB" in result.err and machine.installs() == 0, "no room", result)
    expect(machine.left() == [NAME + ".why"], f"nothing is left: {machine.left()}", result)


def test_folder_of_others(machine):
    machine.fresh("good")
    uses(machine, "fetched")
    for folder in (machine.cache, machine.drivers):
        mode = os.stat(folder).st_mode & 0o777
        expect(mode & 0o022 == 0, f"{folder} is made for this user alone, got {mode:o}")
        os.chmod(folder, 0o777)
        result = uses(machine, "the system")
        expect(f"others must not be able to write to {folder}" in result.err, "says why", result)
        os.chmod(folder, mode)
    if os.geteuid() == 0:
        os.chown(machine.drivers, 12345, 12345)
        result = uses(machine, "the system")
        expect(f"{machine.drivers} must belong to this user" in result.err, "says why", result)
        os.chown(machine.drivers, 0, 0)
    uses(machine, "fetched")


def test_busy_machine(machine):
    """The self-check takes longer than `works` waits, and gets further each time."""
    calls = machine.top + "/waits"
    slow = """#!/bin/sh
[ "$1" = 300 ] || exec /usr/bin/timeout "$@"
echo x >> {0}
if [ $(wc -l < {0}) -lt 4 ]; then {1}; exit 124; fi
shift
exec "$@"
"""
    for proves, where, count in (("cat {0} > {1}/self-check-0-checks", "fetched", 4), ("true", "the system", 2)):
        machine.fresh("good")
        write(calls, "")
        write(machine.top + "/bin/timeout", slow.format(calls, proves.format(calls, machine.cache)))
        result = uses(machine, where)
        os.remove(machine.top + "/bin/timeout")
        with open(calls) as lines:
            expect(len(lines.readlines()) >= count, "goes on as long as it gets further", result)
        for left in glob.glob(machine.cache + "/self-check-*-checks"):
            os.remove(left)


def test_interrupted(machine):
    for how in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        machine.fresh("hang")
        if os.path.exists(machine.top + "/hangs"):
            os.remove(machine.top + "/hangs")
        process = machine.start("resnet")
        while not os.path.exists(machine.top + "/hangs"):
            time.sleep(0.02)
        os.killpg(process.pid, how)
        process.out, process.err = process.communicate(timeout=60)
        expect(process.returncode != 0 and NAME not in machine.left(), f"{how}: {machine.left()}", process)
        if how != signal.SIGKILL:
            expect(machine.left() == [], f"{how}: {machine.left()}", process)
        machine.mode("good")
        result = uses(machine, "fetched")
        expect(machine.left() == [NAME], f"{how}, then whole: {machine.left()}", result)


def test_two_at_once(machine):
    machine.fresh("slow")
    both = [machine.start("resnet") for _ in range(2)]
    for process in both:
        process.out, process.err = process.communicate(timeout=120)
        expect(process.out == f"runs on {machine.drivers}/{NAME}/icd.json\n", "both have it", process)
    expect(sum("waiting for another process" in p.err for p in both) == 1, "one waits", *both)
    expect(machine.installs() == 1 and machine.left() == [NAME], "fetched once", *both)


def test_remove(machine):
    machine.fresh("good")
    uses(machine, "fetched")
    result = machine.run("driver", "--remove")
    expect(result.returncode == 0 and machine.left() == [NAME + ".removed"], f"removed: {machine.left()}", result)
    uses(machine, "the system")  # for good
    result = machine.run("driver")
    expect(machine.left() == [NAME] and machine.installs() == 2, "back again", result)
    result = machine.run("driver", "--delete")
    expect(result.returncode == 1 and "driver [--remove]" in result.err, "a wrong option", result)


def test_not_wanted(machine):
    machine.fresh("good")
    uses(machine, "the system", REWIND_NO_INSTALL="1")
    result = machine.run("driver", REWIND_NO_INSTALL="1")
    expect(result.returncode == 0 and "REWIND_NO_INSTALL is set" in result.err, "why not", result)
    for command in (("resnet", "--help"), ("plan", "resnet")):
        uses(machine, "the system", *command)
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        uses(machine, "/mine.json" if name == "VK_DRIVER_FILES" else "the system", **{name: "/mine.json"})
        result = machine.run("driver", **{name: "/mine.json"})
        expect("that the environment names" in result.err, name, result)
    machine.system("debian", "trixie")
    uses(machine, "the system")
    result = machine.run("driver")
    expect("on Debian 12, not on" in result.err and "debian trixie" in result.err and "Mesa 25" in result.err, "other", result)
    machine.system("debian", "bookworm")
    machine.info(text=GPU)
    uses(machine, "the system")
    result = machine.run("driver")
    expect("there is a GPU" in result.err and "A Card" in result.out, "GPU", result)
    expect(machine.installs() == 0 and machine.left() == [], f"nothing was fetched: {machine.left()}", result)
    machine.info(link=INFO)
    uses(machine, "fetched")
    machine.info(text=GPU)
    uses(machine, "the system")  # a GPU came
    machine.info(link=INFO)


def main():
    libraries = glob.glob("/usr/lib/*/libvulkan_lvp.so")
    if not libraries or not shutil.which("dpkg-deb") or not shutil.which("flock"):
        print("skipped: needs an installed lavapipe (mesa-vulkan-drivers), dpkg-deb and flock")
        sys.exit(77)
    with open(libraries[0], "rb") as file:
        library = file.read()
    with tempfile.TemporaryDirectory() as top:
        machine = Machine(os.path.realpath(top), library)
        for test in (test_fetches_once, test_failures, test_no_room, test_folder_of_others, test_busy_machine, test_interrupted,
                     test_two_at_once, test_remove,
                     test_not_wanted):
            test(machine)
            print(test.__name__[5:].replace("_", " "), flush=True)


main()
