#!/usr/bin/env python3
"""Makes the folder <rewind/...> of a build: for each installed header, one that includes it where it lies. So a program
beside the sources needs one -I, sees nothing else of the tree, and reads the names of real files in messages.
Usage: stage_headers.py FOLDER ROOT HEADER..."""

import shutil
import sys
from pathlib import Path

folder, root = Path(sys.argv[1]), Path(sys.argv[2])
shutil.rmtree(folder / "rewind", ignore_errors=True)  # removes those of headers that are gone
for header in sys.argv[3:]:
    staged = folder / "rewind" / header
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_text(f'#include "{(root / header).as_posix()}"\n')
