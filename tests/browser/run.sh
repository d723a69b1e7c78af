#!/bin/sh
# run.sh <make_reports> <folder>
#
# Opens HTML reports in headless Chromium and looks at what became of them.
# Exits with 77, which ctest counts as skipped, where there is no Chromium.
set -u
make_reports=${1:?usage: run.sh <make_reports> <folder>}
folder=${2:?usage: run.sh <make_reports> <folder>}

browser=
for name in chromium chromium-browser google-chrome; do
  browser=$(command -v "$name") && break
done
if [ -z "$browser" ]; then
  echo "skipped: no Chromium (Debian: apt-get install chromium)"
  exit 77
fi

rm -rf "$folder"
mkdir -p "$folder/profile" || exit 1
folder=$(cd "$folder" && pwd)
"$make_reports" "$folder" || exit 1

# chrome <argument>...: the sandbox cannot be had as root.
sandbox=
[ "$(id -u)" = 0 ] && sandbox=--no-sandbox
chrome() {
  # shellcheck disable=SC2086
  HOME=$folder timeout 120 "$browser" --headless $sandbox --disable-gpu \
    --hide-scrollbars --no-first-run --disable-dev-shm-usage \
    --user-data-dir="$folder/profile" --virtual-time-budget=10000 \
    "$@" 2>>"$folder/chromium.log"
}

# If users may not make namespaces the sandbox cannot start either; the pages
# are our own, so that it may be left out.
starts() {
  chrome --dump-dom about:blank | grep -q '<html>'
}
if ! starts; then
  sandbox=--no-sandbox
  if ! starts; then
    echo "$browser does not start:"
    tail -5 "$folder/chromium.log"
    exit 1
  fi
fi

failures=0
fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# open <page> [#fragment] [more arguments]: leaves the document in $dom, without
# its scripts, which are not what a reader sees.
dom=$folder/dom.html
open() {
  page=$1
  fragment=${2:-}
  shift
  [ $# -gt 0 ] && shift
  chrome "$@" --dump-dom "file://$folder/$page$fragment" |
    sed '/^<script type=/d; /^<script>$/,/<\/script>/{s/^.*<\/script>//;t;d}' \
      >"$dom"
}

has() {
  grep -qF -e "$1" "$dom" || fail "$page$fragment: expected $1"
}
has_not() {
  if grep -qF -e "$1" "$dom"; then fail "$page$fragment: unexpected $1"; fi
}
# Checks that the page's script ran to its end without an error.
ran() {
  has 'data-ready="1"'
  has_not 'data-error'
}
rows() {
  count=$(grep -o '<td class="name">' "$dom" | wc -l)
  [ "$count" -eq "$1" ] || fail "$page$fragment: $count rows, expected $1"
}
# count <number> <text>: checks how often the text occurs in the document.
count() {
  found=$(grep -oF -e "$2" "$dom" | wc -l)
  [ "$found" -eq "$1" ] || fail "$page$fragment: $found of $2, expected $1"
}

open small.html
ran
rows 42
has '>42 tensors</output>'
# Every drawing exists for a wide and for a narrow screen. Eight ranks have a
# bar of load and five kinds of memory each; two buckets have the runs of four
# homes each.
count 2 '<title>Load per rank, as a multiple of the mean</title>'
count 96 'data-q="rank:'
count 8 'data-q="bucket:1 home:'
has 'rank 5 (home 2, t 1), balanced: '
has 'bucket 1: home 2, 4 tensors'
has '>1024 × 2048</td>'
has '× the lower bound'
has 'nominal rate, no cost table'
has '>18.62 MiB</td>'
has_not '<section id="strategies">'
has_not 'NaN'
has_not 'undefined'

open small.html '#q=fc2%20home:3'
ran
rows 2
has '>2 matches among 42 tensors</output>'
has_not '<td class="name">layers.0.attn.qkv</td>'

open small.html '#q=rank:1'
ran
has '<td class="name">layers.0.attn.qkv</td>'
has_not '<td class="name">layers.7.mlp.fc2</td>'

open small.html '#q=no%20such%20tensor'
ran
rows 0
has '>0 matches among 42 tensors</output>'

# Names appear as text, without control characters, everywhere.
hostile='&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;'"'"'"��--&gt;&lt;!--'
open hostile.html
ran
has_not '<img'
has "<td class=\"name\">$hostile</td>"
has "<h1>$hostile</h1>"
has 'before, start_offset'
has 'All strategies, ranks sorted by load'
count 1 '<section id="strategies">'
open hostile.html '#q=%3Cimg'
ran
rows 1
has_not '<img'

open large.html
ran
rows 500
has 'first 500 of 36,'
# Two strategies are drawn twice each.
count 4096 'class="cell heat'
has 'rank 1023 (home 127, t 7)'
has_not 'NaN'
open large.html '#q=experts.127.down_proj%20bucket:5'
ran
rows 4

# With 128 ranks, homes are counted over dp, cp and ep.
open meshed.html
ran
has 'rank 127 (stage 1, home 15, t 3)'
count 256 'class="cell heat'
has_not 'NaN'
open one_rank.html
ran
has_not 'NaN'
open no_matrices.html
ran
has 'there is no matrix to own'
has 'No matrices, no load to balance.'
has_not 'NaN'

# A report on runs has the loss and six figures for every step.
open run.html
ran
has 'Loss over steps'
has '1.23M parameters'
has 'perplexity 5.176'
count 2 '<title>Loss over steps</title>'
count 1 '<title>Norm of the gradient</title>'
has '<title>muon, every step</title>'
has_not 'NaN'
open runs.html
ran
has '<section id="runs">'
has 'muon: time to adamw’s loss'
has 'class="differs"'
open hostile_run.html
ran
has_not '<img'
has "$hostile"

open storage.html
ran
has_not '<img'
has "<th>$hostile"
has '<title>Load per rank, as a multiple of the mean</title>'
has 'gather to owners: '
open cluster.html
ran
has_not '<img'
has "<h1>$hostile</h1>"
has 'first stage, compute: '

# The best mesh of each kind, twice: its time and its memory.
open mesh.html
ran
has_not '<img'
has "<h1>$hostile</h1>"
count 2 '<title>hierarchical zero, tp: 500 ms</title>'
count 2 '<title>tp: activations: 5.00 GiB</title>'
has 'cap 40.00 GiB'
has '<pre>canzona train --mesh dp=8,tp=8</pre>'
has 'loses 25.0 %'
has_not 'NaN'
has_not 'undefined'

# A ranking of ZeRO sizes shows ten rows; the others are folded.
open zero.html
ran
count 3 '<details class="rest">'
has 'choices more'
has '<th>hier:8<small></small></th>'
has 'cap 40.00 GiB'
open zero_experts.html
ran
has 'zero-experts'

# Opens a page in a frame of a given width. The page must not scroll sideways,
# no text may leave its drawing, and wider content must scroll in a box of its
# own.
cat >"$folder/frame.html" <<'PAGE'
<!doctype html><html><body style="margin:0"><script>
const [page, width] = location.hash.slice(1).split(",");
const frame = document.createElement("iframe");
frame.style = "border:0;height:900px;width:" + width + "px";
frame.onload = () => {
  const inner = frame.contentWindow, doc = inner.document;
  doc.querySelectorAll("details").forEach(d => { d.open = true; });
  const found = [];
  const root = doc.documentElement;
  if (root.scrollWidth > inner.innerWidth)
    found.push("scrolls to " + root.scrollWidth);
  for (const tile of doc.querySelectorAll(".tile"))
    if (tile.scrollWidth > tile.clientWidth) found.push("wide tile");
  let texts = 0, narrow = 0, svgs = 0;
  for (const svg of doc.querySelectorAll("svg[role=img]")) {
    const outer = svg.getBoundingClientRect();
    if (outer.width === 0) continue;
    svgs++;
    if (outer.right > inner.innerWidth + 1) found.push("wide drawing");
    if (svg.closest(".narrow")) narrow++;
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      texts++;
      if (box.left < outer.left - 1 || box.right > outer.right + 1)
        found.push("cut: " + text.textContent);
    }
  }
  const body = document.body.dataset;
  body.found = found.length ? found.slice(0, 5).join("; ") : "nothing";
  body.seen = svgs + " drawings, " + narrow + " narrow, " + texts + " texts";
};
frame.src = page;
document.body.append(frame);
</script></body></html>
PAGE
for page in small hostile large run runs hostile_run storage zero zero_experts \
  cluster mesh; do
  for width in 420 1400; do
    chrome --allow-file-access-from-files --window-size=1500,1000 --dump-dom \
      "file://$folder/frame.html#$page.html,$width" >"$dom"
    grep -q 'data-found="nothing"' "$dom" ||
      fail "$page.html at $width: $(grep -o 'data-found="[^"]*"' "$dom")"
    grep -q 'data-seen="[1-9]' "$dom" || fail "$page.html at $width: not seen"
    if [ $width = 420 ] && ! grep -q 'drawings, [1-9]' "$dom"; then
      fail "$page.html at $width: no drawing for a narrow screen"
    fi
  done
done

# The browser refuses a script that the page's policy does not name, and without
# its script the page explains itself.
sed "s/sha256-[^']*/sha256-AAAA/" "$folder/large.html" >"$folder/refused.html"
open refused.html
has_not 'data-ready'
cat >"$folder/silent.html" <<'PAGE'
<!doctype html><html><body><script>
const frame = document.createElement("iframe");
frame.sandbox = "allow-same-origin";  // and no scripts
frame.onload = () => {
  document.body.dataset.seen = frame.contentDocument.body.innerText;
};
frame.src = "small.html";
document.body.append(frame);
</script></body></html>
PAGE
open silent.html '' --allow-file-access-from-files
has 'and scripts are switched off here'

# The scheme is 0 for dark and 1 for light.
for page in small run; do
  for scheme in 0 1; do
    picture=$folder/${page}_$scheme.png
    chrome --screenshot="$picture" --window-size=1240,2400 \
      --blink-settings=preferredColorScheme=$scheme \
      "file://$folder/$page.html" >/dev/null
    [ "$(wc -c <"$picture")" -gt 50000 ] ||
      fail "$page.html: the picture in scheme $scheme shows nothing"
  done
  if cmp -s "$folder/${page}_0.png" "$folder/${page}_1.png"; then
    fail "$page.html: dark and light look alike"
  fi
done

[ $failures -eq 0 ] && echo "all pages are as they should be"
exit $((failures > 0))
