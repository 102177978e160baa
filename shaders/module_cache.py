"""Compiled modules by what they are made of, for builds in other folders: ccache for shaders.

In $REWIND_CACHE, or rewind/ in $XDG_CACHE_HOME or ~/.cache; without such a folder nothing is kept.
"""
import glob
import hashlib
import os
import shutil
import sys
import tempfile
import time

UNUSED_DAYS = 14


def folder():
    if os.environ.get("REWIND_CACHE"):
        return os.path.join(os.path.abspath(os.environ["REWIND_CACHE"]), "shaders")
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(os.environ.get("HOME", ""), ".cache")
    return os.path.join(home, "rewind", "shaders") if os.path.isabs(home) else ""


class Entry:
    """A module made of `files`, by the programs `tools` and the Python files here."""

    def __init__(self, files, tools):
        key = hashlib.sha256(sys.version.encode())
        here = os.path.dirname(os.path.abspath(__file__))
        for path in sorted(glob.glob(os.path.join(here, "*.py"))) + files:
            with open(path, "rb") as f:
                content = f.read()
            key.update(f"{os.path.basename(path)} {len(content)} ".encode() + content)
        for tool in tools:
            path = os.path.realpath(shutil.which(tool) or tool)
            if os.path.exists(path):
                info = os.stat(path)
                key.update(f"{path} {info.st_size} {info.st_mtime_ns}".encode())
        self.file = os.path.join(folder(), key.hexdigest() + ".cpp") if folder() else ""

    def copy_to(self, out):
        """Whether it was there."""
        try:
            shutil.copyfile(self.file, out)
            os.utime(self.file)
            return True
        except OSError:
            return False

    def keep(self, out):
        """Atomically; what was not used for long goes."""
        try:
            os.makedirs(os.path.dirname(self.file), exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(self.file), delete=False) as new:
                with open(out, "rb") as f:
                    shutil.copyfileobj(f, new)
            os.replace(new.name, self.file)
            for old in os.scandir(os.path.dirname(self.file)):
                if old.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
                    os.remove(old)
        except OSError:
            pass  # no folder, no room, or another process was faster
