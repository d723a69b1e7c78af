// Style sheets and scripts of the pages.
#include <string>

#include "canzona/report/html.h"

namespace canzona {

// Colours: the hues of the Okabe–Ito palette, told apart by the usual kinds of
// colour blindness, lightened so that black text is readable on all of them.
// The heat scale goes from blue (idle) over grey (at the mean) to orange. Dark
// colours hold for screens only, so that paper stays white.
std::string_view html_style() {
  return R"css(
:root{--ground:#f7f7f4;--card:#fff;--ink:#1c2127;--dim:#5c6670;--rule:#dfe2e6;
--grid:#e9ebee;--link:#0b63a8;--shade0:#4a94d2;--shade1:#a9cfee;
--every:#b9bfc7;--hatch:#e3e5e8;--hatch-line:#b1b7be;--idle:#f1f2f4;
--s0:#3c8bcb;--s1:#e69f00;--s2:#1aa883;--s3:#d283ad;--s4:#7cc6f2;--s5:#e0702a;
--h0:#123a6b;--h1:#2b68ab;--h2:#659cd0;--h3:#9cc2e4;--h4:#cfe2f2;--h5:#e8e8e4;
--h6:#fde0b8;--h7:#fbbc6f;--h8:#ee8f35;--h9:#c95d10;--h10:#863006}
@media screen and (prefers-color-scheme:dark){
:root{--ground:#111419;--card:#191d24;--ink:#e5e9ee;--dim:#9ba6b2;
--rule:#2e353f;--grid:#262c35;--link:#7fc0f5;--shade0:#3a7db8;--shade1:#224d73;
--every:#5a626c;--hatch:#2a3038;--hatch-line:#4c5560;--idle:#20252d;
--s0:#4f9fdd;--s1:#e6a522;--s2:#22b48e;--s3:#d88db5;--s4:#8fd0f5;--s5:#e87d3c;
--h0:#d6ebff;--h1:#93c4f2;--h2:#5f9cda;--h3:#3f72a8;--h4:#365372;--h5:#3a4048;
--h6:#5f4c34;--h7:#8d632b;--h8:#c38225;--h9:#f2a535;--h10:#ffd695}}
*{box-sizing:border-box}
html{scroll-padding-top:3.4rem}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
body{max-width:1176px;margin:0 auto;padding:28px 24px 48px;color:var(--ink);
background:var(--ground);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",sans-serif;font-variant-numeric:tabular-nums}
h1{margin:0;font-size:2.1rem;line-height:1.2;letter-spacing:-.01em;
overflow-wrap:anywhere}
h2{margin:0 0 .5rem;font-size:1.25rem}
h3{margin:1.1rem 0 .3rem;font-size:.95rem}
p{margin:.3rem 0 .8rem;max-width:96ch}
small,.note,figcaption{max-width:none;color:var(--dim);font-size:.86rem}
.kind{margin:0;color:var(--dim);font-size:.8rem;letter-spacing:.08em;
text-transform:uppercase}
.asked{margin:.35rem 0 .6rem}
.verdict{margin:0 0 1.1rem;font-size:1.08rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));
gap:12px}
.tile,section,.facts{background:var(--card);border:1px solid var(--rule);
border-radius:10px}
.tile{padding:12px 16px}
.tile h3{margin:0;color:var(--dim);font-size:.86rem;font-weight:600}
.tile p{margin:0;color:var(--dim);font-size:.86rem}
.tile .figure{margin:.1rem 0 .25rem;color:var(--ink);font-size:1.6rem;
font-weight:650;line-height:1.25;overflow-wrap:anywhere}
.tile .figure small{display:block;font-size:.86rem;font-weight:400;
line-height:1.5}
.facts{margin-top:12px;padding:9px 16px}
summary{cursor:pointer;color:var(--dim)}
dl{display:grid;
grid-template-columns:repeat(auto-fit,minmax(min(320px,100%),1fr));
gap:4px 28px;margin:.6rem 0 0}
dt{color:var(--dim);font-size:.86rem}
dd{margin:0;overflow-wrap:anywhere}
.words{gap:12px 28px}
.words dt{color:var(--ink);font-size:1rem;font-weight:650}
nav{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:2px 18px;
margin:14px 0;padding:9px 2px;background:var(--ground);
border-bottom:1px solid var(--rule)}
a{color:var(--link);text-decoration:none}
a:hover{text-decoration:underline}
section{margin:0 0 16px;padding:18px 20px}
figure{margin:.4rem 0 0}
figcaption{margin-top:.3rem}
.scroll{overflow-x:auto}
.narrow{display:none}
.tall{max-height:72vh;overflow:auto;border:1px solid var(--rule);
border-radius:6px}
svg{display:block;width:100%;height:auto}
svg.defs{position:absolute;width:0;height:0}
svg text{fill:var(--ink);font-size:11.5px}
svg .dim{fill:var(--dim)}
svg .strong{font-weight:650;paint-order:stroke;stroke:var(--card);
stroke-width:2px}
svg .on{fill:#10151b;font-size:11px;pointer-events:none}
.start{text-anchor:start}.middle{text-anchor:middle}.end{text-anchor:end}
[data-q]{cursor:pointer}
[data-q]:hover{stroke:var(--ink);stroke-width:1.5}
.grid{stroke:var(--grid)}.axis{stroke:var(--dim)}
.mean-line{stroke:var(--dim);stroke-dasharray:2 3}
.bound-line{stroke:var(--ink);stroke-dasharray:7 3;stroke-width:1.3}
.makespan-line{stroke:var(--s5);stroke-width:1.3}
svg text.mean-line{fill:var(--dim);stroke:none}
svg text.bound-line{stroke:none;font-weight:650}
svg text.makespan-line{stroke:none;fill:var(--s5);font-weight:650}
.curve{fill:none;stroke-width:2}
.cell{stroke:var(--card);stroke-width:.8}
.run{stroke:var(--card);stroke-width:.6}
.thin{stroke:none}
.round{fill:var(--idle);stroke:var(--rule)}
.before{fill:var(--s1);background:var(--s1)}
.after{fill:var(--s0);background:var(--s0)}
.shade0{fill:var(--shade0);background:var(--shade0)}
.shade1{fill:var(--shade1);background:var(--shade1)}
.every{fill:var(--every);background:var(--every)}
.hatch-ground{fill:var(--hatch)}
.hatch-line{stroke:var(--hatch-line);stroke-width:3}
.adamw{fill:url(#hatch);background:repeating-linear-gradient(135deg,
var(--hatch-line) 0 2px,var(--hatch) 2px 5px)}
.s0,.k0{fill:var(--s0);background:var(--s0)}
.s1,.k3{fill:var(--s1);background:var(--s1)}
.s2,.k2{fill:var(--s2);background:var(--s2)}
.s3,.k4{fill:var(--s3);background:var(--s3)}
.s4,.k1{fill:var(--s4);background:var(--s4)}
.s5,.k5{fill:var(--s5);background:var(--s5)}
.curve{fill:none}
.curve.s0{stroke:var(--s0);stroke-width:2.6}.curve.s1{stroke:var(--s1)}
.curve.s2{stroke:var(--s2);stroke-dasharray:9 3}
.curve.s3{stroke:var(--s3);stroke-dasharray:5 3}
.curve.s4{stroke:var(--s4);stroke-dasharray:2 2}
.curve.s5{stroke:var(--s5);stroke-dasharray:9 3 2 3}
.heat0{fill:var(--h0);background:var(--h0)}
.heat1{fill:var(--h1);background:var(--h1)}
.heat2{fill:var(--h2);background:var(--h2)}
.heat3{fill:var(--h3);background:var(--h3)}
.heat4{fill:var(--h4);background:var(--h4)}
.heat5{fill:var(--h5);background:var(--h5)}
.heat6{fill:var(--h6);background:var(--h6)}
.heat7{fill:var(--h7);background:var(--h7)}
.heat8{fill:var(--h8);background:var(--h8)}
.heat9{fill:var(--h9);background:var(--h9)}
.heat10{fill:var(--h10);background:var(--h10)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:.6rem 0 .2rem;
padding:0;list-style:none;color:var(--dim);font-size:.86rem}
.legend li{display:flex;align-items:center;gap:6px}
.legend i{width:16px;height:12px;border-radius:2px}
.legend i.key{width:30px;height:4px}
.key.s2{background:repeating-linear-gradient(90deg,
var(--s2) 0 9px,#0000 0 12px)}
.key.s3{background:repeating-linear-gradient(90deg,
var(--s3) 0 5px,#0000 0 8px)}
.key.s4{background:repeating-linear-gradient(90deg,
var(--s4) 0 2px,#0000 0 4px)}
.key.s5{background:repeating-linear-gradient(90deg,
var(--s5) 0 9px,#0000 0 12px,
var(--s5) 0 14px,#0000 0 17px)}
table{width:100%;border-collapse:collapse;font-size:.9rem}
th,td{padding:5px 10px;border-bottom:1px solid var(--rule);text-align:left;
vertical-align:top}
thead th{color:var(--dim);font-weight:600}
tbody th{font-weight:600;white-space:nowrap}
tbody th small{font-weight:400}
.n{text-align:right}
td.n{white-space:nowrap}
.wide th,.wide td,#tensor-table th,#tensor-table td{padding:5px 7px}
#tensor-table{font-size:.86rem}
thead tr:first-child th[colspan]{text-align:center}
.best{font-weight:700}
.group th{padding-top:14px;color:var(--dim)}
.bar{width:30%;white-space:nowrap}
.bar i{display:inline-block;height:12px;vertical-align:middle}
#tensor-table th{position:sticky;top:0;background:var(--card);
white-space:nowrap}
#tensor-table th button{padding:0;border:0;background:none;color:inherit;
font:inherit;cursor:pointer}
#tensor-table th[aria-sort=ascending] button::after{content:" ▲"}
#tensor-table th[aria-sort=descending] button::after{content:" ▼"}
td.name{min-width:19rem}
.name,code{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace;
font-size:.9em;overflow-wrap:anywhere;unicode-bidi:isolate}
.tools{display:flex;flex-wrap:wrap;align-items:center;gap:8px 14px;
margin:.2rem 0 .7rem}
input,#more{padding:7px 11px;border:1px solid var(--rule);border-radius:6px;
background:var(--ground);color:inherit;font:inherit}
input{flex:1 1 360px;max-width:560px}
output{color:var(--dim);font-size:.9rem}
#more{margin-top:.7rem;cursor:pointer}
[hidden]{display:none!important}
#hint{position:fixed;z-index:3;max-width:460px;padding:5px 10px;
border-radius:6px;background:var(--ink);color:var(--card);font-size:.86rem;
pointer-events:none;overflow-wrap:anywhere}
footer{color:var(--dim);font-size:.86rem}
.paper{display:none}
.rest{margin:.5rem 0}
@media screen and (max-width:720px){body{padding:16px 10px 32px}
section{padding:14px 12px}
h1{font-size:1.6rem}
.tiles{grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}
.tile{padding:10px 12px}
.broad{display:none}.narrow{display:block}
.scroll>.wide{min-width:680px}
nav{position:static}html{scroll-padding-top:0}
p,li,figcaption,.tile{overflow-wrap:anywhere}}
@media print{html{font-size:10px}
body{max-width:none;padding:0;background:#fff;font-size:10px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
nav,.tools,#more,#hint{display:none}
.paper{display:block}
section,.tile,tr{break-inside:avoid;border-color:#ccc}
section{padding:8px 10px}
#tensors,#tensors .tall{break-inside:auto;max-height:none;overflow:visible}
#tensor-table tbody tr:nth-child(n+61){display:none}
td.name{min-width:0;width:34%}
th,td,.wide th,.wide td,#tensor-table th,#tensor-table td{padding:2px 4px}
.tiles{grid-template-columns:repeat(5,1fr)}}
)css";
}

namespace {

constexpr std::string_view kHints = R"js(
"use strict";
(() => {
const root = document.documentElement;
addEventListener("error", e => { root.dataset.error = e.message; });

// The title of a shape as a hint without the browser's delay. The title is
// taken out meanwhile, or both would show.
const hint = document.createElement("div");
hint.id = "hint";
hint.hidden = true;
document.body.append(hint);
let owner = null, title = null;
addEventListener("mouseover", e => {
  if (title) owner.append(title);
  owner = e.target.closest("svg *");
  title = owner && owner.querySelector(":scope > title");
  hint.hidden = !title;
  if (!title) return;
  hint.textContent = title.textContent;
  title.remove();
});
addEventListener("mousemove", e => {
  if (hint.hidden) return;
  const left = Math.min(e.clientX + 14, innerWidth - hint.offsetWidth - 8);
  hint.style.left = left + "px";
  hint.style.top = e.clientY + 18 + "px";
});

addEventListener("beforeprint", () => {
  document.querySelectorAll("details").forEach(d => { d.open = true; });
});

})();
)js";

// Cells are filled through textContent only: a name can never become markup.
constexpr std::string_view kTensors = R"js(
(() => {
const byId = id => document.getElementById(id);
const data = JSON.parse(byId("tensor-data").textContent);
const query = byId("query"), count = byId("count"), more = byId("more");
const body = byId("tensor-table").tBodies[0];
const heads = [...byId("tensor-table").tHead.rows[0].cells];
const PAGE = 500;
const MAX_OWNERS = 8;
const number = n => n.toLocaleString("en");

// The rank of the world at plane t of a home of a part: those of experts are
// every ep-th home of the whole.
function worldRank(stage, home, t, [tp, homes, e]) {
  const rank = home * tp + t;
  if (e < 0) return stage * homes * tp + rank;
  const [wholeTp, cp, ep] = data.mesh;
  const x = Math.floor(rank / wholeTp);
  const place = (Math.floor(x / cp) * ep + e) * cp + x % cp;
  return stage * homes * tp * ep + place * wholeTp + rank % wholeTp;
}

// A row of the data as the table shows it, with what it is searched and
// sorted by.
function expand(row) {
  const pieces = data.patterns[row[0]], kind = data.kinds[row[1]];
  const [shape, role, cut, rule, cost, costText, bytes, bytesText] = kind;
  const [stage, at] = data.buckets[row[2]], home = row[3];
  const part = data.parts[at], tp = part[0], label = part[3];
  let name = pieces[0];
  for (let i = 1; i < pieces.length; i++) name += row[4 + i] + pieces[i];
  const isMatrix = rule !== "adamw" || home >= 0;
  const rankOf = t => worldRank(stage, home, t, part);
  const all = row[4] === -1;
  const ts = all ? [...Array(tp).keys()] : [].concat(row[4]);
  let owner = "–";
  if (home < 0 && isMatrix) owner = "every";
  if (home >= 0 && all) owner = rankOf(0) + " … " + rankOf(tp - 1);
  if (home >= 0 && !all) {
    owner = ts.slice(0, MAX_OWNERS).map(rankOf).join(", ");
    if (ts.length > MAX_OWNERS) owner += " +" + (ts.length - MAX_OWNERS);
  }
  const homeText = home < 0 ? (isMatrix ? "every" : "cut")
    : [label, data.stages > 1 ? stage : "", home]
        .filter(word => word !== "").join(" · ");
  const first = home < 0 ? -1 : rankOf(0);
  return {
    cells: [name, shape, role, cut, rule, row[2], homeText, owner, costText,
            bytesText],
    keys: [name, bytes, role, cut, rule, row[2], first,
           home < 0 ? -1 : rankOf(ts[0]), cost, bytes],
    words: [name, shape, role, cut, rule].join(" ").toLowerCase(),
    bucket: row[2], stage, home, rule: rule.toLowerCase(), role, cut,
    hasRank: r => home < 0 ? isMatrix : ts.some(t => rankOf(t) === r),
  };
}

const rows = data.rows.map(expand);
let limit = PAGE, sortBy = -1, down = false;

// "home:3" asks for equality, any other word for a piece of the text.
function matcher(word) {
  const at = word.indexOf(":");
  const key = word.slice(0, at), value = word.slice(at + 1);
  if (["bucket", "home", "stage"].includes(key)) {
    return row => String(row[key]) === value;
  }
  if (["rule", "role", "cut"].includes(key)) return row => row[key] === value;
  if (key === "rank") return row => row.hasRank(Number(value));
  return row => row.words.includes(word);
}

function matches() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map(matcher);
  const found = rows.filter(row => tests.every(test => test(row)));
  if (sortBy < 0) return found;
  const order = new Intl.Collator("en", {numeric: true}).compare;
  const sign = down ? -1 : 1;
  return found.sort((a, b) => {
    const x = a.keys[sortBy], y = b.keys[sortBy];
    return sign * (typeof x === "number" ? x - y : order(x, y));
  });
}

function render() {
  const found = matches(), shown = found.slice(0, limit);
  const fresh = document.createElement("tbody");
  for (const row of shown) {
    const tr = fresh.insertRow();
    row.cells.forEach((text, i) => {
      const td = tr.insertCell();
      td.textContent = text;
      const css = i ? heads[i].className : "name";
      if (css) td.className = css;
    });
  }
  body.replaceChildren(...fresh.rows);
  const of = found.length < rows.length
    ? number(found.length) + " matches among " + number(rows.length)
    : number(rows.length);
  count.textContent = (shown.length < found.length
    ? "first " + number(shown.length) + " of " : "") + of + " tensors";
  more.hidden = shown.length === found.length;
  more.textContent = "Show " + PAGE + " more";
}

function search(text, scroll) {
  query.value = text;
  limit = PAGE;
  render();
  if (scroll) byId("tensors").scrollIntoView();
}

function readHash() {
  if (!location.hash.startsWith("#q=")) return;
  let text = location.hash.slice(3);
  try { text = decodeURIComponent(text); } catch (e) { /* as it stands */ }
  search(text, true);
}

function sortOn(i) {
  down = sortBy === i && !down;
  sortBy = i;
  heads.forEach((th, j) => {
    if (j !== i) th.removeAttribute("aria-sort");
    else th.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
  render();
}

heads.forEach((th, i) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...th.childNodes);
  button.addEventListener("click", () => sortOn(i));
  th.append(button);
});
query.hidden = false;
query.addEventListener("input", () => { limit = PAGE; render(); });
query.addEventListener("change", () => {
  history.replaceState(null, "", "#q=" + encodeURIComponent(query.value));
});
more.addEventListener("click", () => { limit += PAGE; render(); });
addEventListener("hashchange", readHash);

// Clicking a rank, run or matrix lists its tensors.
addEventListener("click", e => {
  const shape = e.target.closest("[data-q]");
  if (shape) location.hash = "#q=" + encodeURIComponent(shape.dataset.q);
});

render();
readHash();
document.documentElement.dataset.ready = "1";
})();
)js";

}  // namespace

std::string_view html_script() {
  static const std::string script = std::string(kHints) + std::string(kTensors);
  return script;
}

std::string_view html_hint_script() {
  static const std::string script =
      std::string(kHints) + "document.documentElement.dataset.ready = \"1\";\n";
  return script;
}

}  // namespace canzona
