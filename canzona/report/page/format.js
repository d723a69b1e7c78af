// Numbers as the command line prints them.
"use strict";

// As the command line rounds: to even where a number lies exactly between two,
// which is where toFixed rounds up.
function fixed(value, digits) {
  const rounded = value.toFixed(digits);
  const isTie = Math.abs(value) * 2 ** (digits + 1) % 2 === 1;
  if (!isTie || Number(rounded[rounded.length - 1]) % 2 === 0) return rounded;
  return value.toFixed(digits + 1).slice(0, digits > 0 ? -1 : -2);
}

const grouped = number => Math.round(number).toLocaleString("en");

const plural = {matrix: "matrices", "micro-batch": "micro-batches"};

// "3 tensors", "1 tensor", "2 matrices".
function counted(number, thing) {
  return number === 1 ? "1 " + thing
    : grouped(number) + " " + (plural[thing] || thing + "s");
}

// A ratio whose best value is 1: "1.0003", "2.462", "131.5".
function ratio(value) {
  return fixed(value, value < 1.1 ? 4 : value < 100 ? 3 : 1);
}

// Three digits that matter: 1.23, 12.3, 123, 1234.
function threeDigits(value) {
  const size = Math.abs(value);
  return fixed(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

// As printf's %g with so many digits.
const significant = (value, digits) => String(Number(value.toPrecision(digits)));

function bytes(value) {
  if (Math.abs(value) < 1024) return Math.trunc(value) + " B";
  let unit = 0;
  for (value /= 1024; Math.abs(value) >= 1023.995; value /= 1024) unit++;
  return fixed(value, 2) + " " + ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
}

function seconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 999.5e-9) return threeDigits(value * 1e9) + " ns";
  if (size < 999.5e-6) return threeDigits(value * 1e6) + " us";
  if (size < 999.5e-3) return threeDigits(value * 1e3) + " ms";
  return threeDigits(value) + " s";
}

// 1234567 as "1.23M".
function count(value) {
  if (Math.abs(value) < 999.5 && Number.isInteger(value)) return String(value);
  let unit = 0;
  for (; Math.abs(value) >= 999.5 && unit < 4; unit++) value /= 1000;
  return threeDigits(value) + ["", "K", "M", "B", "T"][unit];
}

function flops(value) {
  let unit = 0;
  for (; value >= 999.5 && unit < 6; unit++) value /= 1000;
  return threeDigits(value) + " " + ["", "K", "M", "G", "T", "P", "E"][unit] + "flop";
}

// 75 seconds as "1:15", 4000 as "1:06:40".
function clock(value) {
  if (!(value >= 0 && value <= 1e8)) return "?";
  const whole = Math.round(value), two = n => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60), rest = two(whole % 60);
  return minutes < 60 ? minutes + ":" + rest
    : Math.floor(minutes / 60) + ":" + two(minutes % 60) + ":" + rest;
}

const percent = share => fixed(100 * share, 1) + " %";
const bandwidth = value => significant(value / 1e9, 6) + " GB/s";
const dims = shape => shape.length ? shape.join(" × ") : "scalar";

// null stands for a number that is not known.
const loss = value => value === null ? "–" : fixed(value, 4);

// {dp: 4, tp: 2} as "dp=4,tp=2".
function meshText(mesh) {
  return Object.entries(mesh).filter(([, size]) => size > 1)
    .map(([axis, size]) => axis + "=" + size).join(",") || "dp=1";
}
