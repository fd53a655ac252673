// Keys, theme, print; and the beginning.
const KEYS = [
  ["← →", "move in time; inside the marks: the mark before or after"], ["+ −", "closer, farther"], ["0", "the whole time"],
  ["Tab, Enter", "reach the marks, open one"], ["n p", "open the next mark, the one before"], ["[ ]", "the node before, the next node"],
  ["/", "filter the pods"], ["t", "light or dark"], ["Escape", "close what is open; then the whole time"], ["?", "this help"],
];

function drawAll() {
  fleet();
  showNode();
  drawWhatIf();
}
function toggleTheme() {
  const open = lanes.at, shown = !byId("explain").hidden;
  setTheme(root.dataset.theme === "dark" ? "light" : "dark", true);
  drawAll();
  if (shown && open >= 0) openMark(open, false);
}
function help() {
  const dialog = byId("help");
  dialog.replaceChildren(el("h2", { id: "help-title", text: "Keys" }),
    el("dl", {}, ...KEYS.flatMap(([keys, what]) => [el("dt", {}, el("kbd", { text: keys })), el("dd", { text: what })])),
    el("button", { type: "button", text: "Close", on: { click: () => dialog.close() } }));
  dialog.showModal();
}
function otherNode(by) {
  const names = R.nodes.filter((each) => each.detail).map((each) => each.node);
  choose(names[(names.indexOf(node) + by + names.length) % names.length]);
}
function escape() {
  if (!byId("explain").hidden) closeMark();
  else wholeTime();
}
const ACTS = {
  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": wholeTime, Home: wholeTime,
  ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), Escape: escape, "?": help, t: toggleTheme,
  n: () => stepMark(1), p: () => stepMark(-1), "[": () => otherNode(-1), "]": () => otherNode(1),
  "/": () => byId("pods").querySelector("input")?.focus(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  const at = lanes.buttons.indexOf(event.target);
  if (event.target.matches("input, select") && event.key !== "Escape") return;
  if (at >= 0 && (event.key === "ArrowLeft" || event.key === "ArrowRight")) focusMark(at + (event.key === "ArrowRight" ? 1 : -1));
  else if (ACTS[event.key]) ACTS[event.key]();
  else return;
  event.preventDefault();
});
byId("whole").addEventListener("click", wholeTime);
byId("theme").addEventListener("click", toggleTheme);
byId("ask").addEventListener("click", help);
byId("print").addEventListener("click", () => print());
dark.addEventListener("change", () => { if (remembered() === null) { setTheme(dark.matches ? "dark" : "light", false); drawAll(); } });

const PRINTED_PX = 700;
let before = null;
addEventListener("beforeprint", () => {
  before = root.dataset.theme;
  setTheme("light", false);
  drawAll();
  fit(PRINTED_PX);
});
addEventListener("afterprint", () => {
  setTheme(before ?? "light", false);
  drawAll();
  fit();
});

about();
findings();
fleet();
nodes();
suspects();
pods();
policies();
whatIf();
showNode();
