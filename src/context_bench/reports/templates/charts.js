// Buttons above the first chart hide and show the marks of a system in every chart of the page. Names come from `data-of` and are only
// ever made text.
function offerSystems(root) {
  const first = root.querySelector("figure"), marks = [...root.querySelectorAll("figure [data-of]")];
  const names = [...new Set(marks.map((mark) => mark.dataset.of))];
  if (!first || names.length < 2 || names.length > 24 || root.querySelector(".systems")) return;
  const bar = document.createElement("div"), label = document.createElement("span");
  bar.className = "systems";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Systems shown in the charts");
  label.textContent = "In the charts:";
  bar.append(label);
  for (const name of names) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const mark of marks) if (mark.dataset.of === name) mark.classList.toggle("off", !shown);
    });
    bar.append(button);
  }
  first.before(bar);
}
offerSystems(document);
