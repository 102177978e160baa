'use strict';
// The view by size: the live tensors, stacked, at each column of pixels.

// Each column of pixels shows the moment of the most live bytes within it, so that no peak is lost.
// Rectangles go on over the columns in which a tensor stays where it is.
function drawStack(chart, context) {
  const {trace, axis, box, view} = chart;
  const columns = Math.ceil(box.right - box.left);
  const perColumn = (view.x1 - view.x0) / columns;
  chart.columnAt = new Float64Array(columns);
  const alive = new Uint8Array(trace.count);  // by rank
  let event = upperBound(axis.events, view.x0);
  for (let e = 0; e < event; ++e) alive[trace.rank[trace.eventTensor[e]]] = trace.eventSign[e] > 0 ? 1 : 0;
  let stack = [];
  for (let rank = 0; rank < trace.count; ++rank) if (alive[rank]) stack.push(rank);
  const spans = new Spans(chart);
  let added = [], changed = true;
  const apply = (until) => {
    for (; event < until; ++event) {
      const rank = trace.rank[trace.eventTensor[event]];
      alive[rank] = trace.eventSign[event] > 0 ? 1 : 0;
      if (alive[rank]) added.push(rank);
      changed = true;
    }
  };
  for (let column = 0; column < columns; ++column) {
    const after = upperBound(axis.events, view.x0 + (column + 1) * perColumn);
    let best = event - 1;
    for (let e = event; e < after; ++e) if (best < 0 || trace.live[e] >= trace.live[best]) best = e;
    apply(best + 1);
    chart.columnAt[column] = best < 0 ? 0 : trace.eventAt[best];
    if (changed) {
      const still = (rank) => alive[rank];
      stack = mergeSorted(stack.filter(still), added.filter(still).sort((a, b) => a - b));
      added = [];
      changed = false;
      spans.show(stack, box.left + column);
    }
    apply(after);
  }
  spans.close(box.left + columns);
  chart.paint(context, spans.buckets);
  for (const one of spans.labels) chart.label(context, ...one);
}

function mergeSorted(a, b) {
  if (!b.length) return a;
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) out.push(j >= b.length || (i < a.length && a[i] < b[j]) ? a[i++] : b[j++]);
  return out;
}

// Rectangles of the stack, each as wide as the columns in which it does not move. Neighbours of one
// colour that are too thin to see are drawn as one.
class Spans {
  constructor(chart) {
    this.chart = chart;
    this.buckets = chart.buckets();
    this.labels = [];
    this.open = new Map();  // tensor -> {x, low, high, lump}
  }

  show(stack, x) {
    const {chart} = this, {trace, view, box} = chart;
    const scale = (box.bottom - box.top) / (view.y1 - view.y0);
    const thin = 1.2 / scale;
    const next = new Map();
    const put = (i, low, high, lump) => {
      if (high < view.y0 || low > view.y1) return;
      const old = this.open.get(i);
      if (old && old.low === low && old.high === high) {
        this.open.delete(i);
        next.set(i, old);
      } else {
        next.set(i, {x, low, high, lump});
      }
    };
    const alike = (a, b) => trace.purpose[a] === trace.purpose[b] && chart.match[a] === chart.match[b];
    let low = 0, lump = -1, lumpLow = 0;
    for (const rank of stack) {
      const i = trace.order[rank], high = low + trace.bytes[i];
      const joins = high - low < thin;
      if (lump >= 0 && (!joins || !alike(lump, i))) {
        put(lump, lumpLow, low, true);
        lump = -1;
      }
      if (!joins) put(i, low, high, false);
      else if (lump < 0) [lump, lumpLow] = [i, low];
      low = high;
    }
    if (lump >= 0) put(lump, lumpLow, low, true);
    this.close(x);
    this.open = next;
  }

  close(x) {
    const {chart} = this;
    for (const [i, span] of this.open) {
      const y = chart.toY(span.high), height = chart.toY(span.low) - y, width = x - span.x;
      chart.put(this.buckets, i, span.x, y, width, height, span.lump ? 1 : undefined);
      if (!span.lump && width > 46 && height > 13) this.labels.push([i, span.x, y, width, height]);
    }
  }
}
