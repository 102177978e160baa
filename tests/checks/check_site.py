#!/usr/bin/env python3
"""Makes the site of docs/site and checks it: there is no broken link and nothing from the network; in headless Chromium no page
has a script error or is wider than a phone, the search works, and both light and dark do.

Usage: check_site.py ROOT [SCREENSHOT_FOLDER]. Skipped (77) where there is no MkDocs with Material, or no Chromium."""

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.dont_write_bytecode = True
from check_timeline import BROWSERS, browse, colors_of  # noqa: E402

MATERIAL = Path("/usr/share/mkdocs/themes/material")

# Every page reports this about itself, when it has loaded, to the page that shows it.
WITNESS = """
;(() => {
  const errors = [];
  window.addEventListener('error', (event) => errors.push(event.message || event.target.src || event.target.href), true);
  window.addEventListener('unhandledrejection', (event) => errors.push(`${event.reason}`));
  let waits = location.search ? 100 : 0;
  const tell = () => {
    const found = document.querySelectorAll('.md-search-result__item').length;
    if (!found && waits-- > 0) return setTimeout(tell, 100);
    parent.postMessage({wide: document.documentElement.scrollWidth - innerWidth, errors, found}, '*');
  };
  window.addEventListener('load', () => setTimeout(tell, 20));
})();
"""

VISITOR = """<!doctype html><iframe id="phone" width="375" height="700"></iframe><pre id="notes"></pre>
<script>
const pages = PAGES, notes = {}, phone = document.getElementById('phone');
let at = 0;
addEventListener('message', ({data}) => { notes[pages[at]] = data; at += 1; go(); });
const go = () => {
  if (at < pages.length) phone.src = pages[at];
  else document.getElementById('notes').textContent = btoa(JSON.stringify(notes));
};
go();
</script>
"""


# This page has one fault of each kind, which must be found.
PLANTED = """<a href="nowhere.html">a</a><a href="index.html#nowhere">b</a><img src="https://example.org/c.png" hidden>
<form name="search"></form><input id="__search"><div style="width: 400px">d</div><script src="search.js"></script>
<script>missing();</script>"""
FAULTS = ["planted.html: nowhere.html leads nowhere", "planted.html: index.html#nowhere leads nowhere",
          "planted.html: loads https://example.org/c.png", "planted.html: 33 pixels too wide",
          "planted.html: Uncaught ReferenceError: missing is not defined"]


class Page(HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links, self.loads = {""}, [], []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name")}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "src" in values or tag == "link" and values.get("rel") != "canonical":
            self.loads.append(values.get("src") or values["href"])


def broken_links(site):
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        if file.name == "404.html":  # its links are for a server's root
            continue
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads:
                    found.append(f"{file}: loads {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            is_anchor = target.suffix == ".html" and target in pages
            if not target.is_file() or is_anchor and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{file}: {link} leads nowhere")
    return [line.replace(f"{site}/", "") for line in found]


def what_pages_say(browser, work, site):
    """Returns, by page, the report of a browser of a phone's width; one more visit searches."""
    script = site / "search.js"
    script.write_text(script.read_text() + WITNESS)
    pages = [file.relative_to(site).as_posix() for file in sorted(site.rglob("*.html"))
             if "search.js" in file.read_text() and file.name != "404.html"]
    visitor = site / "visitor.html"
    visitor.write_text(VISITOR.replace("PAGES", json.dumps([*pages, "index.html?q=budget"])))
    dom = browse(browser, work, visitor.as_uri(), "--dump-dom", "--virtual-time-budget=600000")
    notes = re.search(r'<pre id="notes">([\w+/=]+)</pre>', dom)
    assert notes, "the browser did not come to the last page"
    return json.loads(base64.b64decode(notes[1]))


def main():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or shutil.which("mkdocs") is None or not MATERIAL.is_dir():
        print("skipped: the site needs mkdocs, mkdocs-material and chromium")
        return 77
    root = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder).resolve()
        subprocess.run([sys.executable, root / "docs/site/build.py", work / "docs"], check=True, stdout=subprocess.DEVNULL)
        site = work / "docs/site"
        (site / "planted.html").write_text(PLANTED)
        wrong = broken_links(site)
        wrong += [f"{file.relative_to(site)}: an escape of Markdown's is left over" for file in site.rglob("*.html")
                  if "\x02" in file.read_text()]
        notes = what_pages_say(browser, work, site)
        assert notes["index.html?q=budget"]["found"] > 3, "the search finds nothing"
        notes["index.html?q=budget"]["wide"] = 0  # a layer over the page does not scroll it
        wrong += [f"{page}: {note['wide']} pixels too wide" for page, note in notes.items() if note["wide"] > 0]
        wrong += [f"{page}: {error}" for page, note in notes.items() for error in note["errors"]]
        assert set(FAULTS) <= set(wrong), f"of planted faults only these are seen: {wrong}"
        wrong = [line for line in wrong if not line.startswith("planted.html:")]
        assert not wrong, "\n".join(wrong)
        shots = Path(sys.argv[2]) if len(sys.argv) > 2 else work
        for scheme, setting in ("light", 1), ("dark", 0):
            shot = shots / f"site-{scheme}.png"
            (work / scheme).mkdir()
            browse(browser, work / scheme, (site / "index.html").as_uri(), f"--screenshot={shot}",
                   f"--blink-settings=preferredColorScheme={setting}", size="500,600")
            counts = colors_of(shot)
            assert (sum(max(counts, key=counts.get)) < 300) == (scheme == "dark"), f"{shot.name} is not {scheme}"
        print(f"{len(notes)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
