#include "canzona/report/html_script.h"

#include <string>

namespace canzona {
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
