'use strict';
// The page: controls, pointer, tooltip and table around a Chart.

const byId = (id) => document.getElementById(id);
// An element with properties and children. Names from the trace only ever become text.
function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
const swatch = (color) => { const i = element('i', {}); i.style.background = color; return i; };

const trace = new Trace(JSON.parse(byId('trace').textContent));
const chart = new Chart(trace, byId('base'), byId('overview'));
const overlay = byId('overlay'), tip = byId('tip');
const shown = trace.data.purposes.map(() => true);
let pinned = -1, hovered = -1, pointer = null, drag = null, queued = false;

// ---- drawing

function redraw() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; chart.draw(); drawOverlay(); remember(); });
}

function drawOverlay() {
  const {context} = chart.prepare(overlay);
  const {left, right, top, bottom} = chart.box;
  const inPlot = pointer && pointer.x >= left && pointer.x <= right && !drag;
  if (inPlot) {
    context.strokeStyle = chart.color('faint');
    chart.line(context, Math.round(pointer.x) + 0.5, top, Math.round(pointer.x) + 0.5, chart.stripsEnd);
  }
  context.save();
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
  if (pinned >= 0) outline(context, pinned, 2);
  if (hovered >= 0 && hovered !== pinned) outline(context, hovered, 1.5);
  context.restore();
  byId('status').textContent = inPlot ? momentText(pointer.x) : hint;
}
const hint = 'Wheel: zoom time (with Shift: bytes) · drag: pan · click: pin a tensor · double click: whole trace · ' +
             'keys: arrows, + − 0, Esc';

// The outline of a tensor; in the stack it follows the tensor's movements.
function outline(context, i, width) {
  const {axis, view, box} = chart;
  const x0 = Math.max(chart.toX(axis.begin[i]), box.left), x1 = Math.min(chart.toX(axis.last[i]), box.right);
  context.strokeStyle = chart.color('strong');
  context.lineWidth = width;
  if (x1 < box.left || x0 > box.right) return;
  context.beginPath();
  if (chart.kind === 'address') {
    const [high, low] = chart.yRange(i, 0);
    context.rect(x0, high, Math.max(x1 - x0, 1), low - high);
  } else {
    const step = Math.max((x1 - x0) / 300, 1), tops = [];
    for (let x = x0; x < x1; x += step) {
      const at = chart.momentAt(x);
      if (trace.isAlive(i, at)) tops.push([x, Math.min(x + step, x1), ...chart.yRange(i, at)]);
    }
    if (!tops.length) return;
    context.moveTo(tops[0][0], tops[0][3]);
    for (const [a, b, high] of tops) { context.lineTo(a, high); context.lineTo(b, high); }
    for (const [a, b, , low] of tops.reverse()) { context.lineTo(b, low); context.lineTo(a, low); }
    context.closePath();
  }
  context.stroke();
}

function momentText(px) {
  const at = chart.momentAt(px), x = chart.fromX(px);
  const now = (run) => run.begin <= at && at < run.end;
  const run = trace.phases.find(now), segment = trace.segments.find(now);
  const parts = [chart.axis.id === 'events' ? `event ${chart.axis.format(x)}` : chart.axis.format(x, chart.view.x1 - chart.view.x0),
                 `${formatBytes(trace.liveAt(at))} live`];
  if (run) parts.push(trace.data.phases[run.phase] + (segment ? `, segment ${segment.segment}` : ''));
  const call = upperBound(chart.axis.calls, x) - 1;
  if (call >= 0) parts.push(`op ${trace.data.strings[trace.data.calls.op[call]]}`);
  return parts.join(' · ');
}

// ---- tooltip, pinned tensor, table

function facts(list) {
  const box = element('dl', {className: 'facts'});
  for (const [key, value] of list)
    if (value !== null) box.append(element('dt', {textContent: key}), element('dd', {textContent: value}));
  return box;
}
const named = (text, color) => element('div', {className: 'name'}, swatch(color), text);

function timeText(at) {
  const texts = trace.axes.map((axis) => axis.id === 'events' ? `event ${axis.format(at)}` : null);
  if (chart.axis.id !== 'events') texts.push(chart.axis.format(chart.axis.place(at)));
  return texts.filter(Boolean).join(', ');
}

function describeTensor(i) {
  const {block, offset, end} = trace.data.tensors;
  return [
    named(trace.op(i), chart.purposes[trace.purpose[i]]),
    facts([
      ['tensor', `${trace.dtype(i)} ${trace.shape(i)}`],
      ['size', `${formatBytes(trace.bytes[i])} (${trace.bytes[i].toLocaleString('en')} B)`],
      ['purpose', trace.purposeName(i)],
      ['phase', trace.phaseName(i)],
      ['segment', trace.segment(i) < 0 ? null : `${trace.segment(i)}`],
      ['allocated', trace.begin[i] === 0 ? 'before the trace' : timeText(trace.begin[i])],
      ['freed', end[i] === null ? 'not while traced' : timeText(trace.last[i])],
      ['place', `block ${block[i]}, offset ${offset[i].toLocaleString('en')}`],
    ])];
}

function describeCall(c) {
  const {op, kernel, phase, segment, flops, bytes} = trace.data.calls;
  const device = trace.axes.find((axis) => axis.id === 'device');
  const us = device && device.callEnds[c] - device.calls[c];
  return [
    named(trace.data.strings[op[c]], chart.color(trace.data.phases[phase[c]])),
    facts([
      ['kernel', trace.data.strings[kernel[c]]],
      ['phase', trace.data.phases[phase[c]]],
      ['segment', segment[c] < 0 ? null : `${segment[c]}`],
      ['work', flops[c] ? formatFlops(flops[c]) : null],
      ['buffers', formatBytes(bytes[c])],
      ['ran for', us > 0 ? `${us.toFixed(1)} µs` : null],
      ['rate', us > 0 && flops[c] ? `${formatFlops(flops[c] / us * 1e6)}/s` : null],
    ])];
}

function hover() {
  const call = pointer && !drag ? chart.callAt(pointer.x, pointer.y) : -1;
  hovered = pointer && !drag ? chart.tensorAt(pointer.x, pointer.y) : -1;
  tip.hidden = call < 0 && hovered < 0;
  if (!tip.hidden) {
    tip.replaceChildren(...(call >= 0 ? describeCall(call) : describeTensor(hovered)));
    const {width, height} = overlay.getBoundingClientRect();
    const right = pointer.x + 16 + tip.offsetWidth > width;
    tip.style.left = `${right ? Math.max(pointer.x - 16 - tip.offsetWidth, 0) : pointer.x + 16}px`;
    tip.style.top = `${Math.max(Math.min(pointer.y + 16, height - tip.offsetHeight), 0)}px`;
  }
  drawOverlay();
}

function pin(i) {
  pinned = i;
  const box = byId('pinned');
  if (i < 0) {
    box.replaceChildren(element('h2', {textContent: 'Pinned tensor'}),
                        element('p', {textContent: 'Click a tensor in the chart or a row of the table.'}));
  } else {
    box.replaceChildren(element('button', {type: 'button', textContent: 'Unpin', onclick: () => pin(-1)}),
                        element('h2', {textContent: 'Pinned tensor'}), ...describeTensor(i));
  }
  for (const row of byId('rows').children) row.classList.toggle('pinned', Number(row.dataset.tensor) === i);
  drawOverlay();
}

function fillTable() {
  const most = 20;
  const alive = trace.aliveAt(trace.peakAt).sort((a, b) => trace.bytes[b] - trace.bytes[a] || a - b);
  byId('table-title').textContent = alive.length
    ? `Alive at the peak: ${formatBytes(trace.peak)} in ${alive.length.toLocaleString('en')} tensors`
    : 'Nothing was alive';
  const rows = alive.slice(0, most).map((i) => {
    const color = `var(--${trace.purposeName(i).replace(' ', '-')})`;
    const bar = element('div', {title: `${(100 * trace.bytes[i] / trace.peak).toFixed(1)} % of the peak`});
    bar.style.width = `${100 * trace.bytes[i] / trace.bytes[alive[0]]}%`;
    bar.style.background = color;
    const life = trace.data.tensors.end[i] === null ? '∞' : trace.last[i].toLocaleString('en');
    const row = element('tr', {tabIndex: 0, onclick: () => { pin(i); show(i); }},
      element('td', {textContent: trace.op(i), title: trace.op(i)}),
      element('td', {textContent: `${trace.dtype(i)} ${trace.shape(i)}`}),
      element('td', {}, swatch(color), trace.purposeName(i)),
      element('td', {textContent: trace.phaseName(i) + (trace.segment(i) < 0 ? '' : ` · ${trace.segment(i)}`)}),
      element('td', {className: 'number', textContent: `${trace.begin[i].toLocaleString('en')} – ${life}`}),
      element('td', {className: 'number', textContent: formatBytes(trace.bytes[i])}),
      element('td', {className: 'share'}, bar));
    row.dataset.tensor = i;
    return row;
  });
  byId('rows').replaceChildren(...rows);
  const rest = alive.slice(most);
  const bytes = rest.reduce((sum, i) => sum + trace.bytes[i], 0);
  byId('rest').textContent = rest.length ? `and ${rest.length.toLocaleString('en')} smaller ones, ${formatBytes(bytes)} together` : '';
}

// ---- moving about

function setX(x0, x1) {
  const {left, right} = chart.axis, span = Math.min(x1 - x0, right - left);
  x0 = Math.min(Math.max(x0, left), right - span);
  [chart.view.x0, chart.view.x1] = [x0, x0 + span];
  redraw();
}
function setY(y0, y1) {
  const top = chart.fullHeight, span = Math.min(y1 - y0, top);
  y0 = Math.min(Math.max(y0, 0), top - span);
  [chart.view.y0, chart.view.y1] = [y0, y0 + span];
  redraw();
}
function zoomX(factor, px) {
  const {x0, x1} = chart.view, x = chart.fromX(px);
  const least = (chart.axis.right - chart.axis.left) * 1e-6;
  if ((x1 - x0) * factor > least) setX(x - (x - x0) * factor, x + (x1 - x) * factor);
}
function zoomY(factor, py) {
  const {y0, y1} = chart.view, y = chart.fromY(py);
  if ((y1 - y0) * factor > 256) setY(y - (y - y0) * factor, y + (y1 - y) * factor);
}
// Brings a tensor's life into view where it is not.
function show(i) {
  const {axis, view} = chart, begin = axis.begin[i], last = axis.last[i];
  if (last < view.x0 || begin > view.x1) {
    const span = Math.max(view.x1 - view.x0, (last - begin) * 1.2);
    setX((begin + last - span) / 2, (begin + last + span) / 2);
  }
}
function showPeak() {
  const span = (chart.axis.right - chart.axis.left) / 12, x = chart.axis.place(trace.peakAt);
  setX(x - span / 2, x + span / 2);
}
function reset() {
  chart.reset();
  redraw();
}

const place = (event) => {
  const box = overlay.getBoundingClientRect();
  return {x: event.clientX - box.left, y: event.clientY - box.top};
};
overlay.addEventListener('pointerdown', (event) => {
  overlay.setPointerCapture(event.pointerId);
  drag = {...place(event), view: {...chart.view}, moved: false};
});
overlay.addEventListener('pointermove', (event) => {
  pointer = place(event);
  if (drag) {
    const dx = pointer.x - drag.x, dy = pointer.y - drag.y;
    drag.moved ||= Math.hypot(dx, dy) > 4;
    if (!drag.moved) return;
    overlay.classList.add('dragging');
    const {x0, x1, y0, y1} = drag.view, {left, right, top, bottom} = chart.box;
    const shiftX = dx * (x1 - x0) / (right - left), shiftY = dy * (y1 - y0) / (bottom - top);
    setX(x0 - shiftX, x1 - shiftX);
    setY(y0 + shiftY, y1 + shiftY);
  }
  hover();
});
overlay.addEventListener('pointerup', () => {
  const click = drag && !drag.moved;
  drag = null;
  overlay.classList.remove('dragging');
  hover();
  if (click) pin(hovered);
});
overlay.addEventListener('pointercancel', () => { drag = null; });
overlay.addEventListener('pointerleave', () => { pointer = null; if (!drag) hover(); });
overlay.addEventListener('dblclick', reset);
overlay.addEventListener('wheel', (event) => {
  event.preventDefault();
  const {x, y} = place(event);
  const delta = event.deltaY || event.deltaX, factor = Math.exp(Math.max(-60, Math.min(60, delta)) * 0.006);
  if (event.shiftKey) zoomY(factor, y);
  else zoomX(factor, x);
}, {passive: false});
overlay.addEventListener('keydown', (event) => {
  const {x0, x1} = chart.view, {left, right} = chart.box, middle = (left + right) / 2;
  const actions = {
    ArrowLeft: () => setX(x0 - (x1 - x0) * 0.15, x1 - (x1 - x0) * 0.15),
    ArrowRight: () => setX(x0 + (x1 - x0) * 0.15, x1 + (x1 - x0) * 0.15),
    '+': () => zoomX(0.7, pointer?.x ?? middle), '-': () => zoomX(1 / 0.7, pointer?.x ?? middle),
    '0': reset, Escape: () => pin(-1),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
});
function scrub(event) {
  if (!event.buttons) return;
  const box = byId('overview').getBoundingClientRect();
  const share = (event.clientX - box.left - margin.left) / (box.width - margin.left - margin.right);
  const {left, right} = chart.axis, x = left + share * (right - left), half = (chart.view.x1 - chart.view.x0) / 2;
  setX(x - half, x + half);
}
byId('overview').addEventListener('pointerdown', (event) => { event.target.setPointerCapture(event.pointerId); scrub(event); });
byId('overview').addEventListener('pointermove', scrub);

// ---- controls

// Buttons of which one is pressed.
function choice(box, options, current, choose) {
  const buttons = options.map(([value, label]) => element('button', {
    type: 'button', textContent: label, onclick: () => { press(value); choose(value); }}));
  const press = (value) => buttons.forEach((b, k) => b.setAttribute('aria-pressed', options[k][0] === value));
  box.replaceChildren(...buttons);
  press(current);
}

function filter() {
  const query = byId('query').value;
  chart.match = trace.matcher(query, shown);
  const all = query.trim() === '' && shown.every(Boolean);
  let count = 0, atPeak = 0;
  for (let i = 0; i < trace.count; ++i) {
    if (!chart.match[i]) continue;
    ++count;
    if (trace.isAlive(i, trace.peakAt)) atPeak += trace.bytes[i];
  }
  byId('matches').textContent = all ? '' : `${count.toLocaleString('en')} tensors, ${formatBytes(atPeak)} at peak`;
  redraw();
}

function fillLegend() {
  const sums = trace.bytesByPurpose(trace.peakAt);
  byId('legend').replaceChildren(...trace.data.purposes.map((name, p) => {
    const button = element('button', {type: 'button', title: `Show or dim ${name}`}, swatch(chart.purposes[p]),
      name, element('b', {textContent: formatBytes(sums[p])}),
      element('span', {textContent: trace.peak ? `${(100 * sums[p] / trace.peak).toFixed(0)} %` : ''}));
    button.setAttribute('aria-pressed', shown[p]);
    button.onclick = () => { shown[p] = !shown[p]; button.setAttribute('aria-pressed', shown[p]); filter(); };
    return button;
  }));
  byId('phases').replaceChildren(
    ...trace.data.phases.map((name) => element('span', {}, swatch(chart.color(name)), name)));
}

function fillFigures() {
  const {data} = trace;
  const list = [['Peak live', formatBytes(trace.peak), ''],
                ['Reserved', formatBytes(trace.reserved), trace.peak ? `${(100 * trace.peak / trace.reserved).toFixed(1)} % used at peak` : '']];
  if (data.limit) list.push(['Limit', formatBytes(data.limit), `${(100 * trace.peak / data.limit).toFixed(0)} % used`]);
  list.push(['Tensors', trace.count.toLocaleString('en'), ''],
            ['Kernel calls', data.calls.at.length.toLocaleString('en'), ''], ['Steps', `${data.steps.length}`, '']);
  byId('figures').replaceChildren(...list.map(([key, value, note]) =>
    element('div', {}, element('dt', {textContent: key}), element('dd', {textContent: value + ' '}, element('small', {textContent: note})))));
  byId('device').textContent = data.device;
  document.title = `Memory timeline: peak ${formatBytes(trace.peak)}`;
}

// The address keeps view, axis, filter and pinned tensor, so that a reload or a link shows the same.
function remember() {
  const state = new URLSearchParams({view: chart.kind, axis: chart.axis.id});
  if (byId('query').value) state.set('filter', byId('query').value);
  const {x0, x1} = chart.view, {left, right} = chart.axis;
  if (x1 - x0 < right - left) state.set('from', x0.toPrecision(8)), state.set('to', x1.toPrecision(8));
  history.replaceState(null, '', '#' + state);
}
function restore() {
  const state = new URLSearchParams(location.hash.slice(1));
  if (state.get('view') === 'address') chart.setKind('address');
  const axis = trace.axes.find((a) => a.id === state.get('axis'));
  if (axis) chart.setAxis(axis);
  byId('query').value = state.get('filter') ?? '';
  if (state.has('from')) setX(Number(state.get('from')), Number(state.get('to')));
}

restore();
choice(byId('views'), [['size', 'By size'], ['address', 'By address']], chart.kind,
       (kind) => { chart.setKind(kind); redraw(); });
choice(byId('axes'), trace.axes.map((axis) => [axis.id, axis.label]), chart.axis.id,
       (id) => { chart.setAxis(trace.axes.find((axis) => axis.id === id)); redraw(); });
byId('query').addEventListener('input', filter);
byId('to-peak').onclick = showPeak;
byId('reset').onclick = reset;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { chart.readColors(); fillLegend(); redraw(); });
new ResizeObserver(redraw).observe(byId('plot'));
chart.draw();
fillFigures();
fillLegend();
fillTable();
pin(-1);
filter();
