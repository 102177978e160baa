#!/usr/bin/env python3
"""Opens the timeline page in headless Chromium and uses it: both views and axes, pointer, filter, zoom.

Usage: check_timeline.py TIMELINE_PAGE [SCREENSHOT_FOLDER]. Skipped (77) where there is no Chromium.
"""

import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

NO_ERROR = '<div id="error" role="alert" hidden="">'
BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]

# The actions of a visitor. Each `say` ends up in the dumped DOM.
VISIT = """
<script>
const notes = document.body.appendChild(document.createElement('pre'));
notes.id = 'notes';
const say = (key, value) => { notes.textContent += `${key}=${value}\\n`; };
const canvas = document.getElementById('overlay');
const at = (type, x, y, more = {}) => {
  const box = canvas.getBoundingClientRect();
  const kind = type === 'wheel' ? WheelEvent : PointerEvent;
  canvas.dispatchEvent(new kind(type, {clientX: box.left + x, clientY: box.top + y, bubbles: true, ...more}));
};
canvas.setPointerCapture = () => {};  // made-up pointers cannot be captured
const press = (text) => [...document.querySelectorAll('button')].find((b) => b.textContent === text).click();
const frame = () => new Promise((done) => setTimeout(done, 60));
(async () => {
  await frame();
  const x = (chart.box.left + chart.box.right) / 2;
  for (const [view, i] of [['By size', 0], ['By address', 0]]) {
    press(view);
    await frame();
    const moment = chart.momentAt(x), alive = trace.aliveAt(moment)[i];
    const [high, low] = chart.yRange(alive, moment);
    at('pointermove', x, (high + low) / 2);
    say(view, `${hovered === alive} ${tip.textContent}`);
  }
  at('pointerdown', x, 100); at('pointerup', x, 100);
  press('Device time');
  await frame();
  say('axis', document.getElementById('status').textContent);
  const span = () => chart.view.x1 - chart.view.x0;
  const full = span();
  at('wheel', x, 100, {deltaY: -100});
  say('zoomed', span() < full);
  press('Whole trace');
  say('whole', span() === full);
  press('Go to peak');
  const query = document.getElementById('query');
  query.value = 'RELU f16';
  query.dispatchEvent(new Event('input'));
  say('matches', document.getElementById('matches').textContent);
  document.querySelector('#rows tr').click();
  say('pinned', document.getElementById('pinned').textContent);
  await frame();
  say('hash', location.hash);
  say('done', true);
})().catch((error) => say('failed', error));
</script>
"""


def browse(browser, work, page, *flags, size="1200,900"):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--user-data-dir={work}/profile", f"--window-size={size}",
               "--virtual-time-budget=8000", *flags, page]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                          timeout=120).stdout.decode()


def pixels(png):
    """Returns the rows of bytes and the bytes per pixel of an 8-bit PNG that is not interlaced."""
    at, packed = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and color in (2, 6)
            step = 3 if color == 2 else 4
        packed += body if kind == b"IDAT" else b""
        at += size + 12
    raw, stride, before, rows = zlib.decompress(packed), width * step, bytearray(width * step), []
    for y in range(height):
        method, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride if method else 0):
            left, up, corner = (row[i - step], before[i], before[i - step]) if i >= step else (0, before[i], 0)
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda value: abs(guess - value))
            row[i] = (row[i] + (0, left, up, (left + up) // 2, paeth)[method]) & 255
        rows.append(row)
        before = row
    return rows, step


def colors_of(png):
    """Counts the pixels of a screenshot by color."""
    rows, step = pixels(png.read_bytes())
    counts = {}
    for row in rows:
        for i in range(0, len(row), step):
            color = bytes(row[i:i + 3])
            counts[color] = counts.get(color, 0) + 1
    return counts


def check_screenshots(browser, work, page, shots):
    for view, scheme, setting in ("size", "light", 1), ("address", "dark", 0):
        shot = shots / f"timeline-{view}.png"
        browse(browser, work, f"{page}#view={view}", f"--screenshot={shot}",
               f"--blink-settings=preferredColorScheme={setting}")
        counts = colors_of(shot)
        total = sum(counts.values())
        common = [color for color, count in counts.items() if count > total / 500]
        assert len(common) >= 8, f"{shot.name}: only {len(common)} colors"
        background = max(counts, key=counts.get)
        assert (sum(background) < 200) == (scheme == "dark"), f"{shot.name}: not {scheme}"


def main():
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("skipped: no Chromium here")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        page = work / "page.html"
        subprocess.run([sys.argv[1], page], check=True)
        assert not re.search(r'(src|href)\s*=\s*"', page.read_text()), "the page needs other files"

        dom = browse(browser, work, page.as_uri(), "--dump-dom")
        assert NO_ERROR in dom, "the page reports an error"
        assert re.search(r"<title>Memory timeline: peak [\d.]+ MiB</title>", dom)
        table = dom[dom.index('id="rows"'):dom.index('id="rest"')]
        assert table.count("<tr") == 20 and "activations" in table, "no table of the peak"

        visited = work / "visited.html"
        visited.write_text(page.read_text().replace("</body>", VISIT + "</body>"))
        dom = browse(browser, work, visited.as_uri(), "--dump-dom")
        notes = dict(line.split("=", 1) for line in
                     re.search(r'<pre id="notes">(.*?)</pre>', dom, re.S)[1].splitlines())
        print("\n".join(f"{key}: {value}" for key, value in notes.items()))
        assert NO_ERROR in dom, "an interaction failed"
        assert notes["done"] == "true"
        assert notes["By size"].startswith("true ") and notes["By address"].startswith("true ")
        assert notes["zoomed"] == notes["whole"] == "true"
        assert " tensors, " in notes["matches"] and "view=address" in notes["hash"]
        assert "relu" in notes["pinned"]

        for layers in "0", "1000":  # an empty trace, and a large one
            other = work / f"{layers}.html"
            subprocess.run([sys.argv[1], other, layers], check=True)
            dom = browse(browser, work, other.as_uri() + "#view=address", "--dump-dom")
            assert "<title>Memory timeline: peak" in dom, "a trace broke the page"
            assert NO_ERROR in dom, "a trace broke the page"

        shots = Path(sys.argv[2]) if len(sys.argv) > 2 else work
        check_screenshots(browser, work, page.as_uri(), shots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
