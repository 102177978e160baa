"""Runs the array API standard's tests of rewind.array_api, and counts those that pass.

    python3 array_api.py SUITE

SUITE is a clone of github.com/data-apis/array-api-tests (tag 2026.02.26) with its submodule. Left out are linalg, fft and
the tables of special cases. Needs the packages pytest, pytest-json-report, hypothesis and ndindex.
"""
import os
import re
import subprocess
import sys

BAR = 150  # so many tests must pass

# The suite takes a name float64 for granted, even where it is skipped.
VARIABLES = {
    "ARRAY_API_TESTS_SKIP_DTYPES": "int8,int16,int64,uint16,uint32,uint64,float64,complex64,complex128",
    "ARRAY_API_TESTS_MODULE": "exec('import rewind.array_api as xp; xp.float64 = xp.dtype(\"float64\", None, \"real floating\")')",
}


def main():
    tests = ["array_api_tests", "-k", "not linalg and not fft", "--ignore", "array_api_tests/test_special_cases.py"]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--max-examples", "20",
                           "--hypothesis-seed", "0", *tests],
                          cwd=sys.argv[1], env={**os.environ, **VARIABLES}, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    failed, passed = (int(found[1]) if (found := re.search(rf"(\d+) {word}", last)) else 0 for word in ("failed", "passed"))
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("FAILED")))
    print(f"{passed} of {passed + failed} tests pass" if passed else done.stdout[-3000:] + done.stderr[-3000:])
    return 0 if passed >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
