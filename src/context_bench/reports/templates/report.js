"use strict";
// Rows are data: cells are made of plain text only, so no text can become markup. What a row opens to was made, escaped, when the page
// was built; it is unpacked and parsed as a document of its own, in which nothing runs, and its elements are taken over.
const block = JSON.parse(document.getElementById("row-data").textContent);
const { columns, details } = block, PAGE = 20;
let rowData = [], shown = [], page = 0, sortBy = null, descending = false;
const open = new Set(), chunks = new Map(), $ = (id) => document.getElementById(id);

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}
async function chunk(number) {
  if (!chunks.has(number)) {
    chunks.set(number, unpack($("chunk-" + number).textContent).then((text) => new DOMParser().parseFromString(text, "text/html").body.children));
  }
  return chunks.get(number);
}
async function fill(cell, at) {
  const ready = $("detail-" + at); // drawn as it stands, not packed
  if (ready) return void cell.append(ready.content.cloneNode(true));
  try {
    cell.append(document.importNode((await chunk(Math.floor(details[at] / block.size)))[details[at] % block.size], true));
  } catch (error) {
    cell.append("This browser cannot unpack what stands here; a newer one can. (" + error.message + ")");
  }
}
function named(element, text) { // a path breaks at its strokes, on paper a long name where its words meet
  const parts = text.split(/(?<=[_/])/), between = (n) => make("wbr", undefined, parts[n - 1].endsWith("/") ? "" : "onpaper");
  element.replaceChildren(...parts.flatMap((part, n) => n ? [between(n), part] : [part]));
  return element;
}
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function dollars(value) { // as in core/measures.py
  const size = Math.abs(value), digits = size >= 1 || size === 0 ? 2 : size >= 0.01 ? 4 : Math.min(15, 2 - Math.floor(Math.log10(size)));
  return (value < 0 ? "-$" : "$") + size.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
function took(seconds) {
  if (seconds > 0 && seconds < 0.00005) return "<0.1 ms";
  if (seconds < 0.9995) return (1000 * seconds).toFixed(seconds > 0 && seconds < 0.00995 ? 1 : 0) + " ms";
  if (seconds < 59.95) return seconds.toFixed(seconds < 10 ? 3 : 1) + " s";
  const minutes = Math.floor(Math.round(seconds) / 60);
  return minutes < 60 ? minutes + " min " + Math.round(seconds) % 60 + " s" : Math.floor(minutes / 60).toLocaleString("en-US") + " h " + minutes % 60 + " min";
}
function cellText(value, column) {
  if (value === null || value === undefined || value === "") return "—";
  if (typeof value !== "number") return String(value);
  if (column.unit) return (column.unit === "usd" ? dollars : took)(value);
  return column.digits === undefined ? value.toLocaleString("en-US") : value.toFixed(column.digits);
}
function kindOf(column, otherwise) { // what is aside is not printed
  return (column.kind === "number" ? "n" : otherwise) + (column.aside ? " aside" : "") + (column.spare ? " spare" : "") + (column.unused ? " unused" : "");
}
function compare(a, b) {
  const x = a.cells[sortBy], y = b.cells[sortBy];
  if (x === null || y === null) return x === y ? a.at - b.at : x === null ? 1 : -1; // unknown last, either way
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x) < String(y) ? -1 : String(x) > String(y) ? 1 : 0;
  return (descending ? -order : order) || a.at - b.at;
}
function words(row) {
  return (row.words ??= row.cells.filter((cell) => typeof cell === "string").join("\n").toLowerCase());
}
function filterRows() {
  const wanted = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), system = $("system").value;
  const failed = $("failed").checked, changed = $("changed") && $("changed").checked;
  shown = rowData.filter((row) =>
    (system === "" || row.cells[0] === system) && (!failed || row.cells[row.cells.length - 1]) &&
    (!changed || block.changed[row.at] === "1") && wanted.every((word) => words(row).includes(word)));
  if (sortBy !== null) shown.sort(compare);
  page = 0;
  renderTable();
}
function sortRows(at) {
  descending = sortBy === at ? !descending : false;
  sortBy = at;
  filterRows();
}
function toggle(at) {
  if (!open.delete(at)) open.add(at);
  renderTable();
  $("row-" + at).querySelector("button").focus();
}
function detailRow(at) {
  const row = make("tr", undefined, "detail"), cell = row.appendChild(make("td"));
  row.id = "opened-" + at;
  cell.colSpan = columns.length + 1;
  row.addEventListener("keydown", (event) => { if (event.key === "Escape") toggle(at); });
  fill(cell, at);
  return row;
}
function dataRow({ cells, at }) {
  const row = make("tr", undefined, open.has(at) ? "open" : ""), first = row.appendChild(make("td"));
  if (details[at] >= 0) {
    const button = first.appendChild(make("button", open.has(at) ? "−" : "+"));
    button.type = "button";
    button.setAttribute("aria-expanded", String(open.has(at)));
    if (open.has(at)) button.setAttribute("aria-controls", "opened-" + at);
    button.setAttribute("aria-label", "Details of " + cells[0] + ", " + cells[1]);
    button.addEventListener("click", () => toggle(at));
  }
  row.id = "row-" + at;
  cells.forEach((value, n) => {
    const text = cellText(value, columns[n]), cell = make("td", undefined, kindOf(columns[n], "id") + (text === "—" ? "" : " filled"));
    cell.dataset.of = columns[n].title;
    row.append(named(cell, text));
  });
  return row;
}
function renderTable() {
  const body = $("rows").tBodies[0], pages = Math.max(1, Math.ceil(shown.length / PAGE));
  page = Math.max(0, Math.min(page, pages - 1));
  body.replaceChildren();
  for (const entry of shown.slice(page * PAGE, (page + 1) * PAGE)) {
    body.append(dataRow(entry));
    if (open.has(entry.at)) body.append(detailRow(entry.at));
  }
  if (!shown.length) body.appendChild(make("tr")).appendChild(make("td", "No row fits the filter.", "empty")).colSpan = columns.length + 1;
  const some = shown.length < rowData.length ? shown.length.toLocaleString("en-US") + " of " : "";
  $("count").textContent = some + rowData.length.toLocaleString("en-US") + " rows, page " + (page + 1) + " of " + pages.toLocaleString("en-US");
  $("page").value = page + 1;
  $("page").max = pages;
  $("previous").disabled = page === 0;
  $("next").disabled = page + 1 >= pages;
  [...$("rows").tHead.rows[0].cells].slice(1).forEach((cell, n) => {
    cell.setAttribute("aria-sort", n !== sortBy ? "none" : descending ? "descending" : "ascending");
    named(cell.firstChild, columns[n].title + (n !== sortBy ? "" : descending ? " ↓" : " ↑"));
  });
  fitRows();
}
function fitRows() {
  const away = fitScores($("rows"), $("scores").checked);
  $("more-scores").hidden = !away && !$("scores").checked;
}
function turnTo(number) {
  page = number;
  renderTable();
}
function showLinked() { // #row-12: that row, opened, wherever it stands
  const found = /^#row-(\d+)$/.exec(location.hash), at = found ? Number(found[1]) : -1;
  if (!rowData[at]) return;
  if (!shown.includes(rowData[at])) {
    $("filter").value = $("system").value = "";
    for (const id of ["failed", "changed"]) if ($(id)) $(id).checked = false;
    filterRows();
  }
  if (details[at] >= 0) open.add(at);
  turnTo(Math.floor(shown.indexOf(rowData[at]) / PAGE));
  $("row-" + at).scrollIntoView();
  ($("row-" + at).querySelector("button") || $("rows").parentElement).focus({ preventScroll: true });
}
function goByArrow(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], here = event.target.closest("tbody > tr > td:first-child > button");
  if (!step || !here) return;
  const all = [...$("rows").tBodies[0].querySelectorAll("tr[id^=row-] > td:first-child > button")], next = all[all.indexOf(here) + step];
  if (next) next.focus();
  event.preventDefault();
}
async function start() {
  rowData = (block.packed ? JSON.parse(await unpack(block.packed)) : block.rows).map((cells, at) => ({ cells, at }));
  columns.forEach((column, n) => { column.unused = rowData.length > 0 && rowData.every(({ cells }) => cellText(cells[n], column) === "—"); });
  const head = $("rows").tHead.rows[0];
  head.append(make("td"));
  columns.forEach((column, n) => {
    const button = named(make("button"), column.title), cell = make("th", undefined, kindOf(column, ""));
    cell.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => sortRows(n));
    cell.append(button);
    head.append(cell);
  });
  shown = rowData.slice();
  for (const name of new Set(rowData.map(({ cells }) => cells[0]))) $("system").append(new Option(name, name));
  for (const id of ["filter", "system", "failed", "changed"]) if ($(id)) $(id).addEventListener("input", filterRows);
  $("previous").addEventListener("click", () => turnTo(page - 1));
  $("next").addEventListener("click", () => turnTo(page + 1));
  $("page").addEventListener("change", () => turnTo(Math.floor(Number($("page").value) || 1) - 1));
  $("rows").addEventListener("keydown", goByArrow);
  $("scores").addEventListener("input", fitRows);
  addEventListener("resize", fitRows);
  if ($("changed")) $("changed").disabled = !block.changed.includes("1");
  if ($("all")) $("all").addEventListener("click", () => {
    const here = shown.slice(page * PAGE, (page + 1) * PAGE).map(({ at }) => at).filter((at) => details[at] >= 0);
    const every = here.every((at) => open.has(at));
    for (const at of here) if (every) open.delete(at); else open.add(at);
    renderTable();
  });
  if (block.open) rowData.forEach(({ at }) => open.add(at));
  renderTable();
  addEventListener("hashchange", showLinked);
  if (document.readyState === "complete") showLinked();
  else addEventListener("load", showLinked); // the browser's own jump comes before
}
start();
