// What was beside what the other policy would have made of it: figures, curves, stated limits.
const FIGURE_NAMES = {
  commands: ["commands", 1, ""], evictions: ["pods evicted by command", 1, "less"],
  batch_cpu_core_ms: ["batch CPU offered, core-hours", 3.6e6, "more"], mid_cpu_core_ms: ["mid CPU offered, core-hours", 3.6e6, "more"],
  best_effort_core_ms: ["best-effort CPU used, core-hours", 3.6e6, "more"], withheld_core_ms: ["best-effort CPU withheld, core-hours", 3.6e6, ""],
  above_recorded_ms: ["above the recorded threshold, node-seconds", 1e3, "less"], above_other_ms: ["above the other threshold, node-seconds", 1e3, "less"],
  ill_ms: ["online pods ill, node-seconds", 1e3, "less"], slo_misses: ["reports beyond an objective", 1, "less"],
};
const WHAT_IF_CURVES = [
  { key: "best_effort_milli", title: "Best-effort CPU used, all nodes, cores", unit: 1000 },
  { key: "batch_cpu_milli", title: "CPU offered to batch, all nodes, cores", unit: 1000 },
];
const sum = (value) => (typeof value === "number" ? value : Object.values(value ?? {}).reduce((all, each) => all + sum(each), 0));

function whatIf() {
  const w = R.what_if;
  if (!w) return;
  const section = byId("what-if"), whole = w.groups[0];
  section.hidden = false;
  const rows = Object.entries(FIGURE_NAMES).filter(([key]) => whole.was[key] !== undefined).map(([key, [name, unit, good]]) => {
    const was = sum(whole.was[key]) / unit, would = sum(whole.would[key]) / unit;
    return { name, was, would, difference: would - was, good };
  });
  const verdict = (value, row) => {
    const better = row.good === "less" ? value < 0 : row.good === "more" ? value > 0 : null;
    return el("span", { class: better === null || !value ? "" : better ? "better" : "worse", text: (value > 0 ? "+" : "") + number(value) });
  };
  const left = el("div", { class: "table" }), right = el("div", { class: "plots" });
  const changes = Object.entries(w.other.changes ?? {}).map(([key, change]) => `${key} ${change}`).join(", ");
  const mark = w.mark ? `From ${clock(w.mark.log_ms / 1000)} on (node ${w.mark.node}: ${w.mark.was} → ${w.mark.would}) it leaves what was recorded; before it everything is fact, after it a model's.`
    : "Both policies say the same of this recording.";
  section.querySelector(".body").replaceChildren(
    el("p", { text: `The recorded policy beside ${w.other.source.replace("version:", "version ")}${changes ? `: ${changes}` : ""}.` }),
    el("p", { class: "quiet", text: mark }), el("div", { class: "sides" }, left, right),
    el("ul", { class: "limits" }, ...(w.limits ?? []).map((each) => el("li", { text: each }))));
  table(left, [
    text("all nodes", (row) => row.name), figure("was", (row) => row.was, { digits: 1 }), figure("would", (row) => row.would, { digits: 1 }),
    figure("difference", (row) => row.difference, { show: verdict }),
  ], rows, { sort: null, label: "what if" });
  drawWhatIf();
}

function drawWhatIf() {
  const w = R.what_if, line = w?.timelines?.find((each) => each.kind === "whole");
  if (!line) return;
  const box = byId("what-if").querySelector(".plots");
  const keys = WHAT_IF_CURVES.filter(({ key }) => line.was[key] && line.would[key]);
  if (!box.childElementCount) box.append(...keys.map(() => el("div", { class: "plot" })));
  const count = keys.length ? line.was[keys[0].key].length : 0;
  const times = Array.from({ length: count }, (_, i) => (line.start_ms + i * line.step_ms) / 1000);
  keys.forEach(({ key, title, unit }, i) => draw(`what-if-${key}`, box.children[i], title, times, [
    { label: "was", values: line.was[key].map((value) => (value === null ? null : value / unit)), colour: "bad" },
    { label: "would (shaded: modelled)", values: line.would[key].map((value) => (value === null ? null : value / unit)), colour: "good", fill: true },
  ], { labels: i === 0, height: 150, modelled: w.mark ? w.mark.log_ms / 1000 : null }));
}
