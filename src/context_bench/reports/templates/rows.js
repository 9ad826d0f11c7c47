// Columns of scores that there is no room for are left out, the last ones first; true if some were.
function fitScores(table, all) {
  const rows = [...table.rows], head = rows[0].cells, box = table.parentElement;
  for (const cell of table.querySelectorAll(".away")) cell.classList.remove("away");
  const room = matchMedia("(max-width: 46rem)").matches ? 8 : Infinity; // there the cells stand in lines
  for (let n = head.length - 1; n >= 0 && !all && (n >= room || box.scrollWidth > box.clientWidth); n--) {
    if (!head[n].classList.contains("spare")) continue;
    for (const row of rows) if (row.cells.length === head.length) row.cells[n].classList.add("away");
  }
  return table.querySelector("thead .away") !== null;
}
