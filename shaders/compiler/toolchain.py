"""The shader compiler (compiler.cpp) as a process, and the modules that it made before: ccache for shaders.

Modules are stored by a hash of their source, in $REWIND_CACHE, or rewind/ in $XDG_CACHE_HOME or ~/.cache, so that a build
in another folder finds them. If there is no such folder, or it does not belong to this user alone (core/files/cache.h has
the rule), they are stored beside the build's own files.
"""
import functools
import glob
import hashlib
import os
import re
import stat
import subprocess
import sys
import tempfile
import time

UNUSED_DAYS = 14

PROBE = """#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension %s : require
layout(local_size_x = 32) in;
shared uvec4 x[64];
void main() {
  coopmat<%s, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> m;
  coopMatLoad(m, x, 0, 2, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(m, x, 0, 2, gl_CooperativeMatrixLayoutRowMajor);
}
"""
HALF = ("GL_EXT_shader_explicit_arithmetic_types_float16", "float16_t")
BRAIN = ("GL_EXT_bfloat16", "bfloat16_t")


def not_ours(folder):
    """Returns why the folder does not belong to this user alone, or nothing."""
    link, there = os.lstat(folder), os.stat(folder)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
        return f"{folder} must be no link of another user's"
    if there.st_uid != os.geteuid():
        return f"{folder} must belong to this user"
    if there.st_mode & 0o022:
        return f"others must not be able to write to {folder}: chmod go-w {folder}"
    return ""


class CompileError(RuntimeError):
    pass


class Compiler:
    def __init__(self, program):
        self.program = program
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.version = done.stdout

    def run(self, jobs):
        """Runs jobs (mode, input, output), as compiler.cpp describes them."""
        lines = "".join(" ".join(job) + "\n" for job in jobs)
        done = subprocess.run([self.program], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(done.stdout + done.stderr)

    @functools.lru_cache(maxsize=None)
    def is_native(self, brain):
        """Tells whether glslang knows the KHR form of cooperative matrices, with factors of bf16 if `brain`."""
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "probe.comp")
            with open(source, "w") as f:
                f.write(PROBE % (BRAIN if brain else HALF))
            try:
                self.run([("plain", source, os.path.join(folder, "probe.spv"))])
                return True
            except CompileError:
                return False

    def validates(self, brain):
        """Tells whether SPIRV-Tools know that form; 2023.1, which Debian 12 has, does not."""
        version = re.search(r"SPIRV-Tools v(\d+)\.(\d+)", self.version)
        return bool(version) and tuple(map(int, version.groups())) >= ((2025, 2) if brain else (2024, 1))


class Cache:
    def __init__(self, compiler, fallback):
        """`fallback` is the folder to use if the user has none."""
        here = os.path.dirname(os.path.abspath(__file__))
        self.version = compiler.version.encode()
        for path in [os.path.join(here, "cooperative.py"), os.path.join(here, "spirv.py")]:
            with open(path, "rb") as f:
                self.version += f.read()
        self.folder = self.choose() or fallback
        os.makedirs(self.folder, exist_ok=True)

    @staticmethod
    def choose():
        """Returns the folder, which is made if it is missing; empty if there is none to be trusted."""
        if os.environ.get("REWIND_CACHE"):
            top = os.path.abspath(os.environ["REWIND_CACHE"])
        else:
            home = os.environ.get("XDG_CACHE_HOME", "")
            if not os.path.isabs(home):
                home = os.path.join(os.environ.get("HOME", ""), ".cache")
            top = os.path.join(home, "rewind")
        folder = os.path.join(top, "shaders")
        if not os.path.isabs(top):
            return ""
        before = os.umask(0o077)
        try:
            os.makedirs(folder, exist_ok=True)
            why = not_ours(top) or not_ours(folder)
        except OSError as error:
            why = str(error)
        finally:
            os.umask(before)
        if why:
            print(f"warning: compiled shaders are not kept for other builds: {why}", file=sys.stderr)
        return "" if why else folder

    def path(self, mode, source):
        """Returns the path where the module of this GLSL is, or will be."""
        key = hashlib.sha256(self.version + mode.encode() + b"\n" + source.encode()).hexdigest()
        return os.path.join(self.folder, key + ".spv")

    def has(self, path):
        try:
            os.utime(path)
            return True
        except OSError:
            return False

    def clean(self):
        """Removes modules that were not used for long."""
        for old in glob.glob(os.path.join(self.folder, "*")):
            try:
                if os.stat(old).st_mtime < time.time() - UNUSED_DAYS * 86400:
                    os.remove(old)
            except OSError:
                pass  # another process was faster
