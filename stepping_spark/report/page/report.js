"use strict";
// The page of a report. It shows all texts with textContent, so no text is parsed as HTML.
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("numbers").textContent);
let other = JSON.parse($("beside").textContent);
const SVG = "http://www.w3.org/2000/svg";

// -- making elements

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

// -- numbers for readers

const whole = new Intl.NumberFormat("en");
function num(v) {
  if (v === null || v === undefined) return "–";
  const a = Math.abs(v);
  if (a >= 100 || Number.isInteger(v)) return whole.format(Math.round(v));
  return String(Number(v.toPrecision(a >= 10 ? 3 : 2)));
}
const plural = (n, what) => `${num(n)} ${what}${n === 1 ? "" : "s"}`;
const vertices = (n) => `${num(n)} ${n === 1 ? "vertex" : "vertices"}`;
// A path may break after a dot or an underscore.
const broken = (path) => path.split(/(?<=[._])/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
function ms(v) {
  if (v === null || v === undefined) return "–";
  return v >= 10000 ? `${num(v / 1000)} s` : `${num(v)} ms`;
}
function bytes(v) {
  if (v === null || v === undefined) return "–";
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (v >= 1000 && i < units.length - 1) { v /= 1000; i++; }
  return `${num(v)} ${units[i]}`;
}
const sum = (values) => values.reduce((a, b) => (a === null || b === null ? null : a + b), 0);
function quantile(values, q) {
  const known = values.filter((v) => v !== null).sort((a, b) => a - b);
  return known.length ? known[Math.max(0, Math.ceil(known.length * q) - 1)] : null;
}

// -- the numbers of this run, or of another one

class Run {
  constructor(numbers) {
    this.n = numbers;
    this.vertices = new Map(numbers.vertices.map((v) => [v.path, v]));
    this.count = numbers.steps.step.length;
    this.skip = numbers.first_load === null ? 0 : 1;
  }
  slice(kind, scope) {
    const all = this.n.steps[kind];
    return scope === "first" ? all.slice(0, this.skip) : all.slice(this.skip);
  }
  steps(scope) { return scope === "first" ? this.skip : this.count - this.skip; }
  changed(scope) { return sum(this.slice("rows_in", scope)); }
  stats(path, scope) {
    const m = this.n.measured[path];
    return m ? (scope === "first" ? m.first : m.after) : null;
  }
  host(path) {
    const m = this.n.measured[path], v = this.vertices.get(path);
    return m && m.within.length ? m.within[0][0] : (v && v.within) || null;
  }
  size(path) {
    const v = this.vertices.get(path);
    const sizes = (v ? v.registers : []).map((i) => this.n.registers[i].size);
    return sizes.length && sizes.every(Boolean) ? sizes.reduce((a, x) => a + x.nbytes, 0) : null;
  }
}
const METRICS = {
  ms: { label: "Milliseconds", head: "ms a step", shown: ms, shared: true,
    of: (run, p, scope) => { const x = run.stats(p, scope); return x && x.timed ? x.ms / run.steps(scope) : null; } },
  rows: { label: "Rows read", head: "rows read a step", shown: num,
    of: (run, p, scope) => { const x = run.stats(p, scope); return x && x.counted ? x.rows_in / x.counted : null; } },
  amp: { label: "Amplification", head: "rows read per row changed", shown: (v) => (v === null ? "–" : `${num(v)} ×`),
    of: (run, p, scope) => {
      const x = run.stats(p, scope), changed = run.changed(scope);
      return x && x.counted && x.counted === x.steps && changed ? x.rows_in / changed : null;
    } },
  jobs: { label: "Jobs", head: "Spark jobs a step", shown: num, shared: true,
    of: (run, p, scope) => { const x = run.stats(p, scope); return x && x.timed && x.jobs !== null ? x.jobs / run.steps(scope) : null; } },
  bytes: { label: "State", head: "bytes of state now", shown: bytes, of: (run, p) => run.size(p) },
};

const run = new Run(data);
let metric = "ms", scope = run.steps("after") > 0 || !run.skip ? "after" : "first";
let level = data.pictures.length ? data.pictures.length - 1 : -1, chosen = null;
const value = (path, of = metric, at = scope) => METRICS[of].of(run, path, at);
// A vertex without milliseconds ran together with another vertex, whose milliseconds count.
function worth(path) {
  const own = value(path);
  if (own !== null || !METRICS[metric].shared) return { value: own, shared: false };
  const host = run.host(path);
  return host ? { value: value(host), shared: true } : { value: null, shared: false };
}
function together(paths) {
  const own = paths.map((p) => value(p)).filter((v) => v !== null);
  if (own.length) return { value: own.reduce((a, b) => a + b, 0), shared: false };
  return paths.length ? worth(paths[0]) : { value: null, shared: false };
}

// -- the top of the page

function theme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  $("theme").textContent = dark ? "Light" : "Dark";
}
const prefers = matchMedia("(prefers-color-scheme: dark)");
theme(prefers.matches);
prefers.addEventListener("change", (e) => theme(e.matches));
$("theme").addEventListener("click", () => theme(!document.documentElement.classList.contains("dark")));

for (const f of data.in_full) $("notes").append(h("p", { class: "note" }, `${f.path} is ${f.why}.`));
for (const text of data.hints) $("notes").append(h("p", { class: "note" }, `Hint: ${text}.`));
for (const text of data.missing) $("notes").append(h("p", { class: "note plain" }, text));
$("made").textContent = `Written ${data.made.at} by stepping_spark ${data.made.stepping_spark}, Python ${data.made.python}, ${data.made.cores} cores, ${data.made.store}.`;
$("save").addEventListener("click", () => {
  const url = URL.createObjectURL(new Blob([JSON.stringify(data)], { type: "application/json" }));
  h("a", { href: url, download: `${data.name}.json` }).click();
  URL.revokeObjectURL(url);
});

// -- the picture

const canvas = $("canvas");
let view = { k: 1, x: 0, y: 0 }, drawing = null;

function choices(at, name, options, now, changed) {
  for (const [key, label, disabled] of options) {
    const input = h("input", { type: "radio", name, value: key, disabled, on: { change: () => changed(key) } });
    input.checked = key === now;
    at.append(h("label", {}, input, h("span", {}, label)));
  }
}
function place() { drawing.all.setAttribute("transform", `translate(${view.x.toFixed(1)} ${view.y.toFixed(1)}) scale(${view.k.toFixed(4)})`); }
function zoom(by, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  if (!drawing) return;
  const k = Math.min(6, Math.max(0.05, view.k * by)), f = k / view.k;
  view = { k, x: x - (x - view.x) * f, y: y - (y - view.y) * f };
  place();
}
// Shows the whole circuit, enlarged at most `most` times.
function fit(most) {
  if (!drawing) return;
  const k = Math.min(canvas.clientWidth / drawing.width, canvas.clientHeight / drawing.height, most);
  view = { k, x: (canvas.clientWidth - drawing.width * k) / 2, y: (canvas.clientHeight - drawing.height * k) / 2 };
  place();
}
const isInside = (scope, frame) => frame.every((name, i) => scope[i] === name);

function draw() {
  canvas.replaceChildren();
  if (level < 0) {
    canvas.append(h("p", { class: "empty", style: "padding: 1rem" }, "There is no picture; the tables below have all vertices."));
    return;
  }
  const told = data.pictures[level];
  const source = $("pictures").querySelectorAll("template.picture")[level];
  const svg = source.content.firstElementChild.cloneNode(true);
  canvas.append(svg);
  drawing = {
    told, svg, all: svg.querySelector("g.all"), width: +svg.dataset.width, height: +svg.dataset.height,
    boxes: [...svg.querySelectorAll(".box")], frames: [...svg.querySelectorAll(".frame")],
    arrows: [...svg.querySelectorAll(".arrow")], folded: new Set(),
  };
  drawing.boxes.forEach((g) => {
    const box = told.boxes[+g.dataset.box];
    const open = () => choose(box);
    g.addEventListener("click", () => { if (!dragged) open(); });
    g.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(); $("panel").focus({ preventScroll: true }); } });
  });
  drawing.frames.forEach(foldable);
  fit(1.15);
  colour();
}
function foldable(g) {
  const frame = drawing.told.frames[+g.dataset.frame], text = g.querySelector("text"), around = g.querySelector("polygon").getBBox();
  const button = s("g", { class: "fold", tabindex: 0, role: "button", "aria-expanded": "true", "aria-label": `Fold ${frame.scope.join(" ")}` });
  const title = s("text", { x: around.x + 8, y: around.y + 15 }, `▾ ${text.textContent}`);
  text.replaceWith(button);
  button.append(s("rect", { x: around.x, y: around.y, width: Math.max(60, around.width / 2), height: 20 }), title);
  const toggle = () => fold(g, !drawing.folded.has(g));
  button.addEventListener("click", () => { if (!dragged) toggle(); });
  button.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); toggle(); } });
}
function fold(g, on) {
  const frame = drawing.told.frames[+g.dataset.frame], button = g.querySelector(".fold");
  if (on) drawing.folded.add(g); else drawing.folded.delete(g);
  g.classList.toggle("folded", on);
  button.setAttribute("aria-expanded", String(!on));
  const title = button.querySelector("text");
  title.textContent = `${on ? "▸" : "▾"} ${frame.scope[frame.scope.length - 1]}`;
  layer();
  colour();
  if (document.activeElement !== button && on === false) return;
  button.focus({ preventScroll: true });
}
// Draws a folded frame above its contents, and ends arrows into it at its border.
function layer() {
  const folded = [...drawing.folded].map((g) => drawing.told.frames[+g.dataset.frame].scope);
  const hides = (scope, frame) => isInside(scope, frame);
  const of = (g) => drawing.told.boxes[+g.dataset.box].scope;
  const hidden = (scope) => folded.some((f) => hides(scope, f));
  for (const g of drawing.boxes) g.classList.toggle("gone", hidden(of(g)));
  for (const g of drawing.frames) {
    const own = drawing.told.frames[+g.dataset.frame].scope;
    g.classList.toggle("gone", folded.some((f) => f.length < own.length && hides(own, f)));
  }
  for (const g of drawing.arrows) {
    const ends = [g.dataset.from, g.dataset.to].map((i) => drawing.told.boxes[+i].scope);
    g.classList.toggle("gone", folded.some((f) => ends.every((end) => hides(end, f))));
  }
  const parent = drawing.frames.length ? drawing.frames[0].parentNode : null;
  if (!parent) return;
  const shown = drawing.frames.filter((g) => !drawing.folded.has(g));
  for (const g of [...shown].reverse()) parent.prepend(g);
  for (const g of drawing.folded) parent.append(g);
}
function framePaths(g) {
  const frame = drawing.told.frames[+g.dataset.frame].scope;
  return drawing.told.boxes.filter((b) => isInside(b.scope, frame)).flatMap((b) => b.paths);
}

const label = (g) => drawing.told.frames[+g.dataset.frame].scope.join(" › ");

function colour() {
  if (!drawing) return;
  const found = drawing.boxes.map((g) => { const b = drawing.told.boxes[+g.dataset.box]; return b.kind === "output" ? { value: null } : together(b.paths); });
  const frames = [...drawing.folded].map((g) => [g, together(framePaths(g))]);
  const most = Math.max(0, ...[...found, ...frames.map((f) => f[1])].map((f) => f.value || 0));
  const t = (v) => (most > 0 ? Math.log1p((v / most) * 99) / Math.log(100) : 0);
  drawing.boxes.forEach((g, i) => {
    const { value: v, shared } = found[i];
    g.classList.toggle("heat", v !== null);
    g.classList.toggle("shared", Boolean(shared) && v !== null);
    g.classList.toggle("chosen", chosen !== null && drawing.told.boxes[+g.dataset.box] === chosen);
    if (v !== null) g.style.setProperty("--t", t(v).toFixed(3));
  });
  for (const g of drawing.frames) g.querySelectorAll(".folded-text").forEach((e) => e.remove());
  for (const [g, f] of frames) {
    const around = g.querySelector("polygon").getBBox(), x = around.x + around.width / 2, y = around.y + around.height / 2;
    const said = `${label(g)}: ${vertices(new Set(framePaths(g)).size)} · ${METRICS[metric].shown(f.value)}`, half = said.length * 3.4 + 14;
    const pill = s("g", { class: "folded-text", style: `--t: ${t(f.value || 0).toFixed(3)}` },
      s("rect", { x: x - half, y: y - 15, width: 2 * half, height: 30, rx: 15 }), s("text", { x, y: y + 4 }, said));
    pill.addEventListener("click", () => { if (!dragged) several({ label: label(g) }, [...new Set(framePaths(g))].filter((p) => run.vertices.has(p))); });
    g.append(pill);
  }
  legend(most);
  const m = METRICS[metric];
  $("circuit-lead").textContent = metric === "bytes" ? "Colour shows how large the state of a vertex is now."
    : `Colour shows ${m.head}, ${scope === "first" ? "in the first load" : run.skip ? `mean of the ${plural(run.steps("after"), "step")} after the first load` : `mean of ${plural(run.steps("after"), "step")}`}.`;
}
function legend(most) {
  const m = METRICS[metric];
  $("legend").replaceChildren(
    most > 0 ? h("span", { class: "scale" }, m.shown(0), h("span", { class: "ramp" }), m.shown(most), " (logarithmic)") : h("span", {}, `No ${m.label.toLowerCase()} to show.`),
    h("span", {}, h("span", { class: "swatch" }), "not measured"),
    m.shared ? h("span", {}, h("span", { class: "swatch dashed" }), "computed with another vertex, whose colour it has") : null);
}

// Moving and zooming.
let dragged = false, pointers = new Map(), pinch = null;
canvas.addEventListener("wheel", (e) => {
  e.preventDefault();
  const r = canvas.getBoundingClientRect();
  zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.clientX - r.left, e.clientY - r.top);
}, { passive: false });
canvas.addEventListener("pointerdown", (e) => { if (e.button) return; dragged = false; pointers.set(e.pointerId, [e.clientX, e.clientY]); pinch = null; });
window.addEventListener("pointermove", (e) => {
  const at = pointers.get(e.pointerId);
  if (!at || !drawing) return;
  const dx = e.clientX - at[0], dy = e.clientY - at[1];
  if (pointers.size === 1 && !dragged && Math.hypot(dx, dy) < 4) return;
  dragged = true;
  canvas.classList.add("dragging");
  pointers.set(e.pointerId, [e.clientX, e.clientY]);
  if (pointers.size === 1) { view.x += dx; view.y += dy; place(); return; }
  const [a, b] = [...pointers.values()], far = Math.hypot(a[0] - b[0], a[1] - b[1]), r = canvas.getBoundingClientRect();
  if (pinch) zoom(far / pinch, (a[0] + b[0]) / 2 - r.left, (a[1] + b[1]) / 2 - r.top);
  pinch = far;
});
const up = (e) => { pointers.delete(e.pointerId); pinch = null; canvas.classList.remove("dragging"); };
window.addEventListener("pointerup", up);
window.addEventListener("pointercancel", up);
canvas.addEventListener("keydown", (e) => {
  const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  if (e.ctrlKey || e.metaKey || e.altKey || !drawing) return;
  if (moves[e.key]) { view.x += moves[e.key][0]; view.y += moves[e.key][1]; place(); }
  else if (e.key === "+" || e.key === "=") zoom(1.25);
  else if (e.key === "-") zoom(0.8);
  else if (e.key === "0") fit(2);
  else return;
  e.preventDefault();
});
// Scrolls to the element that gets the keyboard focus.
canvas.addEventListener("focusin", (e) => {
  const g = e.target.closest(".box, .fold");
  canvas.scrollLeft = canvas.scrollTop = 0;
  if (!g || !g.matches(":focus-visible")) return;
  const b = g.getBoundingClientRect(), r = canvas.getBoundingClientRect(), pad = 24;
  if (b.left < r.left || b.right > r.right) view.x += r.left + r.width / 2 - (b.left + b.width / 2);
  if (b.top < r.top || b.bottom > r.bottom) view.y += r.top + pad * 2 - b.top;
  place();
});
canvas.addEventListener("scroll", () => { canvas.scrollLeft = canvas.scrollTop = 0; });
$("zoom-in").addEventListener("click", () => zoom(1.3));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
$("zoom-fit").addEventListener("click", () => fit(2));
function detail(to) {
  level = to;
  chosen = null;
  $("detail").value = String(level);
  draw();
  welcome();
}

// -- the panel of a vertex

function choose(box) {
  chosen = box;
  colour();
  const paths = box.paths.filter((p) => run.vertices.has(p));
  const panel = $("panel");
  panel.replaceChildren();
  if (paths.length === 1 || (paths.length && box.kind !== "function")) vertex(paths[0], paths.slice(1));
  else several(box, paths);
  panel.scrollTop = 0;
  if (matchMedia("(max-width: 900px)").matches) panel.scrollIntoView({ block: "start" });
}
function show(path) {
  const box = drawing && drawing.told.boxes.find((b) => b.kind !== "output" && b.paths[0] === path);
  if (box) return choose(box);
  chosen = null;
  colour();
  $("panel").replaceChildren();
  vertex(path, []);
}
const link = (path, text) => h("button", { type: "button", class: "link", on: { click: () => { show(path); if (!inView($("panel"))) $("circuit").scrollIntoView(); } } }, broken(text || path));
const inView = (e) => { const r = e.getBoundingClientRect(); return r.top >= 0 && r.top < innerHeight - 80; };
function close() {
  const back = drawing && drawing.boxes.find((g) => drawing.told.boxes[+g.dataset.box] === chosen);
  chosen = null;
  colour();
  welcome();
  if (back) back.focus({ preventScroll: true }); else canvas.focus({ preventScroll: true });
}
$("panel").addEventListener("keydown", (e) => { if (e.key === "Escape") close(); });
const closer = () => h("button", { type: "button", class: "quiet close", "aria-label": "Close", on: { click: close } }, "✕");
function several(box, paths) {
  $("panel").replaceChildren();
  const rows = paths.map((p) => [p, value(p)]).sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1));
  const all = together(paths);
  $("panel").append(closer(), h("p", { class: "path" }, box.label),
    h("p", { class: "kind" }, `${vertices(paths.length)}, together ${METRICS[metric].shown(all.value)} (${METRICS[metric].head})`),
    h("ul", { class: "list" }, rows.map(([p, v]) => h("li", {}, h("button", { type: "button", on: { click: () => { $("panel").replaceChildren(); vertex(p, []); } } }, h("span", {}, broken(p)), h("span", {}, v === null ? "" : METRICS[metric].shown(v)))))));
}
function vertex(path, also) {
  const v = run.vertices.get(path), m = data.measured[path], panel = $("panel");
  const full = data.in_full.some((f) => f.path === path), host = run.host(path);
  panel.append(closer(), h("p", { class: "path" }, broken(path)), h("p", { class: "kind" }, `${v.operator}: ${v.type}`),
    h("div", { class: "source" }, h("span", { class: "where" }, v.where), h("code", { class: "block" }, v.code || "(the line is not there to be read)")));
  const facts = [];
  const fact = (name, ...what) => facts.push(h("dt", {}, name), h("dd", {}, ...what));
  if (v.how) fact("Takes a step", full ? h("span", { class: "full" }, v.how) : v.how);
  if (m && m.where.length) for (const [how, n, why] of m.where) fact("Ran", `${WHERE[how] || how}, ${plural(n, "step")}`, h("div", { class: "sub" }, `the last time: ${why}`));
  if (host) fact("Computed with", link(host), h("div", { class: "sub" }, "which has the milliseconds and jobs of both"));
  if (v.stage) fact("Stage", `${v.stage} of ${Math.max(...data.vertices.map((x) => x.stage || 0))}`);
  for (const i of v.registers) {
    const r = data.registers[i];
    fact("Keeps", r.name, h("div", { class: "sub" }, `${keyed(r)}; ${r.size ? `${plural(r.size.rows, "row")}, ${bytes(r.size.nbytes)}` : "size not known"}`));
  }
  if (also.length) fact("Also", also.join(", "));
  panel.append(h("dl", {}, facts));
  if (!m) {
    panel.append(h("p", { class: "sub" }, v.registers.length ? "It is a value that is kept: nothing is computed for it. What reads it has the rows that are read." : "Nothing was measured of it."));
    return;
  }
  panel.append(statistics(path, m));
  line(panel, "Milliseconds over the steps", host ? null : data.lines.ms[path]);
  line(panel, "Rows read over the steps", data.lines.rows[path]);
}
const WHERE = { driver: "On the driver", tasks: "In tasks, with Arrow", spark: "In Spark", python: "A Python function", loop: "A recursion", "nothing to do": "Nothing to do" };
function statistics(path, m) {
  const columns = [["A step", m.after, run.steps("after")]];
  if (m.first) columns.push(["First load", m.first, 1]);
  const used = columns.filter((c) => c[1].steps);
  if (!used.length) return null;
  const rows = [
    ["Milliseconds, mean", (x, n) => (x.timed ? ms(x.ms / n) : "–"), true],
    ["median", (x) => ms(x.p50), true], ["95%", (x) => ms(x.p95), true], ["99%", (x) => ms(x.p99), true], ["most", (x) => ms(x.most), true],
    ["Rows read, mean", (x) => (x.counted ? num(x.rows_in / x.counted) : "not counted")],
    ["Rows given, mean", (x) => (x.counted ? num(x.rows_out / x.counted) : "not counted")],
    ["Spark jobs, all", (x) => (x.timed ? num(x.jobs) : "–"), true],
    ["Amplification", (x, n, name) => METRICS.amp.shown(value(path, "amp", name === "A step" ? "after" : "first"))],
  ].filter(([, , own]) => !own || used.some((c) => c[1].timed));
  const uncounted = used.reduce((a, c) => a + c[1].steps - c[1].counted, 0);
  return h("div", {}, h("div", { class: "wide" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, ""), used.map((c) => h("th", {}, c[0])))),
    h("tbody", {}, rows.map(([name, of]) => h("tr", {}, h("td", {}, name), used.map((c) => h("td", {}, of(c[1], c[2], c[0])))))))),
    uncounted ? h("p", { class: "sub" }, `In ${plural(uncounted, "step")} rows were in Spark, or computed inside a query: not counted.`) : null);
}
function line(panel, title, values) {
  if (!values || values.filter((v) => v !== null).length < 2) return;
  const holder = h("div", { class: "chart" });
  panel.append(h("h4", {}, title + (data.lines.each > 1 ? ` (each point: ${data.lines.each} steps)` : "")), holder);
  plot(holder, data.lines.steps, values, { height: 110, shown: title.startsWith("Rows") ? num : ms });
}
function welcome() {
  const top = ranked("ms").slice(0, 5);
  $("panel").replaceChildren(h("p", { class: "path" }, "Choose a vertex"),
    h("p", { class: "kind" }, "Click one in the picture, or press Tab and Enter: its line of your program, where it ran and why, and what it cost."),
    top.length ? h("h4", {}, "Most time") : null,
    h("ul", { class: "list" }, top.map(([p, v]) => h("li", {}, h("button", { type: "button", on: { click: () => show(p) } }, h("span", {}, broken(p)), h("span", {}, ms(v)))))));
}

// -- charts

function ticks(most, n = 4) {
  if (!(most > 0)) return [0, 1];
  const raw = most / n, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * unit >= raw) * unit, found = [];
  for (let v = 0; v <= most + step * 0.999; v += step) found.push(v);
  return found;
}
function plot(holder, xs, ys, { height = 200, shown = num, below = null, cross = null }) {
  const width = Math.max(220, holder.clientWidth || 320), left = 62, right = 8, bottom = 18, top = 8;
  const bars = below ? Math.round(height * 0.28) : 0, floor = height - bottom - bars - (below ? 14 : 0);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  const marks = ticks(Math.max(...ys.map((v) => v || 0)), height > 150 ? 4 : 2), most = marks[marks.length - 1];
  const inset = below ? (width - left - right) / (below.length + 1) / 2 : 0, from = left + inset, across = width - right - inset - from;
  const x = (i) => from + (xs.length < 2 ? 0.5 : i / (xs.length - 1)) * across;
  const y = (v) => floor - (v / most) * (floor - top);
  for (const v of marks) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, shown(v)));
  const points = ys.map((v, i) => (v === null ? null : `${x(i).toFixed(1)},${y(v).toFixed(1)}`)).filter(Boolean);
  if (points.length > 1) svg.append(s("polygon", { class: "area", points: `${x(0)},${floor} ${points.join(" ")} ${x(xs.length - 1)},${floor}` }));
  if (points.length > 1) svg.append(s("polyline", { class: "curve", points: points.join(" ") }));
  else for (const p of points) svg.append(s("circle", { class: "dot", r: 3, cx: p.split(",")[0], cy: p.split(",")[1] }));
  if (below) {
    const high = Math.max(1, ...below.map((v) => v || 0)), base = height - bottom, w = Math.max(1, 1.4 * inset);
    below.forEach((v, i) => { if (v) svg.append(s("rect", { class: "bars", x: x(i) - w / 2, width: w, y: base - (v / high) * bars, height: (v / high) * bars })); });
    svg.append(s("text", { x: left - 6, y: base - bars + 8, "text-anchor": "end" }, num(high)), s("text", { x: left - 6, y: base, "text-anchor": "end" }, "rows"));
  }
  svg.append(s("text", { x: left, y: height - 4 }, `step ${num(xs[0])}`));
  if (xs.length > 1) svg.append(s("text", { x: width - right, y: height - 4, "text-anchor": "end" }, num(xs[xs.length - 1])));
  const bar = s("line", { class: "cross gone", y1: top, y2: height - bottom });
  if (cross) {
    svg.append(bar);
    const at = (i) => { bar.setAttribute("x1", x(i)); bar.setAttribute("x2", x(i)); bar.classList.remove("gone"); cross(i); };
    svg.addEventListener("pointermove", (e) => {
      const r = svg.getBoundingClientRect(), f = ((e.clientX - r.left) / r.width * width - from) / across;
      at(Math.min(xs.length - 1, Math.max(0, Math.round(f * (xs.length - 1)))));
    });
    holder.at = at;
  }
  holder.replaceChildren(svg);
}
function spark(values) {
  const known = (values || []).filter((v) => v !== null);
  if (known.length < 2) return "";
  const least = Math.min(...known), span = Math.max(...known) - least || 1;
  const points = values.map((v, i) => (v === null ? null : `${(i / (values.length - 1) * 128 + 1).toFixed(1)},${(26 - (v - least) / span * 24).toFixed(1)}`)).filter(Boolean);
  return s("svg", { class: "spark", viewBox: "0 0 130 28", preserveAspectRatio: "none", "aria-hidden": "true" }, s("polyline", { points: points.join(" ") }));
}
function steps() {
  const after = (kind) => run.slice(kind, "after"), n = run.steps("after");
  const cards = [], card = (text, label, first) => cards.push(h("div", { class: first ? "card first" : "card" }, h("b", {}, text), h("span", {}, label)));
  if (run.skip) card(ms(data.steps.ms[0]), `first load, ${data.steps.rows_in[0] === null ? "rows in Spark, not counted" : plural(data.steps.rows_in[0], "row")}`, true);
  if (n) {
    card(ms(quantile(after("ms"), 0.5)), "a step, median");
    card(ms(quantile(after("ms"), 0.95)), "95% of the steps within");
    const changed = run.changed("after");
    card(changed === null ? "–" : num(changed / n), "rows changed a step, mean");
    card(num(sum(after("jobs"))), `Spark jobs in ${plural(n, "step")}`);
    card(ms(after("rest_ms").reduce((a, b) => a + b, 0) / n), "a step for inputs, reading and keeping state");
  }
  $("cards").replaceChildren(...cards);
  $("steps-lead").textContent = run.count ? `The last ${plural(run.count, "step")} that the stepper has taken${run.skip ? "; the first load is apart, and not in the charts" : ""}.` : "No step was taken in this process.";
  const number = after("step"), times = after("ms"), rows = after("rows_in"), jobs = after("jobs"), queries = after("queries"), out = after("rows_out");
  for (const id of ["timeline", "scatter"]) if (!n) $(id).replaceChildren(h("p", { class: "empty" }, "No steps after the first load."));
  if (!n) return;
  const tell = (i) => { $("timeline-readout").textContent = `step ${num(number[i])}: ${ms(times[i])}, rows ${rows[i] === null ? "in Spark" : num(rows[i])} in, ${out[i] === null ? "in Spark" : num(out[i])} out, ${plural(jobs[i] ?? 0, "job")}, ${queries[i] === 1 ? "1 query" : `${num(queries[i])} queries`}`; };
  plot($("timeline"), number, times, { height: 240, shown: ms, below: rows, cross: tell });
  $("timeline").setAttribute("aria-label", `Milliseconds of ${n} steps, from ${ms(Math.min(...times))} to ${ms(Math.max(...times))}. Arrow keys go from step to step.`);
  $("timeline-readout").textContent = "Point at a step, or use the arrow keys.";
  let at = -1;
  $("timeline").onkeydown = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[e.key];
    if (!by) return;
    e.preventDefault();
    at = Math.min(n - 1, Math.max(0, at + by));
    $("timeline").at(at);
  };
  scatter(rows, times);
}
function scatter(rows, times) {
  const dots = rows.map((r, i) => [r, times[i]]).filter(([r, t]) => r !== null && t > 0), holder = $("scatter");
  if (!dots.length) return holder.replaceChildren(h("p", { class: "empty" }, "How many rows changed is not known: they were in Spark."));
  const width = Math.max(220, holder.clientWidth || 320), height = 240, left = 62, bottom = 36, top = 8, right = 12;
  const log = (v) => Math.log10(Math.max(v, 0.001));
  const axis = (values) => {
    const marks = [];
    for (let e = -3; e <= 12; e++) for (const m of [1, 2, 5]) marks.push(m * 10 ** e);
    const least = Math.min(...values), most = Math.max(...values);
    const from = marks.filter((m) => m <= least).pop() ?? marks[0], to = marks.find((m) => m >= most && m > from);
    const within = marks.filter((m) => m >= from && m <= to), every = Math.ceil(within.length / 6);
    return [from, to, within.filter((m, i) => i % every === 0)];
  };
  const [x0, x1, xmarks] = axis(dots.map((d) => Math.max(1, d[0]))), [y0, y1, ymarks] = axis(dots.map((d) => d[1]));
  const at = (v, a, b) => (log(v) - log(a)) / (log(b) - log(a));
  const x = (v) => left + at(Math.max(1, v), x0, x1) * (width - left - right), y = (v) => height - bottom - at(v, y0, y1) * (height - bottom - top);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  for (const m of ymarks) svg.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(m), y2: y(m) }), s("text", { x: left - 6, y: y(m) + 4, "text-anchor": "end" }, ms(m)));
  for (const m of xmarks) svg.append(s("text", { x: x(m), y: height - 20, "text-anchor": m === x1 ? "end" : "middle" }, num(m)));
  svg.append(s("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, "rows changed"));
  for (const [r, t] of dots) svg.append(s("circle", { class: "dot", cx: x(r).toFixed(1), cy: y(t).toFixed(1), r: 3 }));
  holder.replaceChildren(svg);
  holder.setAttribute("aria-label", `Milliseconds against rows changed, of ${plural(dots.length, "step")}, both logarithmic.`);
}

// -- tables

// The key of a register. The column of a computed key has no useful name.
function keyed(r) {
  const names = r.key.filter((k) => !/^_key_(\d+_)?$/.test(k));
  return names.length ? `looked up by ${names.join(", ")}` : r.key.length ? "looked up by a computed key" : "read as a whole";
}

const table = (heads, rows) => h("table", {}, h("thead", {}, h("tr", {}, heads.map((x) => (x instanceof Element ? x : h("th", { scope: "col" }, x))))), h("tbody", {}, rows.map((r) => h("tr", {}, r.map((c) => (c instanceof HTMLTableCellElement ? c : h("td", {}, c)))))));
function state() {
  const sized = data.registers.some((r) => r.size), measured = Object.keys(data.lines.nbytes).length > 0;
  $("state-lead").textContent = !data.registers.length ? "The circuit keeps no state."
    : (sized ? "Each register as it is now. " : "The store does not say how large registers are. ") + (measured ? "Growth: bytes after each step." : "Growth: rows written to it at each step, whatever they cancel. For its size after each step, make the stepper with profile=True.");
  if (!data.registers.length) return;
  const order = data.registers.map((r) => r).sort((a, b) => (b.size ? b.size.nbytes : 0) - (a.size ? a.size.nbytes : 0));
  $("state-table").replaceChildren(table(["Register", "Rows", h("th", { class: "minor", scope: "col" }, "Batches"), "Size", measured ? "Growth after the first load" : "Rows written after the first load", ""], order.map((r) => {
    const written = data.lines.kept[r.name] || [], grown = data.lines.nbytes[r.name] || [];
    const known = grown.filter((v) => v !== null);
    return [
      h("td", {}, run.vertices.has(r.of) ? link(r.of, r.name) : r.name, h("div", { class: "sub" }, keyed(r), r.why ? `; ${r.why}` : "")),
      r.size ? num(r.size.rows) : "–", h("td", { class: "minor" }, r.size ? num(r.size.batches) : "–"), r.size ? bytes(r.size.nbytes) : "–",
      measured ? (known.length > 1 ? `${known[known.length - 1] >= known[0] ? "+" : "−"}${bytes(Math.abs(known[known.length - 1] - known[0]))}` : "–") : num(sum(written)),
      spark(measured ? grown : written)];
  })));
}
function ranked(by) {
  return data.vertices.map((v) => [v.path, value(v.path, by)]).filter(([, v]) => v !== null && v > 0).sort((a, b) => b[1] - a[1]);
}
function topTen() {
  const by = $("top-by").value, m = METRICS[by], rows = ranked(by).slice(0, 10), most = rows.length ? rows[0][1] : 1;
  $("top-table").replaceChildren(rows.length ? table(["Vertex", m.head, ""], rows.map(([p, v]) => [
    h("td", {}, link(p), h("div", { class: "sub" }, run.vertices.get(p).where)), m.shown(v),
    h("td", { class: "barcell" }, h("span", { class: "bar", style: `width: ${(v / most * 100).toFixed(1)}%` }))])) : h("p", { class: "empty" }, `No vertex has ${m.label.toLowerCase()} to show.`));
}

// -- another run

function compare() {
  $("compare-out").replaceChildren();
  if (!other) return;
  const theirs = new Run(other), at = run.steps("after") && theirs.steps("after") ? "after" : "first";
  const ratio = (a, b, neutral) => {
    if (a === null || b === null || a === undefined || b === undefined || !b) return h("td", {}, "–");
    const r = a / b, near = Math.abs(Math.log(r)) < 0.1;
    return h("td", { class: near || neutral ? null : r < 1 ? "better" : "worse" }, near ? "about the same" : `${num(r)} ×`);
  };
  const median = (x, kind) => quantile(x.slice(kind, at), 0.5), mean = (x, kind) => { const t = sum(x.slice(kind, at)); return t === null || !x.steps(at) ? null : t / x.steps(at); };
  const amplified = (x) => {
    const all = x.n.vertices.filter((v) => !v.is_input).map((v) => METRICS.amp.of(x, v.path, at)).filter((v) => v !== null);
    return all.length ? all.reduce((a, b) => a + b, 0) : null;
  };
  const size = (x) => { const sizes = x.n.registers.map((r) => r.size); return sizes.length && sizes.every(Boolean) ? sizes.reduce((a, r) => a + r.nbytes, 0) : null; };
  const whole = [
    ["Milliseconds of a step, median", median(run, "ms"), median(theirs, "ms"), ms],
    ["Milliseconds of a step, 95%", quantile(run.slice("ms", at), 0.95), quantile(theirs.slice("ms", at), 0.95), ms],
    ["Rows changed a step", mean(run, "rows_in"), mean(theirs, "rows_in"), num, true],
    ["Rows given a step", mean(run, "rows_out"), mean(theirs, "rows_out"), num, true],
    ["Rows read for each row changed", amplified(run), amplified(theirs), METRICS.amp.shown],
    ["Spark jobs a step", mean(run, "jobs"), mean(theirs, "jobs"), num],
    ["Bytes of state", size(run), size(theirs), bytes],
    ["Milliseconds of the first load", run.skip ? data.steps.ms[0] : null, theirs.skip ? other.steps.ms[0] : null, ms],
  ];
  const notes = [];
  if (data.name !== other.name) notes.push(`The other run is of another circuit, ${other.name}.`);
  const a = mean(run, "rows_in"), b = mean(theirs, "rows_in");
  if (a && b && Math.abs(Math.log(a / b)) > 0.2) notes.push("The changes are not of the same size: compare the rows read for each row changed, and not the milliseconds.");
  if (data.made.cores !== other.made.cores || data.made.store !== other.made.store) notes.push(`The other run had ${other.made.cores} cores and ${other.made.store}; this one ${data.made.cores} and ${data.made.store}.`);
  if (Math.min(run.steps(at), theirs.steps(at)) < 20) notes.push("There are few steps: chance has a part in these numbers.");
  const paths = [...new Set([...run.vertices.keys(), ...theirs.vertices.keys()])], of = METRICS.ms.of;
  const rows = paths.map((p) => [p, of(run, p, at), of(theirs, p, at)]).filter(([, x, y]) => x !== null || y !== null)
    .sort((p, q) => Math.abs((q[1] || 0) - (q[2] || 0)) - Math.abs((p[1] || 0) - (p[2] || 0))).slice(0, 15);
  $("compare-out").append(
    h("p", { class: "lead" }, `This run, beside ${other.name} written ${other.made.at}: ${plural(run.steps(at), "step")} and ${plural(theirs.steps(at), "step")}${at === "after" ? " after the first load" : " (the first load)"}.`),
    ...notes.map((text) => h("p", { class: "note" }, text)),
    h("div", { class: "wide" }, table(["", "This run", "Other run", "Ratio"], whole.map(([name, x, y, shown, neutral]) => [name, shown(x), shown(y), ratio(x, y, neutral)]))),
    h("h3", { style: "margin: 1rem 0 .4rem" }, "Vertices with the greatest difference"),
    h("div", { class: "wide" }, table(["Vertex, ms a step", "This run", "Other run", "Ratio"], rows.map(([p, x, y]) => [run.vertices.has(p) ? link(p) : p, x === null ? (run.vertices.has(p) ? "–" : "not in it") : ms(x), y === null ? (theirs.vertices.has(p) ? "–" : "not in it") : ms(y), ratio(x, y)]))));
}
$("other").addEventListener("change", async (e) => {
  const file = e.target.files[0];
  if (!file) return;
  $("compare-error").textContent = "";
  try {
    const text = await file.text();
    const found = /<script type="application\/json" id="numbers">([^]*?)<\/script>/.exec(text);
    const numbers = JSON.parse(found ? found[1] : text);
    if (!numbers || numbers.format !== data.format || !numbers.steps) throw new Error("no report");
    other = numbers;
    compare();
  } catch {
    $("compare-error").textContent = `${file.name} is no report, or one of another version.`;
  }
});

// -- the whole page

choices($("metric"), "metric", Object.entries(METRICS).map(([key, m]) => [key, m.label]), metric, (key) => { metric = key; colour(); });
choices($("scope"), "scope", [["after", run.skip ? "After the first load" : "All", run.steps("after") === 0 && run.skip], ["first", "First load", !run.skip]], scope, (key) => { scope = key; colour(); topTen(); });
data.pictures.forEach((p, i) => $("detail").append(h("option", { value: i }, ["Functions only", "Functions folded", "All vertices"][p.level] || p.title)));
if (level >= 0) $("detail").value = String(level);
$("detail").addEventListener("change", (e) => detail(+e.target.value));
for (const [key, m] of Object.entries(METRICS)) $("top-by").append(h("option", { value: key }, m.head));
$("top-by").addEventListener("change", topTen);
draw();
welcome();
steps();
state();
topTen();
compare();
let wide = innerWidth;
window.addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; steps(); } });
})();
