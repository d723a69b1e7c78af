// The table of tensors: search, sorting, and what a click on a drawing shows.

const TENSOR_PAGE = 500;
const MAX_OWNERS = 8;
const ROWS_ON_PAPER = 60;  // as many as the style sheet leaves
const HEADS = [["tensor", "name"], ["shape", "n"], ["role"], ["cut"], ["rule"], ["bucket", "n"], ["home", "n"],
               ["owner rank", "n"], ["cost", "n"], ["bytes", "n"]];

// The rank of the world at plane t of a home of a part: those of experts are
// every ep-th home of the whole.
function worldRank([wholeTp, cp, ep], stage, home, t, [tp, homes, e]) {
  const rank = home * tp + t;
  if (e < 0) return stage * homes * tp + rank;
  const x = Math.floor(rank / wholeTp);
  const place = (Math.floor(x / cp) * ep + e) * cp + x % cp;
  return stage * homes * tp * ep + place * wholeTp + rank % wholeTp;
}

// A row of the data as the table shows it, with what it is searched and sorted by.
function tensorRow(plan, row) {
  const data = plan.tensors, pieces = data.patterns[row[0]];
  const [shape, role, cut, rule, cost, size, isMatrix] = data.kinds[row[1]];
  const [stage, at] = data.buckets[row[2]], home = row[3];
  const part = data.parts[at], tp = part[0], label = part[3];
  const name = pieces.reduce((text, piece, i) => text + row[4 + i] + piece);
  const rankOf = t => worldRank(data.mesh, stage, home, t, part);
  const all = row[4] === -1, ts = all ? Array.from({length: tp}, (_, t) => t) : [row[4]].flat();
  let owner = "–";
  if (home < 0 && isMatrix) owner = "every";
  else if (home >= 0 && all) owner = rankOf(0) + " … " + rankOf(tp - 1);
  else if (home >= 0) owner = ts.slice(0, MAX_OWNERS).map(rankOf).join(", ") +
    (ts.length > MAX_OWNERS ? " +" + (ts.length - MAX_OWNERS) : "");
  const homeName = home < 0 ? (isMatrix ? "every" : "cut")
    : [label, data.stages > 1 ? stage : "", home].filter(word => word !== "").join(" · ");
  const shapeText = dims(shape);
  return {
    cells: [name, shapeText, role, cut, rule, row[2], homeName, owner, isMatrix ? ticksText(plan, cost) : "–", bytes(size)],
    keys: [name, size, role, cut, rule, row[2], home < 0 ? -1 : rankOf(0), home < 0 ? -1 : rankOf(ts[0]), cost, size],
    words: [name, shapeText, role, cut, rule].join(" ").toLowerCase(),
    bucket: row[2], stage, home, rule: rule.toLowerCase(), role, cut,
    hasRank: rank => home < 0 ? isMatrix : ts.some(t => rankOf(t) === rank),
  };
}

// "home:3" asks for equality, any other word for a piece of the text.
function matcher(word) {
  const at = word.indexOf(":"), key = word.slice(0, at), value = word.slice(at + 1);
  if (["bucket", "home", "stage"].includes(key)) return row => String(row[key]) === value;
  if (["rule", "role", "cut"].includes(key)) return row => row[key] === value;
  if (key === "rank") return row => row.hasRank(Number(value));
  return row => row.words.includes(word);
}

class TensorTable {
  constructor(plan) {
    this.rows = plan.tensors.rows.map(row => tensorRow(plan, row));
    this.limit = TENSOR_PAGE;
    this.sortBy = -1;
    this.down = false;
    const example = `search: down_proj home:3 bucket:0 rank:12 rule:${plan.rule.name}`;
    this.query = el("input", {type: "search", id: "query", "aria-label": "Search tensors", autocomplete: "off",
                              spellcheck: "false", placeholder: example});
    this.count = el("output", {id: "count"});
    this.more = el("button", {type: "button", id: "more"}, `Show ${TENSOR_PAGE} more`);
    this.heads = HEADS.map(([name, css], i) => {
      const button = el("button", {type: "button"}, name);
      button.addEventListener("click", () => this.sortOn(i));
      return el(css === "n" ? "th.n" : "th", {scope: "col"}, button);
    });
    this.body = el("tbody");
    this.query.addEventListener("input", () => { this.limit = TENSOR_PAGE; this.render(); });
    this.query.addEventListener("change", () => {
      // A page inside a notebook has no address of its own.
      try { history.replaceState(null, "", "#q=" + encodeURIComponent(this.query.value)); } catch (error) { return; }
    });
    this.more.addEventListener("click", () => { this.limit += TENSOR_PAGE; this.render(); });
    this.render();
  }

  nodes() {
    return [el("div.tools", this.query, this.count),
      this.rows.length > ROWS_ON_PAPER
        ? el("p.note.paper", `The first ${ROWS_ON_PAPER} rows found, of ${counted(this.rows.length, "tensor")}.`) : null,
      el("div.scroll.tall", el("table", {id: "tensor-table"}, el("thead", el("tr", this.heads)), this.body)), this.more];
  }

  found() {
    const tests = this.query.value.toLowerCase().split(/\s+/).filter(Boolean).map(matcher);
    const found = this.rows.filter(row => tests.every(test => test(row)));
    if (this.sortBy < 0) return found;
    const order = new Intl.Collator("en", {numeric: true}).compare, sign = this.down ? -1 : 1;
    return found.sort((a, b) => {
      const x = a.keys[this.sortBy], y = b.keys[this.sortBy];
      return sign * (typeof x === "number" ? x - y : order(x, y));
    });
  }

  render() {
    const found = this.found(), shown = found.slice(0, this.limit), all = this.rows.length;
    this.body.replaceChildren(...shown.map(row => el("tr", row.cells.map((text, i) =>
      el(HEADS[i][1] ? "td." + HEADS[i][1] : "td", text)))));
    this.count.textContent = (shown.length < found.length ? `first ${grouped(shown.length)} of ` : "") +
      (found.length < all ? `${grouped(found.length)} matches among ${grouped(all)}` : grouped(all)) + " tensors";
    this.more.hidden = shown.length === found.length;
  }

  sortOn(i) {
    this.down = this.sortBy === i && !this.down;
    this.sortBy = i;
    this.heads.forEach((th, j) => {
      if (j !== i) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    });
    this.render();
  }

  // Searches for what the address says behind "#q=".
  readHash() {
    if (!location.hash.startsWith("#q=")) return;
    let text = location.hash.slice(3);
    try { text = decodeURIComponent(text); } catch (error) { /* as it stands */ }
    this.query.value = text;
    this.limit = TENSOR_PAGE;
    this.render();
    document.getElementById("tensors").scrollIntoView();
  }
}

let tensorTable = null;

function tensorsSection(plan) {
  tensorTable = new TensorTable(plan);
  return section("tensors", "Tensors", "Tensors",
    el("p", `Every tensor with its rule, its home and its owner under strategy ${plan.strategy}. Cost: matrix work per ` +
       `step, predicted (${rateText(plan)}). Bytes: the whole tensor, ${plan.options.parameters}.`),
    tensorTable.nodes());
}

// A click on a rank, run or matrix lists its tensors.
function listenForQueries() {
  addEventListener("click", event => {
    const shape = event.target.closest("[data-q]");
    if (shape) location.hash = "#q=" + encodeURIComponent(shape.dataset.q);
  });
  addEventListener("hashchange", () => tensorTable.readHash());
  tensorTable.readHash();
}
