"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const form = document.getElementById("filters");
const articles = all("article");
const rows = all("[data-verdict]"); // the headline too, which stays in sight
const opened = new Set(); // details that a filter opened

function filter() {
  const chosen = (name) => new Set(all(`input[name="${name}"]:checked`).map((box) => box.value));
  const verdicts = chosen("verdict");
  const datasets = chosen("dataset");
  const everything = all("input", form).every((box) => box.checked);
  let shown = 0;
  for (const row of rows) {
    const dataset = row.dataset.dataset; // empty: no data set, shown with all of them
    const fits = everything || (verdicts.has(row.dataset.verdict) && (!dataset || datasets.has(dataset)));
    if (row.localName === "tr") row.hidden = !fits;
    shown += fits;
  }
  for (const article of articles) {
    const left = all("tr[data-verdict]:not([hidden])", article).length;
    article.hidden = left === 0;
    document.querySelector(`nav li[data-for="${article.id}"]`).hidden = left === 0;
    const details = article.querySelector("details.verdicts");
    if (!everything && left && !details.open) {
      details.open = true;
      opened.add(details);
    } else if (everything && opened.has(details)) {
      details.open = false;
      opened.delete(details);
    }
  }
  document.getElementById("shown").textContent = `${shown} of ${rows.length} rows`;
  document.getElementById("nothing").hidden = articles.some((one) => !one.hidden);
}

function value(cell) {
  const text = cell.dataset.sort ?? cell.textContent.trim();
  const match = text.match(/^[~<>= ]*(-?[\d.,]+)\s*([KM%]?)/);
  if (!match) return text;
  const number = Number(match[1].replaceAll(",", "")) * ({ K: 1e3, M: 1e6 }[match[2]] ?? 1);
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) { // numbers, then words, then what is missing
  const missing = (v) => v === "" || v === "–";
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a.localeCompare(b, "en", { numeric: true });
}

function sort(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const order = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort ?? "none"];
  for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
  if (order !== "none") head.setAttribute("aria-sort", order);
  const place = head.cellIndex;
  const lines = all("tr", body);
  lines.forEach((line, k) => { line.dataset.place ??= k; });
  lines.sort((a, b) => {
    const first = a.dataset.place - b.dataset.place;
    if (order === "none") return first;
    const [x, y] = [value(a.cells[place]), value(b.cells[place])];
    const found = compare(x, y);
    const empty = [x, y].some((v) => v === "" || v === "–"); // stays last
    return (order === "descending" && !empty ? -found : found) || first;
  });
  body.append(...lines);
}

all("table.sortable thead th").forEach((head) => head.addEventListener("click", () => sort(head)));
form.addEventListener("change", filter);
form.addEventListener("reset", () => setTimeout(filter));
document.querySelector("#nothing button").addEventListener("click", () => form.reset());
const details = all("details.verdicts");
document.getElementById("open").addEventListener("click", (event) => {
  const open = details.some((one) => !one.open);
  details.forEach((one) => { one.open = open; });
  event.target.textContent = open ? "close all rows" : "open all rows";
});
addEventListener("beforeprint", () => details.forEach((one) => { one.open = true; }));
if (matchMedia("(max-width: 60rem)").matches) document.getElementById("contents").open = false;
filter(); // a browser may have kept the boxes of an earlier visit
