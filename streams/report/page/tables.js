// Tables that sort by a click on a heading and show only rows that hold a word.
// columns: {name, get, show, number, meter}
function table(holder, columns, rows, { sort = 0, down = true, filter = false, onRow, chosen, label } = {}) {
  const state = { by: sort, down, word: "" };
  const body = el("tbody"), count = el("span", { class: "quiet" });
  const most = columns.map((column) => (column.meter ? Math.max(...rows.map((row) => column.get(row) ?? 0), 1e-9) : 0));
  const heads = columns.map((column, i) => el("th", { scope: "col", class: column.number ? "number" : "" },
    el("button", { type: "button", text: column.name, on: { click: () => {
      state.down = state.by === i ? !state.down : Boolean(column.number);
      state.by = i;
      fill();
    } } })));
  function cell(column, i, row) {
    const value = column.get(row), long = !column.number && String(value ?? "").length > 40;
    const made = el("td", { class: column.number ? "number" : long ? "long" : "" });
    if (column.meter && value > 0) {
      const meter = el("span", { class: "meter" });
      meter.style.width = `${Math.max((60 * value) / most[i], 2)}px`;
      made.append(meter);
    }
    made.append(column.show ? column.show(value, row) : column.number ? number(value, column.digits ?? 2) : String(value ?? ""));
    return made;
  }
  function fill() {
    const column = columns[state.by], way = state.down ? -1 : 1; // no column: the order in which they come
    const key = (row) => column?.get(row) ?? (column?.number ? -Infinity : "");
    const wanted = rows.filter((row) => !state.word || columns.some((each) => String(each.get(row) ?? "").toLowerCase().includes(state.word)));
    wanted.sort((a, b) => way * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== state.by ? "none" : state.down ? "descending" : "ascending"));
    body.replaceChildren(...wanted.map((row) => el("tr", {
      class: `${onRow ? "link" : ""} ${chosen?.(row) ? "chosen" : ""}`, tabindex: onRow ? "0" : undefined,
      on: onRow ? { click: () => onRow(row), keydown: (event) => { if (event.key === "Enter") onRow(row); } } : {},
    }, ...columns.map((each, i) => cell(each, i, row)))));
    count.textContent = wanted.length === rows.length ? `${rows.length}` : `${wanted.length} of ${rows.length}`;
  }
  const box = el("div", { class: rows.length > 14 ? "scroll" : "" },
    el("table", { class: "rows", "aria-label": label }, el("thead", {}, el("tr", {}, ...heads)), body));
  const tools = el("div", { class: "tools" }, el("input", { type: "search", placeholder: "Show rows with …", "aria-label": `Filter ${label}`, on: {
    input: (event) => { state.word = event.target.value.trim().toLowerCase(); fill(); },
  } }), count);
  holder.replaceChildren(...(filter ? [tools] : []), box);
  fill();
  return fill;
}
const text = (name, get) => ({ name, get });
const figure = (name, get, more = {}) => ({ name, get, number: true, ...more });
