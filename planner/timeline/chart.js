'use strict';
// Draws a Trace on canvases. View coordinates: x on the axis, y in bytes, upwards.

const margin = {left: 88, right: 14, top: 22};
const strip = {phases: 18, segments: 16, calls: 20, gap: 2, labels: 24};
const shades = 3;  // of each purpose, so that neighbours differ

const parts = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
function mix(hex, other, share) {
  const b = parts(other);
  return '#' + parts(hex).map((a, k) => Math.round(a * (1 - share) + b[k] * share).toString(16).padStart(2, '0')).join('');
}
// Black or white, whichever reads better on a colour.
function inkOn(hex) {
  const [r, g, b] = parts(hex).map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.24 ? '#10151d' : '#ffffff';
}

// Steps of 1, 2, 5 (times a power of `base`) that give at most `most` ticks.
function ticks(low, high, most, base) {
  const wanted = (high - low) / most;
  const scale = base ** Math.floor(Math.log(wanted) / Math.log(base));
  const steps = base === 10 ? [1, 2, 5, 10] : Array.from({length: 11}, (_, k) => 2 ** k);
  const step = steps.map((s) => s * scale).find((s) => s >= wanted) ?? wanted;
  const list = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) list.push(tick);
  return list;
}

class Chart {
  constructor(trace, base, overview) {
    this.trace = trace;
    this.base = base;
    this.overview = overview;
    this.kind = 'size';
    this.axis = trace.axes[0];
    this.match = new Uint8Array(trace.count).fill(1);
    this.readColors();
    this.reset();
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    this.color = (name) => style.getPropertyValue('--' + name.replace(' ', '-')).trim();
    this.purposes = this.trace.data.purposes.map(this.color);
    const plot = this.color('plot');
    const bright = this.purposes.flatMap((hex) => [0, 0.09, 0.18].map((share) => mix(hex, plot, share)));
    const dim = this.purposes.flatMap((hex) => [0, 0.02, 0.04].map((share) => mix(hex, plot, 0.82 + share)));
    this.fills = bright.concat(dim);
    this.inks = this.purposes.map(inkOn);
    this.font = getComputedStyle(document.body).fontFamily;
  }

  get fullHeight() {
    const {peak, reserved, addressTop, data} = this.trace;
    if (this.kind === 'address') return addressTop;
    let top = Math.max(peak, 1);
    if (reserved <= 1.6 * peak) top = Math.max(top, reserved);
    if (data.limit <= 1.6 * peak) top = Math.max(top, data.limit);
    return top * 1.06;
  }
  reset() {
    this.view = {x0: this.axis.left, x1: this.axis.right, y0: 0, y1: this.fullHeight};
  }
  setAxis(axis) {
    this.axis = axis;
    [this.view.x0, this.view.x1] = [axis.left, axis.right];
  }
  setKind(kind) {
    this.kind = kind;
    [this.view.y0, this.view.y1] = [0, this.fullHeight];
  }

  // Sizes a canvas for the screen's pixels and returns its context in CSS pixels.
  prepare(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const {width, height} = canvas.getBoundingClientRect();
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio))
      [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `12px ${this.font}`;
    context.textBaseline = 'middle';
    return {context, width, height};
  }
  layout(width, height) {
    const segments = this.trace.segments.length ? strip.segments + strip.gap : 0;
    const below = 2 * strip.gap + strip.phases + segments + strip.gap + strip.calls + strip.labels;
    this.box = {left: margin.left, right: width - margin.right, top: margin.top, bottom: height - below};
    this.phaseTop = this.box.bottom + 2 * strip.gap;
    this.segmentTop = this.phaseTop + strip.phases + strip.gap;
    this.callTop = this.segmentTop + segments;
    this.stripsEnd = this.callTop + strip.calls;
  }
  toX(x) { return this.box.left + (x - this.view.x0) / (this.view.x1 - this.view.x0) * (this.box.right - this.box.left); }
  toY(y) { return this.box.bottom - (y - this.view.y0) / (this.view.y1 - this.view.y0) * (this.box.bottom - this.box.top); }
  fromX(px) { return this.view.x0 + (px - this.box.left) / (this.box.right - this.box.left) * (this.view.x1 - this.view.x0); }
  fromY(py) { return this.view.y0 + (this.box.bottom - py) / (this.box.bottom - this.box.top) * (this.view.y1 - this.view.y0); }

  draw() {
    const {context, width, height} = this.prepare(this.base);
    this.layout(width, height);
    const {left, right, top, bottom} = this.box;
    context.fillStyle = this.color('plot');
    context.fillRect(left, top, right - left, bottom - top);
    this.drawGrid(context);
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    if (this.kind === 'size') drawStack(this, context);
    else this.drawAddresses(context);
    context.restore();
    this.drawStrips(context);
    this.drawMarks(context);
    this.drawOverview();
  }

  drawGrid(context) {
    const {left, right, top, bottom} = this.box;
    context.strokeStyle = this.color('grid');
    context.fillStyle = this.color('soft');
    context.lineWidth = 1;
    context.textAlign = 'right';
    const lines = this.kind === 'size' ? ticks(this.view.y0, this.view.y1, 8, 1024) : [];
    for (const y of lines) {
      const py = Math.round(this.toY(y)) + 0.5;
      context.beginPath();
      context.moveTo(left, py);
      context.lineTo(right, py);
      context.stroke();
      context.fillText(y ? formatBytes(y).replace('.00', '') : '0', left - 8, py);
    }
    context.textAlign = 'center';
    const span = this.view.x1 - this.view.x0;
    const most = Math.min(Math.max((right - left) / 130, 2), this.axis.id === 'events' ? Math.max(Math.floor(span), 1) : 100);
    for (const x of ticks(this.view.x0, this.view.x1, most, 10)) {
      const px = Math.round(this.toX(x)) + 0.5;
      context.beginPath();
      context.moveTo(px, top);
      context.lineTo(px, bottom);
      context.stroke();
      context.fillText(this.axis.format(x, span), Math.min(px, right - 20), this.stripsEnd + 14);
    }
  }

  // Neighbours in the stack differ in shade.
  fillFor(i, shade = this.trace.rank[i] % shades) {
    return this.trace.purpose[i] * shades + shade + (this.match[i] ? 0 : this.fills.length / 2);
  }
  // Lists of x, y, width, height, one per colour: setting colours is what takes time.
  buckets() { return this.fills.map(() => []); }
  paint(context, buckets) {
    buckets.forEach((list, index) => {
      context.fillStyle = this.fills[index];
      for (let k = 0; k < list.length; k += 4) context.fillRect(list[k], list[k + 1], list[k + 2], list[k + 3]);
    });
  }
  // A rectangle; where there is room, with a line of background to its neighbours.
  put(buckets, i, x, y, width, height, shade) {
    const line = height > 10 ? 1 : height > 4 ? 0.5 : 0;
    buckets[this.fillFor(i, shade)].push(x, y, Math.max(width > 4 ? width - 1 : width, 0.6), Math.max(height - line, 0.4));
  }

  label(context, i, x, y, width, height) {
    if (width < 46 || height < 13 || !this.match[i]) return;
    const text = `${this.trace.op(i)}  ${formatBytes(this.trace.bytes[i])}`;
    context.save();
    context.beginPath();
    context.rect(x, y, width - 3, height);
    context.clip();
    context.fillStyle = this.inks[this.trace.purpose[i]];
    context.textAlign = 'left';
    context.fillText(text, Math.max(x, this.box.left) + 5, y + Math.min(height / 2, 60));
    context.restore();
  }

  drawAddresses(context) {
    const {trace, axis, box, view} = this;
    context.fillStyle = this.color('hole');
    for (const block of trace.blocks) {
      const y = this.toY(block.start + block.drawn);
      context.fillRect(box.left, y, box.right - box.left, this.toY(block.start) - y);
    }
    const buckets = this.buckets(), labels = [];
    const count = upperBound(axis.begin, view.x1);
    for (let i = 0; i < count; ++i) {
      if (axis.last[i] < view.x0 || trace.address[i] > view.y1 || trace.address[i] + trace.bytes[i] < view.y0) continue;
      const x = Math.max(this.toX(axis.begin[i]), box.left), y = this.toY(trace.address[i] + trace.bytes[i]);
      const width = Math.min(this.toX(axis.last[i]), box.right) - x, height = this.toY(trace.address[i]) - y;
      this.put(buckets, i, x, y, width, height);
      if (width > 46 && height > 13) labels.push([i, x, y, width, height]);
    }
    this.paint(context, buckets);
    for (const one of labels) this.label(context, ...one);
  }

  // Phases, segments and calls under the plot.
  drawStrips(context) {
    const {trace, axis, box, view} = this, {calls, phases, strings} = trace.data;
    const colors = phases.map(this.color);
    context.save();
    context.beginPath();
    context.rect(box.left, this.phaseTop, box.right - box.left, this.stripsEnd - this.phaseTop);
    context.clip();
    for (const run of trace.phases)
      this.bar(context, axis.place(run.begin), axis.place(run.end), this.phaseTop, strip.phases, colors[run.phase], [phases[run.phase]]);
    for (const run of trace.segments)
      this.bar(context, axis.place(run.begin), axis.place(run.end), this.segmentTop, strip.segments, colors[run.phase],
               [`segment ${run.segment}`, `${run.segment}`]);
    for (let c = 0; c < axis.calls.length; ++c)
      if (axis.callEnds[c] >= view.x0 && axis.calls[c] <= view.x1)
        this.bar(context, axis.calls[c], axis.callEnds[c], this.callTop, strip.calls, colors[calls.phase[c]], [strings[calls.op[c]]]);
    context.restore();
    context.fillStyle = this.color('soft');
    context.textAlign = 'right';
    context.fillText('phase', box.left - 8, this.phaseTop + strip.phases / 2);
    if (trace.segments.length) context.fillText('segment', box.left - 8, this.segmentTop + strip.segments / 2);
    context.fillText('ops', box.left - 8, this.callTop + strip.calls / 2);
  }

  // A bar of a strip with the first of `captions` that fits.
  bar(context, begin, end, y, height, color, captions) {
    const x0 = this.toX(begin), x1 = this.toX(end);
    if (x1 < this.box.left || x0 > this.box.right) return;
    context.fillStyle = color;
    context.fillRect(x0, y, Math.max(x1 - x0 > 3 ? x1 - x0 - 1 : x1 - x0, 0.7), height);
    const left = Math.max(x0, this.box.left), room = Math.min(x1, this.box.right) - left - 8;
    const caption = room > 6 && captions.find((text) => context.measureText(text).width <= room);
    if (!caption) return;
    context.fillStyle = this.color('text');
    context.textAlign = 'left';
    context.fillText(caption, left + 4, y + height / 2 + 0.5);
  }

  drawMarks(context) {
    const {trace, axis, box} = this;
    const inside = (px) => px >= box.left - 1 && px <= box.right + 1;
    context.lineWidth = 1;
    context.setLineDash([2, 3]);
    context.strokeStyle = context.fillStyle = this.color('faint');
    context.textAlign = 'right';
    const peakX = Math.round(this.toX(axis.place(trace.peakAt))) + 0.5;
    let labelled = box.left;
    trace.data.steps.forEach((at, step) => {
      const px = Math.round(this.toX(axis.place(at))) + 0.5;
      if (!inside(px)) return;
      this.line(context, px, box.top, px, this.stripsEnd);
      if (px - labelled > 74 && Math.abs(px - 40 - peakX) > 100) {  // room for it, and for the peak's
        context.fillText(`step ${step + 1} ends`, px - 4, box.top - 10);
        labelled = px;
      }
    });
    context.setLineDash([]);
    if (this.kind === 'size') {
      this.level(context, trace.reserved, `reserved ${formatBytes(trace.reserved)}`, this.color('soft'), [1, 3]);
      if (trace.data.limit) this.level(context, trace.data.limit, `limit ${formatBytes(trace.data.limit)}`, this.color('alarm'), [6, 3]);
    } else {
      this.drawBlockNames(context);
    }
    if (trace.peak && inside(peakX)) this.drawPeak(context, peakX);
  }

  drawPeak(context, px) {
    const {trace, box} = this;
    context.strokeStyle = this.color('strong');
    this.line(context, px, box.top - 4, px, box.bottom);
    const caption = `peak ${formatBytes(trace.peak)}`;
    context.font = `600 12px ${this.font}`;
    const width = context.measureText(caption).width;
    const x = Math.min(Math.max(px - width / 2, box.left), box.right - width);
    context.fillStyle = this.color('card');
    context.fillRect(x - 4, box.top - 20, width + 8, 17);
    context.fillStyle = this.color('strong');
    context.textAlign = 'left';
    context.fillText(caption, x, box.top - 11);
    context.font = `12px ${this.font}`;
  }

  line(context, x0, y0, x1, y1) {
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }

  // A horizontal line at `bytes`, or its name with an arrow where that lies above the view.
  level(context, bytes, caption, color, dash) {
    const {left, right, top, bottom} = this.box;
    const py = Math.round(this.toY(bytes)) + 0.5;
    if (!bytes || py > bottom) return;
    context.strokeStyle = context.fillStyle = color;
    context.textAlign = 'right';
    const above = py < top;
    if (!above) {
      context.setLineDash(dash);
      this.line(context, left, py, right, py);
      context.setLineDash([]);
    }
    if (above && caption.startsWith('reserved')) return;
    const text = above ? caption + ' ↑' : caption;
    const width = context.measureText(text).width, y = above ? top + 10 : py - 9;
    context.fillStyle = this.color('plot');
    context.fillRect(right - width - 10, y - 8, width + 8, 15);
    context.fillStyle = color;
    context.fillText(text, right - 6, y);
  }

  drawBlockNames(context) {
    const {left, right, top, bottom} = this.box;
    for (const block of this.trace.blocks) {
      const end = this.toY(block.start + block.drawn);
      const y0 = Math.max(end, top), y1 = Math.min(this.toY(block.start), bottom);
      if (y1 - y0 < 14) continue;
      const middle = (y0 + y1) / 2;
      context.fillStyle = this.color('soft');
      context.textAlign = 'right';
      context.fillText(`block ${block.number}`, left - 8, y1 - y0 < 30 ? middle : middle - 8);
      if (y1 - y0 >= 30) context.fillText(formatBytes(block.bytes), left - 8, middle + 8);
      if (block.drawn === block.bytes || end < top) continue;
      context.strokeStyle = this.color('faint');
      context.setLineDash([8, 5]);
      this.line(context, left, end + 0.5, right, end + 0.5);
      context.setLineDash([]);
      context.fillText(`${formatBytes(block.unused)} never used (cut off here)`, right - 6, end + 10);
    }
  }

  // The live curve of the whole trace with the part in view.
  drawOverview() {
    const {context, width, height} = this.prepare(this.overview);
    const {trace, axis, view} = this;
    const left = margin.left, right = width - margin.right, columns = Math.ceil(right - left);
    const toX = (x) => left + (x - axis.left) / (axis.right - axis.left) * (right - left);
    context.fillStyle = this.color('hole');
    let event = 0, live = 0;
    for (let column = 0; column < columns; ++column) {
      const edge = axis.left + (column + 1) / columns * (axis.right - axis.left);
      let most = live;
      for (; event < axis.events.length && axis.events[event] <= edge; ++event)
        most = Math.max(most, live = trace.live[event]);
      const tall = most / Math.max(trace.peak, 1) * (height - 4);
      const x = axis.left + (column + 0.5) / columns * (axis.right - axis.left);
      context.fillStyle = this.color(x >= view.x0 && x <= view.x1 ? 'accent' : 'line');
      context.globalAlpha = x >= view.x0 && x <= view.x1 ? 0.55 : 1;
      context.fillRect(left + column, height - tall, 1, tall);
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.color('accent');
    const x0 = Math.round(Math.max(toX(view.x0), left)) + 0.5, x1 = Math.round(Math.min(toX(view.x1), right)) - 0.5;
    context.strokeRect(x0, 0.5, Math.max(x1 - x0, 2), height - 1);
    context.fillStyle = this.color('soft');
    context.textAlign = 'right';
    context.fillText('live', left - 8, height / 2);
  }

  // Where a tensor is drawn at the moment `at`: its y range.
  yRange(i, at) {
    const low = this.kind === 'size' ? this.trace.heightOf(i, at) : this.trace.address[i];
    return [this.toY(low + this.trace.bytes[i]), this.toY(low)];
  }
  // The moment shown at a pixel column: the size view shows each column's highest.
  momentAt(px) {
    if (this.kind === 'size') {
      const column = Math.floor(px - this.box.left);
      return this.columnAt[Math.min(Math.max(column, 0), this.columnAt.length - 1)];
    }
    const event = upperBound(this.axis.events, this.fromX(px)) - 1;
    return event < 0 ? 0 : this.trace.eventAt[event];
  }
  tensorAt(px, py) {
    const {left, right, top, bottom} = this.box;
    if (px < left || px > right || py < top || py > bottom) return -1;
    const at = this.momentAt(px), y = this.fromY(py);
    return this.kind === 'size' ? this.trace.tensorInStack(at, y) : this.trace.tensorAtAddress(at, y);
  }
  // The call whose bar is under a pixel, or -1.
  callAt(px, py) {
    if (py < this.callTop || py > this.stripsEnd || px < this.box.left || px > this.box.right) return -1;
    const x = this.fromX(px), call = upperBound(this.axis.calls, x) - 1;
    return call >= 0 && x <= this.axis.callEnds[call] ? call : -1;
  }
}
