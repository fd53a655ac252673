// The page's parts, each from its part of the data.
const TAGS = { slis: "service", policy: "policy", lending: "lending", eviction: "eviction", suspect: "suspect", pressure: "pressure", what_if: "what if", damage: "damage" };
const SERVICE_COLOURS = ["a", "b", "c", "d"];
let node = R.nodes.find((each) => each.detail)?.node ?? "";
let refillNodes = () => {};

function about() {
  const a = R.about;
  byId("about").textContent = `${day(WHOLE[0])}, ${clock(WHOLE[0])} to ${clock(WHOLE[1])} UTC · ${a.nodes} nodes in ${a.partitions} partitions · ` +
    `law version ${a.law_versions.join(", ")} · written by slackwater ${a.software}` + (a.pseudonymised ? " · names are pseudonyms" : "");
  byId("foot").textContent = `From ${a.source}. Times are the broker's append time, UTC. Curves keep the lowest and the highest value of each stretch. ` +
    "Plots: uPlot, MIT licence, © Leon Sorokin.";
}

function findings() {
  const list = byId("findings").querySelector("ol");
  list.replaceChildren(...R.findings.map((each) => el("li", {}, el("button", {
    type: "button", class: `${each.grave ? "grave" : ""} kind-${each.kind}`, on: { click: () => follow(each) },
  }, el("span", { class: "tag", text: TAGS[each.kind] ?? each.kind }), el("span", { text: each.text })))));
}

function follow(finding) {
  if (finding.from_ms > 0) {
    const to = finding.to_ms > finding.from_ms ? finding.to_ms : finding.from_ms + 60_000;
    const around = Math.max((to - finding.from_ms) * 0.15, 5_000);
    setView((finding.from_ms - around) / 1000, (to + around) / 1000);
  }
  if (finding.node && R.details[finding.node]) choose(finding.node);
  const target = { what_if: "what-if", suspect: "suspects" }[finding.kind] ?? (finding.node ? "node" : "fleet");
  byId(target).scrollIntoView();
}

const objectives = (times, names) => R.services.filter((each) => names.includes(each.workload) && each.p99_ms > 0)
  .filter((each, i, all) => all.findIndex((other) => other.p99_ms === each.p99_ms) === i)
  .map((each) => ({ label: `objective ${each.p99_ms} ms`, values: times.map(() => each.p99_ms), colour: "bad", dash: [6, 4], width: 1 }));

function p99Curves(times, p99, extra = {}) {
  const names = Object.keys(p99);
  return [...names.map((name, i) => ({ label: name, values: p99[name], colour: SERVICE_COLOURS[i % 4], digits: 1, ...extra })), ...objectives(times, names)];
}

function coresCurves(s) {
  return [
    { label: "capacity", values: s.capacity, colour: "capacity", dash: [6, 4], width: 1 },
    { label: "online and system", values: s.online, colour: "online", fill: true },
    { label: "best effort", values: s.best_effort, colour: "best-effort", fill: true, stackOn: "online and system" },
    { label: "best effort may use", values: s.allowed, colour: "allowed", step: true },
    { label: "offered to batch", values: s.offered, colour: "offered", step: true },
    { label: "lent", values: s.lent, colour: "lent", step: true, dash: [3, 3] },
  ];
}

function holders(section, names) {
  const box = byId(section).querySelector(".plots");
  if (!box.childElementCount) box.append(...names.map(() => el("div", { class: "plot" })));
  return [...box.children];
}

function fleet() {
  const f = R.fleet, services = Object.keys(f.p99_ms).length > 0;
  const [first, second] = holders("fleet", services ? ["a", "b"] : ["a"]);
  const beyond = spansBeyond(f.times_s, f.p99_ms);
  if (services) draw("fleet-slis", first, "Worst p99 of each service over all nodes, ms", f.times_s, p99Curves(f.times_s, f.p99_ms), { beyond, labels: true, height: 190 });
  draw("fleet-cpu", services ? second : first, "CPU of all nodes, cores", f.times_s, coresCurves(f.series), { beyond, labels: !services, height: 210 });
}

function choose(name) {
  if (!R.details[name]) return;
  node = name;
  closeMark();
  showNode();
  refillNodes();
}

function showNode() {
  const d = R.details[node];
  if (!d) return;
  byId("which").value = node;
  const line = R.nodes.find((each) => each.node === node);
  byId("node-facts").textContent = `${number(line.cores)} cores · beyond an objective for ${seconds(line.beyond_s)} · ${line.evictions} evicted · peak use ${number(line.peak_percent, 0)} %`;
  const s = d.series, times = d.times_s, names = Object.keys(d.p99_ms);
  const [cpu, slis, wait, lines, memory] = holders("node", ["cpu", "slis", "wait", "lines", "memory"]);
  const beyond = spansBeyond(times, d.p99_ms, d.errors_permille);
  const plot = draw("node-cpu", cpu, "CPU, cores", times, coresCurves(s), { beyond, labels: true, height: 230 });
  slis.hidden = !names.length;
  if (names.length) {
    const errors = names.map((name, i) => ({ label: `${name} errors ‰`, values: d.errors_permille[name], colour: SERVICE_COLOURS[i % 4], dash: [2, 3], width: 1, scale: "z", digits: 1 }));
    draw("node-slis", slis, "Services here: p99 in ms (left), errors in permille (right)", times, [...p99Curves(times, d.p99_ms), ...errors], { beyond });
  }
  draw("node-wait", wait, "Waiting for a CPU, % of time (left); interference score (right)", times, [
    { label: "online pod that waits most", values: s.online_waiting_most ?? times.map(() => null), colour: "a" },
    { label: "online pods, mean", values: s.online_waiting ?? times.map(() => null), colour: "online", fill: true },
    { label: "whole node", values: s.node_waiting, colour: "capacity", width: 1, hide: true },
    { label: "score", values: s.score, colour: "b", step: true, width: 1, scale: "z", digits: 1 },
  ], { beyond });
  draw("node-lines", lines, "The four lines of its online pods, CPU, cores", times, [
    { label: "limit (what they request)", values: s.limit, colour: "limit", step: true, dash: [6, 4] },
    { label: "long-term reservation", values: s.long, colour: "long", step: true },
    { label: "short-term reservation", values: s.short, colour: "short", step: true },
    { label: "usage", values: s.usage, colour: "usage", step: true, fill: true },
  ], { beyond: [] });
  draw("node-memory", memory, "Memory, GiB", times, [
    { label: "total", values: s.memory_total, colour: "capacity", dash: [6, 4], width: 1 },
    { label: "used", values: s.memory_used, colour: "memory", fill: true },
    { label: "offered to batch", values: s.memory_offered, colour: "offered", step: true },
  ], { beyond: [], height: 150 });
  showMarks(node, d, plot);
}

function nodes() {
  const detailed = R.nodes.filter((each) => each.detail);
  byId("which").replaceChildren(...detailed.map((each) => el("option", { value: each.node, text: each.node })));
  byId("which").addEventListener("change", (event) => choose(event.target.value));
  byId("node").hidden = !detailed.length;
  refillNodes = table(byId("nodes").querySelector(".table"), [
    text("node", (row) => row.node),
    figure("beyond objective", (row) => row.beyond_s, { show: (value) => seconds(value), meter: true }),
    figure("evicted", (row) => row.evictions), figure("ill", (row) => row.ill_s, { show: (value) => seconds(value) }),
    figure("cores", (row) => row.cores), figure("online, mean cores", (row) => row.online_cores),
    figure("best effort, mean cores", (row) => row.best_effort_cores), figure("peak use, %", (row) => row.peak_percent),
    text("timelines", (row) => (row.detail ? "here" : "")),
  ], R.nodes, { sort: 1, filter: R.nodes.length > 8, label: "nodes", chosen: (row) => row.node === node, onRow: (row) => { choose(row.node); byId("node").scrollIntoView(); } });
}

function suspects() {
  byId("suspects").hidden = !R.suspects.length;
  table(byId("suspects").querySelector(".table"), [
    text("pod", (row) => row.pod), text("workload", (row) => row.workload), text("node", (row) => row.node),
    figure("score", (row) => row.score, { meter: true }), figure("share of best-effort CPU, %", (row) => row.share_percent),
    figure("r", (row) => row.correlation), figure("cores while beyond", (row) => row.beyond_cores), figure("cores otherwise", (row) => row.calm_cores),
  ], R.suspects, { sort: 3, label: "suspects", onRow: (row) => { choose(row.node); byId("node").scrollIntoView(); } });
}

function pods() {
  byId("pods").hidden = !R.pods.length;
  table(byId("pods").querySelector(".table"), [
    text("pod", (row) => row.pod), text("workload", (row) => row.workload), text("node", (row) => row.node), text("QoS", (row) => row.qos),
    text("class", (row) => row.priority_class), figure("asks, cores", (row) => row.request_cores), figure("mean, cores", (row) => row.mean_cores),
    figure("peak, cores", (row) => row.peak_cores), figure("while beyond, cores", (row) => row.beyond_cores),
    figure("memory peak, GiB", (row) => row.peak_gib), figure("waits, %", (row) => row.pressure_percent), text("evicted", (row) => (row.evicted ? "evicted" : "")),
  ], R.pods, { sort: 8, filter: true, label: "pods" });
}

function policies() {
  byId("policies").hidden = !R.policies.length;
  table(byId("policies").querySelector(".table"), [
    { name: "time", get: (row) => row.log_ms, show: (value) => clock(value / 1000) }, text("policy", (row) => row.name), figure("version", (row) => row.version),
    text("author", (row) => row.author), text("note", (row) => row.note),
    text("changes", (row) => row.changes.map(([key, old, now]) => `${key}: ${old} → ${now}`).join(", ")), text("digest", (row) => row.digest),
  ], R.policies, { sort: 0, down: false, label: "policies" });
}
