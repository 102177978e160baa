'use strict';
// The decoded trace: which tensors are alive when, on which axis, and where they are drawn. It knows nothing of the page.

// First index in the sorted `list` whose value is greater than `value`.
function upperBound(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The order of the stack, lowest first, among tensors that come and go.
const stackOrder = ['parameters', 'optimizer state', 'data', 'activations', 'gradients', 'workspace'];

class Trace {
  constructor(data) {
    this.data = data;
    this.end = Math.max(data.end, 1);
    this.count = data.tensors.begin.length;
    this.begin = Float64Array.from(data.tensors.begin);
    this.last = Float64Array.from(data.tensors.end, (end) => Math.min(end ?? this.end, this.end));
    this.bytes = Float64Array.from(data.tensors.bytes);
    this.purpose = Uint8Array.from(data.tensors.purpose);
    this.callAt = Float64Array.from(data.calls.at);
    this.placeBlocks();
    this.orderEvents();
    this.orderStack();
    this.findPhases();
    this.axes = this.makeAxes();
  }

  // Blocks lie above each other with a gap between them. The end of a block that no tensor ever
  // touches is cut off where it would take the room of what is used.
  placeBlocks() {
    const {block, offset} = this.data.tensors;
    const used = this.data.block_bytes.map(() => 0);
    for (let i = 0; i < this.count; ++i)
      used[block[i]] = Math.max(used[block[i]] ?? 0, offset[i] + this.bytes[i]);
    const total = used.reduce((a, b) => a + b, 0);
    this.reserved = 0;
    this.blocks = [];
    const start = [];
    let top = 0;
    for (let b = 0; b < used.length; ++b) {
      const bytes = Math.max(this.data.block_bytes[b] ?? 0, used[b] ?? 0);
      if (!bytes) continue;
      this.reserved += bytes;
      if (top > 0) top += total * 0.012;
      start[b] = top;
      const unused = bytes - (used[b] ?? 0);
      const drawn = unused > 0.25 * total && total ? (used[b] ?? 0) + 0.05 * total : bytes;
      this.blocks.push({number: b, start: top, bytes, drawn, unused});
      top += drawn;
    }
    this.addressTop = Math.max(top, 1);
    this.address = Float64Array.from(offset, (o, i) => start[block[i]] + o);
  }

  // Allocations and frees in order, and the live bytes after each.
  orderEvents() {
    const events = [];
    for (let i = 0; i < this.count; ++i) {
      events.push({at: this.begin[i], tensor: i, sign: 1});
      if (this.data.tensors.end[i] !== null) events.push({at: this.last[i], tensor: i, sign: -1});
    }
    events.sort((a, b) => a.at - b.at || a.sign - b.sign);
    this.eventAt = Float64Array.from(events, (e) => e.at);
    this.eventTensor = Int32Array.from(events, (e) => e.tensor);
    this.eventSign = Int8Array.from(events, (e) => e.sign);
    this.live = new Float64Array(events.length);
    this.peak = 0;
    this.peakAt = 0;
    let live = 0;
    for (let e = 0; e < events.length; ++e) {
      live += events[e].sign * this.bytes[events[e].tensor];
      this.live[e] = live;
      if (live > this.peak) [this.peak, this.peakAt] = [live, events[e].at];
    }
  }

  // Tensors that are never freed lie at the bottom, so that they stand still; the others are ordered by
  // purpose, then by allocation. order: rank -> tensor, rank: tensor -> rank.
  orderStack() {
    const place = this.data.purposes.map((name) => stackOrder.indexOf(name));
    const lasts = (i) => this.data.tensors.end[i] === null;
    this.order = Int32Array.from({length: this.count}, (_, i) => i)
      .sort((a, b) => lasts(b) - lasts(a) || place[this.purpose[a]] - place[this.purpose[b]] ||
                      this.begin[a] - this.begin[b] || a - b);
    this.rank = new Int32Array(this.count);
    this.order.forEach((tensor, rank) => { this.rank[tensor] = rank; });
  }

  // Stretches of calls (or, without calls, allocations) of one phase, and of one phase and segment.
  // A call's stretch begins after the call before it: an op allocates, then calls.
  findPhases() {
    const source = this.callAt.length ? this.data.calls : this.data.tensors;
    const at = this.callAt.length ? this.callAt : this.begin;
    this.callFrom = this.callAt.map((_, c) => c ? this.callAt[c - 1] + 1 : 0);
    const runs = (key) => {
      const list = [];
      for (let i = 0; i < at.length; ++i) {
        const run = list.at(-1);
        if (run && key(run.first) === key(i)) continue;
        const begin = this.callAt.length ? this.callFrom[i] : at[i];
        if (run) run.end = begin;
        list.push({phase: source.phase[i], segment: source.segment[i], first: i, begin, end: this.end});
      }
      return list;
    };
    this.phases = runs((i) => source.phase[i]);
    this.segments = runs((i) => `${source.phase[i]} ${source.segment[i]}`).filter((run) => run.segment >= 0);
  }

  makeAxes() {
    const {calls, kernels} = this.data;
    const axes = [new Axis(this, 'events', 'Events', [], [])];
    if (kernels.call.length) {
      const start = [], end = [];
      kernels.call.forEach((call, k) => {
        start[call] = Math.min(start[call] ?? Infinity, kernels.start_us[k]);
        end[call] = Math.max(end[call] ?? 0, kernels.end_us[k]);
      });
      axes.push(new Axis(this, 'device', 'Device time', start, end));
    }
    if (calls.host_us.some((us) => us > 0)) axes.push(new Axis(this, 'host', 'Host time', calls.host_us, []));
    return axes;
  }

  op(i) { return this.data.strings[this.data.tensors.op[i]]; }
  shape(i) { return this.data.strings[this.data.tensors.shape[i]]; }
  dtype(i) { return this.data.dtypes[this.data.tensors.dtype[i]]; }
  purposeName(i) { return this.data.purposes[this.purpose[i]]; }
  phaseName(i) { return this.data.phases[this.data.tensors.phase[i]]; }
  segment(i) { return this.data.tensors.segment[i]; }

  isAlive(i, at) { return this.begin[i] <= at && at < (this.data.tensors.end[i] ?? Infinity); }
  aliveAt(at) {
    const alive = [];
    for (let i = 0; i < this.count; ++i) if (this.isAlive(i, at)) alive.push(i);
    return alive;
  }
  liveAt(at) {
    const event = upperBound(this.eventAt, at) - 1;
    return event < 0 ? 0 : this.live[event];
  }
  bytesByPurpose(at) {
    const sums = new Float64Array(this.data.purposes.length);
    for (const i of this.aliveAt(at)) sums[this.purpose[i]] += this.bytes[i];
    return sums;
  }

  // Bytes below tensor i in the stack.
  heightOf(i, at) {
    let sum = 0;
    for (let r = 0; r < this.rank[i]; ++r) if (this.isAlive(this.order[r], at)) sum += this.bytes[this.order[r]];
    return sum;
  }
  tensorInStack(at, height) {
    for (const i of this.order) {
      if (!this.isAlive(i, at)) continue;
      if (height < this.bytes[i]) return height >= 0 ? i : -1;
      height -= this.bytes[i];
    }
    return -1;
  }
  tensorAtAddress(at, address) {
    for (let i = 0; i < this.count; ++i)
      if (this.isAlive(i, at) && this.address[i] <= address && address < this.address[i] + this.bytes[i]) return i;
    return -1;
  }

  // A function that says which tensors match all words of a query and are of a shown purpose.
  matcher(query, shown) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const match = new Uint8Array(this.count);
    for (let i = 0; i < this.count; ++i) {
      if (!shown[this.purpose[i]]) continue;
      const segment = this.segment(i) < 0 ? '' : `segment:${this.segment(i)}`;
      const text = [this.op(i), this.shape(i), this.dtype(i), this.purposeName(i), this.phaseName(i), segment]
        .join(' ').toLowerCase();
      match[i] = words.every((word) => text.includes(word)) ? 1 : 0;
    }
    return match;
  }
}

// Places events on a line: by position, or in microseconds between the calls around. An event
// after a call lies between its end and the start of the next.
class Axis {
  constructor(trace, id, label, start, end) {
    this.id = id;
    this.label = label;
    this.knotAt = [];
    this.knotX = [];
    const timed = [];
    for (let c = 0; c < start.length; ++c) if (start[c] !== undefined) timed.push(c);
    let x = 0;
    timed.forEach((c, k) => {
      const at = trace.callAt[c], next = timed[k + 1];
      x = Math.max(x, start[c]);
      this.knotAt.push(at);
      this.knotX.push(x);
      if (end[c] === undefined || (next !== undefined && trace.callAt[next] <= at + 1)) return;
      x = Math.max(x, Math.min(end[c], start[next] ?? Infinity));
      this.knotAt.push(at + 1);
      this.knotX.push(x);
    });
    if (timed.length && !end.length) {  // the last call has no end: as long as they are on average
      this.knotAt.push(Math.max(trace.end, this.knotAt.at(-1) + 1));
      this.knotX.push(x + ((x - this.knotX[0]) / Math.max(timed.length - 1, 1) || 1));
    }
    const place = (at) => this.place(at);
    this.begin = trace.begin.map(place);
    this.last = trace.last.map(place);
    this.events = trace.eventAt.map(place);
    // Without the device's times, a call takes up the room since the one before it.
    this.calls = trace.callFrom.map((from, c) => end[c] === undefined ? this.place(from) : start[c]);
    this.callEnds = trace.callAt.map((at, c) => end[c] ?? this.place(at + 1));
    this.left = this.knotX.length ? this.knotX[0] : 0;
    this.right = Math.max(this.place(trace.end), this.left + 1e-3);
  }

  place(at) {
    if (!this.knotAt.length) return at;
    const next = upperBound(this.knotAt, at);
    if (next === 0) return this.knotX[0];
    if (next === this.knotAt.length) return this.knotX[next - 1];
    const share = (at - this.knotAt[next - 1]) / (this.knotAt[next] - this.knotAt[next - 1]);
    return this.knotX[next - 1] + share * (this.knotX[next] - this.knotX[next - 1]);
  }

  // `span`: how much is in view, which says how many digits tell neighbours apart.
  format(x, span = this.right - this.left) {
    if (this.id === 'events') return Math.round(x).toLocaleString('en');
    const whole = this.right - this.left;
    const [scale, unit] = whole >= 1e7 ? [1e6, 's'] : whole >= 1e4 ? [1e3, 'ms'] : [1, 'µs'];
    const digits = Math.min(Math.max(Math.ceil(2 - Math.log10(span / scale)), 0), 6);
    return `${(x / scale).toFixed(digits)} ${unit}`;
  }
}

function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit === 0 ? `${bytes} B` : `${bytes.toFixed(2)} ${units[unit]}`;
}

function formatFlops(flops) {
  const units = ['', ' K', ' M', ' G', ' T'];
  let unit = 0;
  for (; flops >= 1000 && unit < 4; ++unit) flops /= 1000;
  return `${flops.toFixed(unit ? 2 : 0)}${units[unit]}FLOP`.replace(/(\d)FLOP/, '$1 FLOP');
}
