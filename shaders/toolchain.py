"""The shader compiler (compiler.cpp) as a process, and the modules that it made before: ccache for shaders.

Modules are kept by what they are made of, in $REWIND_CACHE, or rewind/ in $XDG_CACHE_HOME or ~/.cache, so that a build
in another folder finds them; where there is no such folder, beside the build's own files.
"""
import functools
import glob
import hashlib
import os
import re
import subprocess
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


class CompileError(RuntimeError):
    pass


class Compiler:
    def __init__(self, program):
        self.program = program
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.version = done.stdout

    def run(self, jobs):
        """Jobs are (mode, input, output), as compiler.cpp says."""
        lines = "".join(" ".join(job) + "\n" for job in jobs)
        done = subprocess.run([self.program], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(done.stdout + done.stderr)

    @functools.lru_cache(maxsize=None)
    def is_native(self, brain):
        """Whether glslang knows the KHR form of cooperative matrices, with factors of bf16 if `brain`."""
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
        """Whether SPIRV-Tools know that form: 2023.1, which Debian 12 has, does not."""
        version = re.search(r"SPIRV-Tools v(\d+)\.(\d+)", self.version)
        return bool(version) and tuple(map(int, version.groups())) >= ((2025, 2) if brain else (2024, 1))


class Cache:
    def __init__(self, compiler, fallback):
        """`fallback`: the folder where nobody has one."""
        here = os.path.dirname(os.path.abspath(__file__))
        self.version = compiler.version.encode()
        for path in [os.path.join(here, "cooperative.py"), os.path.join(here, "spirv.py")]:
            with open(path, "rb") as f:
                self.version += f.read()
        self.folder = self.choose() or fallback
        os.makedirs(self.folder, exist_ok=True)

    @staticmethod
    def choose():
        if os.environ.get("REWIND_CACHE"):
            return os.path.join(os.path.abspath(os.environ["REWIND_CACHE"]), "shaders")
        home = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(home):
            home = os.path.join(os.environ.get("HOME", ""), ".cache")
        return os.path.join(home, "rewind", "shaders") if os.path.isabs(home) else ""

    def path(self, mode, source):
        """Where the module of this GLSL is, or will be."""
        key = hashlib.sha256(self.version + mode.encode() + b"\n" + source.encode()).hexdigest()
        return os.path.join(self.folder, key + ".spv")

    def has(self, path):
        try:
            os.utime(path)
            return True
        except OSError:
            return False

    def clean(self):
        """What was not used for long goes."""
        for old in glob.glob(os.path.join(self.folder, "*")):
            try:
                if os.stat(old).st_mtime < time.time() - UNUSED_DAYS * 86400:
                    os.remove(old)
            except OSError:
                pass  # another process was faster
