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

# open <page> [#fragment] [more arguments]: leaves the document in $dom.
dom=$folder/dom.html
open() {
  page=$1
  fragment=${2:-}
  shift
  [ $# -gt 0 ] && shift
  chrome "$@" --dump-dom "file://$folder/$page$fragment" >"$dom"
}

has() {
  grep -qF -e "$1" "$dom" || fail "$page$fragment: expected $1"
}
has_not() {
  if grep -qF -e "$1" "$dom"; then fail "$page$fragment: unexpected $1"; fi
}
# The script ran to its end, and no error came up.
ran() {
  has 'data-ready="1"'
  has_not 'data-error'
}
rows() {
  count=$(grep -o '<td class="name">' "$dom" | wc -l)
  [ "$count" -eq "$1" ] || fail "$page$fragment: $count rows, expected $1"
}
# The rows of the table of tensors in a file, on one line.
table_of() {
  tr -d '\n' <"$1" | sed 's/.*<table id="tensor-table">//; s/<\/table>.*//
    s/.*<tbody>//'
}

open small.html
ran
rows 42
has '>42 tensors</output>'
# The script shows what stood in the page before it ran.
[ "$(table_of "$folder/small.html")" = "$(table_of "$dom")" ] ||
  fail "small.html: the script shows other rows than the page"

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

open hostile.html
ran
has_not '<img'
has '<td class="name">&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;</td>'
open hostile.html '#q=%3Cimg'
ran
rows 1
has_not '<img'

open large.html
ran
rows 500
has 'first 500 of 36,'
has 'class="cell heat'
open large.html '#q=experts.127.down_proj%20bucket:5'
ran
rows 4

for other in one_rank.html no_matrices.html; do
  open $other
  ran
done

# Runs: hints are the page's only script; the panels need none.
open run.html
ran
has 'Loss over steps'
has '1.23M parameters'
open runs.html
ran
has '<section id="runs">'
has 'class="differs"'
open hostile_run.html
ran
has_not '<img'

# Sizes of ZeRO: ten rows, the rest folded.
open zero.html
ran
has '<details class="rest">'
has 'choices more'

# A page in a frame as wide as asked. The page must not scroll sideways, no text
# of a drawing may leave it, and what is wider scrolls in a box of its own.
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
for page in small hostile large run runs zero zero_experts; do
  for width in 420 1280; do
    chrome --allow-file-access-from-files --window-size=1400,1000 --dump-dom \
      "file://$folder/frame.html#$page.html,$width" >"$dom"
    grep -q 'data-found="nothing"' "$dom" ||
      fail "$page.html at $width: $(grep -o 'data-found="[^"]*"' "$dom")"
    grep -q 'data-seen="[1-9]' "$dom" || fail "$page.html at $width: not seen"
    if [ $width = 420 ] && ! grep -q 'drawings, [1-9]' "$dom"; then
      fail "$page.html at $width: no drawing for a narrow screen"
    fi
  done
done

# A script that the page's policy does not name is refused, and without its
# script the page still has its tables.
sed 's/sha256-[^&]*/sha256-AAAA/' "$folder/large.html" >"$folder/refused.html"
open refused.html
has_not 'data-ready'
rows 100
has 'Searching needs the page'

# 0: dark, 1: light.
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
