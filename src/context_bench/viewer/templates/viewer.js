"use strict";
// Parts of pages come from the server ready made, with everything in them escaped; this only puts them in their places.
const every = (selector, use) => document.querySelectorAll(selector).forEach(use);

async function part(address) {
  const response = await fetch(address, { credentials: "same-origin" });
  const text = await response.text();
  if (!response.ok) throw new Error(response.status === 403 ? "The viewer was started anew: open the address it printed." : `The server said ${response.status}.`);
  return text;
}
function say(box, text) {
  const line = document.createElement("p");
  line.className = "about";
  line.setAttribute("role", "status");
  line.textContent = text;
  box.replaceChildren(line);
}
async function fill(box) {
  if (box.dataset.filled || !box.dataset.fragment) return;
  box.dataset.filled = "1";
  const ready = box.querySelector("section, dl");
  if (ready && !box.dataset.stale) return;
  const waiting = setTimeout(() => { if (!ready) say(box, box.dataset.busy); }, 150);
  try {
    const html = await part(box.dataset.fragment);
    clearTimeout(waiting);
    box.innerHTML = html;
    offerSystems(box);
  } catch (error) {
    clearTimeout(waiting);
    delete box.dataset.filled;
    say(box, String(error.message || error));
  }
}
every("[data-fragment]", (box) => {
  const fold = box.closest("details");
  if (!fold || fold.open) fill(box);
  if (fold) fold.addEventListener("toggle", () => { if (fold.open) fill(box); });
});

(async () => {
  for (const cell of document.querySelectorAll("[data-verdicts]")) {
    try { cell.innerHTML = await part(cell.dataset.verdicts); } catch { return; }
  }
})();

const fitTables = () => every("table.each", (table) => fitScores(table, matchMedia("(max-width: 46rem)").matches)); // there the cells stand in lines
addEventListener("resize", fitTables);
fitTables();

every("[data-submit]", (field) => field.addEventListener("change", () => field.form.requestSubmit()));

every("form[data-two]", (form) => {
  const boxes = [...form.querySelectorAll("input[type=checkbox]")], button = form.querySelector("button");
  if (!button) return;
  const count = () => {
    const ticked = boxes.filter((box) => box.checked).length;
    button.disabled = ticked !== 2;
    boxes.forEach((box) => { box.disabled = ticked >= 2 && !box.checked; });
  };
  boxes.forEach((box) => box.addEventListener("change", count));
  addEventListener("pageshow", count);
  count();
});

every("[data-events]", (box) => {
  const source = new EventSource(box.dataset.events);
  source.addEventListener("progress", (event) => { box.innerHTML = event.data; });
  source.addEventListener("end", () => { source.close(); location.reload(); });
  addEventListener("pagehide", () => source.close());
});

addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("input, select, textarea, .scroll, pre, [contenteditable]")) return;
  const link = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const there = link && document.querySelector(`a[rel=${link}]`);
  if (there) there.click();
});
