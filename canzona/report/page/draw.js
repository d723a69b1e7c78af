// Elements, drawings and the frame of a page. All text becomes text nodes and
// attribute values, so that a name can never become markup.

const WIDE = 1040;
const NARROW = 400;  // every drawing is made a second time, for a narrow screen
const MANY = 64;     // more bars than this become areas

// Control characters, and those that would turn the direction of text round.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const clean = text =>
  String(text).replace(UNSAFE, c => c === "\t" || c === "\n" ? " " : "\ufffd");

const HTML = document.documentElement.namespaceURI;
const SVG = document.getElementById("patterns").namespaceURI;

// make(HTML, "td.n", {title: "…"}, "text", node, [more nodes]): empty texts and
// null are left out.
function make(namespace, name, children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElementNS(namespace, tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === "") continue;
    if (child instanceof Node) node.append(child);
    else if (typeof child !== "object") node.append(clean(child));
    else for (const key in child) node.setAttribute(key, clean(child[key]));
  }
  return node;
}
const el = (name, ...children) => make(HTML, name, children);
const shape = (name, ...children) => make(SVG, name, children);

const round = value => Math.round(value * 100) / 100;
const sum = values => values.reduce((a, b) => a + b, 0);
const largest = values => values.reduce((a, b) => Math.max(a, b), 0);
const smallest = values => values.reduce((a, b) => Math.min(a, b), Infinity);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// {columns: ["rank", …], rows: [[0, …], …]} as objects.
const records = ({columns, rows}) =>
  rows.map(row => Object.fromEntries(columns.map((name, i) => [name, row[i]])));

// The width that a text takes at most: letters of 11.5 pixels are narrower on
// the average, digits as wide.
const textWidth = text => 6.8 * [...text].length;

// Leaves out the middle: both ends of a name say something.
function shorten(text, letters) {
  const all = [...text];
  if (all.length <= letters) return text;
  const tail = Math.floor((letters - 1) / 2);
  return all.slice(0, letters - 1 - tail).join("") + "…" +
    (tail > 0 ? all.slice(-tail).join("") : "");
}

class Drawing {
  constructor(width, height, title) {
    this.width = width;
    this.svg = shape("svg", {viewBox: `0 0 ${round(width)} ${round(height)}`, role: "img"},
                     shape("title", title));
  }
  // `query`: what the table of tensors shows when the shape is clicked.
  rect(x, y, width, height, css, title, query) {
    this.path(`M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${-round(width)}z`,
              css, title, query);
  }
  line(x1, y1, x2, y2, css) {
    this.path(`M${round(x1)} ${round(y1)}L${round(x2)} ${round(y2)}`, css);
  }
  path(d, css, title, query) {
    this.svg.append(shape("path", {d, class: css}, query ? {"data-q": query} : null,
                          title ? shape("title", title) : null));
  }
  // css: "start", "middle" or "end" sets the anchor; more classes may follow.
  text(x, y, css, text) {
    this.svg.append(shape("text", {x: round(x), y: round(y), class: css}, text));
  }
  dots(points, css, title) {
    const circle = "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z";
    this.path(points.map(([x, y]) => `M${round(x)} ${round(y)}${circle}`).join(""), css, title);
  }
}

// The step between about `count` round numbers up to `span`.
function roundStep(span, count) {
  if (!(span > 0) || !Number.isFinite(span)) return 0;
  const raw = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(raw));
  return ([1, 2, 2.5, 5].find(factor => factor * power >= raw) || 10) * power;
}

// Round numbers from `low` to `high`.
function ticksBetween(low, high, count) {
  const step = roundStep(high - low, count), ticks = [];
  if (!step) return [low];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    if (ticks.push(i * step + 0) > 4 * count) break;  // never -0
  }
  return ticks;
}

const plainTicks = top => ticksBetween(0, top, 5).map(at => [at, significant(at, 6)]);
const secondTicks = top => ticksBetween(0, top, 5).map(at => [at, at > 0 ? seconds(at) : "0"]);
function byteTicks(top) {
  let unit = 1, name = 0;
  for (; top / unit >= 1024 && name < 4; name++) unit *= 1024;
  return ticksBetween(0, top / unit, 5).map(at =>
    [at * unit, at > 0 ? significant(at, 6) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][name] : "0"]);
}

// Moves labels {y, …} upwards until none overlaps another.
function spreadLabels(labels, gap) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = labels.length - 1; i > 0; i--)
    labels[i - 1].y = Math.min(labels[i - 1].y, labels[i].y - gap);
  return labels;
}

// A chart whose vertical axis goes from 0 to `top`; beside it is room for the
// labels of references.
class Chart extends Drawing {
  constructor(title, height, top, width, hasReferences = true) {
    super(width, height + 50, title);
    this.left = 58;
    this.right = width - (!hasReferences ? 16 : width < WIDE ? 126 : 134);
    this.bottom = 12 + height;
    this.top = top > 0 ? top : 1;
  }
  y(value) {
    return this.bottom - clamp(value / this.top, 0, 1) * (this.bottom - 12);
  }
  axis(ticks) {
    for (const [value, text] of ticks) {
      const y = this.y(value);
      this.line(this.left, y, this.right, y, value > 0 ? "grid" : "axis");
      this.text(this.left - 6, y + 4, "end", text);
    }
  }
  // Horizontal lines {value, text, css} across the chart.
  references(lines) {
    for (const one of lines)
      this.line(this.left, this.y(one.value), this.right, this.y(one.value), one.css);
    const labels = lines.map(one => ({y: this.y(one.value) + 4, one}));
    for (const {y, one} of spreadLabels(labels, 14))
      this.text(this.right + 8, y, "start " + one.css, one.text);
  }
  // Equal slots for marks from left to right.
  slots(count, widest = 104) {
    const width = Math.min((this.right - this.left) / count, widest);
    const left = this.left + (this.right - this.left - width * count) / 2;
    return {left, width, at: i => left + width * i};
  }
  below(text) {
    this.text((this.left + this.right) / 2, this.bottom + 31, "middle dim", text);
  }
}

// The largest bar of each run of bars, so that at most `most` are left.
function thinned(bars, most) {
  const run = Math.ceil(bars.length / most), out = [];
  for (let i = 0; i < bars.length; i += run)
    out.push(bars.slice(i, i + run).reduce((a, b) => sum(b.parts) > sum(a.parts) ? b : a));
  return out;
}

// Bars {label, title, parts, query} of parts on top of each other, coloured and
// named by kinds [css, name]; many bars become one area for each kind.
function stackedBars({title, bars, kinds, ticks, text, below, lines = []}, width) {
  const all = thinned(bars, 1024);
  const top = 1.06 * Math.max(largest(all.map(bar => sum(bar.parts))),
                              largest(lines.map(one => one.value)));
  const chart = new Chart(title, 220, top, width, lines.length > 0);
  chart.axis(ticks(chart.top));
  const slots = chart.slots(all.length);
  if (all.length > MANY) drawAreas(chart, slots, all, kinds, text);
  else all.forEach((bar, i) => drawBar(chart, slots, bar, i, kinds, text));
  const every = Math.max(1, Math.floor(34 / slots.width), Math.floor(all.length / 16));
  const letters = Math.max(4, Math.floor(slots.width * every / textWidth("0")));
  for (let i = 0; i < all.length; i += every)
    chart.text(slots.at(i + 0.5), chart.bottom + 15, "middle", shorten(all[i].label, letters));
  chart.below(all.length < bars.length ? below + "; each step shows the largest of several" : below);
  chart.references(lines);
  return chart;
}

function drawBar(chart, slots, bar, i, kinds, text) {
  let under = 0;
  bar.parts.forEach((part, kind) => {
    if (!(part > 0)) return;
    const y = chart.y(under + part), whole = sum(bar.parts);
    chart.rect(slots.at(i + 0.1), y, slots.width * 0.8, Math.max(chart.y(under) - y, 1),
               "run " + kinds[kind][0],
               `${bar.title}${kinds[kind][1] && ", " + kinds[kind][1]}: ${text(part)}` +
                 (bar.parts.length > 1 ? " of " + text(whole) : ""), bar.query);
    under += part;
  });
}

// Steps along the upper edge of a kind, and back along its lower one.
function drawAreas(chart, slots, bars, kinds, text) {
  kinds.forEach(([css, name], kind) => {
    const edge = (bar, end) => round(chart.y(sum(bar.parts.slice(0, end))));
    let d = `M${round(slots.at(0))} ${edge(bars[0], kind)}`;
    bars.forEach((bar, i) => { d += `V${edge(bar, kind + 1)}H${round(slots.at(i + 1))}`; });
    for (let i = bars.length - 1; i >= 0; i--)
      d += `V${edge(bars[i], kind)}H${round(slots.at(i))}`;
    const parts = bars.map(bar => bar.parts[kind]);
    chart.path(d + "Z", "area " + css, `${name && name + ": "}${text(smallest(parts))} to ${
      text(largest(parts))} per rank`);
  });
}

// draw(width) makes the drawing, for a page and for a narrow screen.
function figure(draw, caption) {
  return el("figure", el("div.scroll.broad", draw(WIDE).svg), el("div.narrow", draw(NARROW).svg),
            caption ? el("figcaption", caption) : null);
}

const legend = entries =>
  el("ul.legend", entries.map(([css, text]) => el("li", el("i", {class: css}), text)));

const tile = (label, figure, unit, ...notes) =>
  el("div.tile", el("h3", label),
     el("p.figure", figure, unit ? [" ", el("small", unit)] : null),
     notes.flat().filter(Boolean).map(note => el("p", note)));

// A list of names and values; those without a value are left out.
const facts = (rows, css) =>
  el(css ? "dl." + css : "dl", rows.filter(([, value]) => value)
    .map(([name, value]) => el("div", el("dt", name), el("dd", value))));

// table(["matrix", ">cost"], rows): ">" aligns a column of numbers; the first
// cell of a row is its head. A cell may be an element of its own. `groups` are
// headings [text, columns] above the columns.
function table(columns, rows, {groups = [], css = ""} = {}) {
  const isNumber = columns.map(name => name.startsWith(">"));
  const name = column => column.replace(/^>/, "");
  const kind = (tag, i) => isNumber[i] ? tag + ".n" : tag;
  const cell = (text, i) => text instanceof Node ? text : el(i ? kind("td", i) : "th", text);
  return el("div.scroll", el("table", css ? {class: css} : null,
    el("thead", groups.length ? el("tr", groups.map(([text, columns]) =>
         el("th.n", {colspan: columns}, text))) : null,
       el("tr", columns.map((column, i) => el(kind("th", i), {scope: "col"}, name(column))))),
    el("tbody", rows.map(row => row instanceof Node ? row : el("tr", row.map(cell))))));
}

// Two parts of a length one after the other, as shares of `whole`, in a cell.
function barCell(first, second, whole) {
  const part = (css, value) => {
    const bar = el("i." + css);
    bar.style.width = (whole > 0 ? 100 * value / whole : 0).toFixed(1) + "%";
    return bar;
  };
  return el("td.bar", part("k0", first), part("k3", second));
}

// Draws the first rows, and the others behind a fold.
function folded(rows, shown, thing, draw) {
  const rest = rows.slice(shown);
  return [draw(rows.slice(0, shown)), rest.length ? el("details.rest",
    el("summary", counted(rest.length, thing) + " more"), draw(rest)) : null];
}

// A table of what a rank does, in order.
const orderTable = order => [
  table(order.columns, order.rows.map(row => el("tr", row.map(text => el("td", text))))),
  order.left_out > 0 ? el("p", `… and ${order.left_out} more.`) : null];

const section = (id, name, heading, ...children) =>
  ({id, name, node: el("section", {id}, el("h2", heading), children)});

const words = rows => section("words", "How to read it", "How to read it",
                              facts(rows, "words"));

// Puts a page together; sections that are null are left out.
function showPage({title, kind, heading, asked, verdict, tiles = [], asides, sections, footer}) {
  const shown = sections.filter(Boolean);
  document.title = clean(title + " · Canzona");
  document.body.append(
    el("header", el("p.kind", kind), el("h1", heading), el("p.asked", asked),
       verdict ? el("p.verdict", verdict) : null),
    tiles.length ? el("div.tiles", tiles) : "",
    asides || "",
    el("nav", shown.map(one => el("a", {href: "#" + one.id}, one.name))),
    el("main", shown.map(one => one.node)),
    el("footer", footer + " Opens offline."));
}

// The title of a shape as a hint without the browser's delay. The title is
// taken out meanwhile, or both would show.
function showHints() {
  const hint = el("div", {id: "hint", hidden: ""});
  document.body.append(hint);
  let owner = null, title = null;
  addEventListener("mouseover", event => {
    if (title) owner.append(title);
    owner = event.target.closest("svg *");
    title = owner && owner.querySelector(":scope > title");
    hint.hidden = !title;
    if (!title) return;
    hint.textContent = title.textContent;
    title.remove();
  });
  addEventListener("mousemove", event => {
    if (hint.hidden) return;
    hint.style.left = Math.min(event.clientX + 14, innerWidth - hint.offsetWidth - 8) + "px";
    hint.style.top = event.clientY + 18 + "px";
  });
}

// Draws the report that stands in the page. data-ready on the root element says
// that all went well, data-error what did not.
function start(show) {
  const root = document.documentElement;
  addEventListener("error", event => {
    root.dataset.error = event.message;
    if (!root.dataset.ready) document.body.append(el("p.verdict", "This page could not be drawn: " + event.message));
  });
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach(fold => { fold.open = true; });
  });
  show(JSON.parse(document.getElementById("report").textContent));
  showHints();
  root.dataset.ready = "1";
}
