// Horizontal bars: a row for each thing, its parts one after the other.

// rows [{name, parts: [[value, css, title], …], text}]; `mark` is a line from
// top to bottom, {value, text}. A wide drawing has names before the bars and
// texts behind them, a narrow one both above.
function horizontalBars({title, rows, most, ticks, mark, above = false}, width) {
  const over = above || width < WIDE, step = over ? 40 : 22, top = 26;
  const left = over ? 8 : Math.max(118, 16 + largest(rows.map(row => textWidth(row.name))));
  const right = over ? width - 26 : WIDE - 120, bottom = top + step * rows.length;
  const x = value => left + (right - left) * value / (most || 1);
  const drawing = new Drawing(width, bottom + 22, title);
  for (const [value, text] of ticks(most || 1)) {
    drawing.line(x(value), top - 4, x(value), bottom, "grid");
    drawing.text(x(value), bottom + 15, "middle dim", text);
  }
  rows.forEach((row, i) => {
    const y = top + step * i;
    drawing.text(over ? 0 : left - 8, y + 14, over ? "start strong" : "end", row.name);
    drawing.text(over ? width : right + 8, y + 14, over ? "end" : "start", row.text);
    let at = 0;
    for (const [value, css, what] of row.parts) {
      if (!(value > 0)) continue;
      drawing.rect(x(at), y + (over ? 19 : 2), x(at + value) - x(at), 17, "run " + css, what);
      at += value;
    }
  });
  if (mark) {
    const half = textWidth(mark.text) / 2;
    drawing.line(x(mark.value), top - 8, x(mark.value), bottom, "limit-line");
    drawing.text(clamp(x(mark.value), half, width - half), 12, "middle limit-line", mark.text);
  }
  return drawing;
}
