#!/usr/bin/env python3
"""Makes one site of all pages and of the API reference, by MkDocs and its theme Material. It needs no server and no network.
Usage: build.py FOLDER writes FOLDER/site/index.html."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headers
import reference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".sh": "bash", ".comp": "glsl", ".glsl": "glsl"}
FILES = {".svg", ".csv", ".json", ".html", ".png"}  # copied as they are
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def slug(title):
    """Returns the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w-]", "", title.strip().lower().replace(" ", "-"))


class Pages:
    """Copies pages into a folder, with the files to which they link: sources become pages, folders are only named."""

    def __init__(self, folder):
        self.folder, self.done = folder, set()

    def add(self, path):
        if path in self.done:
            return
        self.done.add(path)
        file = ROOT / path
        target = self.folder / self.name(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in FILES:
            shutil.copy(file, target)
        elif file.suffix == ".md":
            target.write_text(self.page(path, file.read_text()))
        elif path in headers.installed(ROOT):
            target.write_text(reference.page(path, file.read_text()))
        else:
            target.write_text(f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n````\n")

    def name(self, path):
        return path if Path(path).suffix in FILES | {".md"} else path + ".md"

    def page(self, path, text):
        parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        for i in range(0, len(parts), 2):  # the others are code
            part = LINK.sub(lambda match: self.link(path, *match.groups()), parts[i])
            parts[i] = re.sub(r"^(#+ )(.*)$", lambda m: f"{m[0]} {{#{slug(m[2])}}}", part, flags=re.M)
        return re.sub(r"([^\n|`-])\n(- |\d+\. )", r"\1\n\n\2", "".join(parts))  # a list may follow a text without a gap

    def link(self, path, label, target, anchor):
        file = ((ROOT / path).parent / target).resolve()
        if "://" in target or not target:
            return f"[{label}]({target}{anchor or ''})"
        if not file.is_file() or not file.is_relative_to(ROOT):
            if not file.is_dir():
                sys.exit(f"{path}: there is no {target}")
            return label
        self.add(file.relative_to(ROOT).as_posix())
        return f"[{label}]({self.name(target)}{anchor or ''})"


def navigation(pages):
    """Returns the sections of docs/README.md, which lists every page by its question; measurements; the reference by folder."""
    text = (ROOT / "docs/README.md").read_text()
    nav, seen = [{"Home": "README.md"}, {"All questions": "docs/README.md"}], set()
    for title, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", text, re.M):
        section = []
        for label, target in re.findall(r"\[([^\]]*)\]\(([^)#]*\.md)\)", body):
            path = (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()
            if path not in seen and not path.startswith("benchmarks/"):
                section.append({label[0].upper() + label[1:]: path})
                seen.add(path)
        nav.append({title: section})
    results = sorted(p for p in pages.done if p.startswith("benchmarks/results/") and p.endswith(".md"))
    nav.append({"Measurements": [{Path(p).stem: p} for p in results]})
    by_folder = {}
    for path in headers.installed(ROOT):
        by_folder.setdefault(path.split("/")[0], []).append({path: pages.name(path)})
    nav.append({"Reference": [{folder: entries} for folder, entries in by_folder.items()]})
    return nav


def settings(folder, nav):
    def palette(scheme, media, icon, other):
        return {"scheme": scheme, "media": f"(prefers-color-scheme: {media})", "primary": "indigo", "accent": "indigo",
                "toggle": {"icon": icon, "name": f"Switch to {other} mode"}}
    return {"site_name": "Rewind", "docs_dir": str(folder / "pages"), "site_dir": str(folder / "site"), "nav": nav,
            "use_directory_urls": False, "strict": True, "plugins": ["search"],
            "markdown_extensions": ["attr_list", "tables", {"toc": {"permalink": True, "toc_depth": 3}}, "pymdownx.superfences",
                                    {"pymdownx.highlight": {"use_pygments": True}}],
            "extra_css": ["site.css"],
            "theme": {"name": "material", "custom_dir": str(HERE / "theme"), "font": False, "language": "en",
                      "features": ["navigation.top"],
                      "palette": [palette("default", "light", "material/weather-night", "dark"),
                                  palette("slate", "dark", "material/weather-sunny", "light")]}}


def main():
    folder = Path(sys.argv[1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(folder / "pages")
    results = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "benchmarks/results").glob("*.md"))
    own = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))
    for path in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *own, *results, *headers.installed(ROOT)]:
        pages.add(path)
    (folder / "mkdocs.yml").write_text(json.dumps(settings(folder, navigation(pages))))  # JSON is YAML
    done = subprocess.run(["mkdocs", "--quiet", "build", "--config-file", folder / "mkdocs.yml"])
    if done.returncode:
        sys.exit("mkdocs failed, or warned of something")
    # A page of a file may read another file only as a script.
    search = folder / "site/search/search_index.json"
    index = json.loads(search.read_text())
    index["docs"] = [d for d in index["docs"] if not d["location"].startswith("benchmarks/results")]
    search.with_suffix(".js").write_text("searchIndex = " + json.dumps(index))
    search.unlink()
    print(folder / "site/index.html")


if __name__ == "__main__":
    main()
