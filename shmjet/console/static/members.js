// Members: what they are, what they use of the machine, and each of their workers.

import { Chart } from "./chart.js";
import { byId, follow, h, setAttribute, setText } from "./dom.js";
import { bytes, count, duration, percent } from "./format.js";
import { showBar } from "./jobs.js";

const MIB = 2 ** 20;
/** More workers than this are shown in little. */
const MANY = 12;
const charts = new WeakMap();

/** Show all members. */
export function showMembers(state) {
  follow(byId("members"), state.members, (member) => member.id, make, (element, member) => update(element, member, state.time));
}

function make() {
  const own = [
    new Chart("CPU", [{ name: "cpu", label: "cores" }], (value) => `${value.toFixed(value < 10 ? 2 : 0)} cores`, 1),
    new Chart("Workers busy", [{ name: "busy", label: "busy" }], percent, 1),
    new Chart("Memory", [{ name: "memory", label: "resident" }], (value) => bytes(value * MIB), 100),
  ];
  const element = h(
    "article", { class: "member" },
    h("header", { class: "panel member-head" }, h("div", {}, h("h3"), h("p", { class: "facts" })), h("dl", { class: "member-facts" })),
    h("div", { class: "charts" }, ...own.map((chart) => chart.element)),
    h("ul", { class: "workers", "aria-label": "Workers" }),
  );
  charts.set(element, own);
  return element;
}

function update(element, member, now) {
  const [head, , workers] = element.children;
  const [names, facts] = head.children;
  const [title, about] = names.children;
  setAttribute(element, "data-ended", member.ended ? "true" : null);
  setText(title, member.program);
  const state = member.ended ? "ended" : member.silent ? "does not answer" : `up ${duration(now - member.started_at)}`;
  const place = member.address === "local" || member.address === member.program ? "" : ` · ${member.address}`;
  setText(about, `Member${place} · pid ${member.pid} · cluster ${member.cluster} · ${state}`);
  const values = [
    { name: "CPU", value: `${member.cpu.toFixed(2)}`, note: "cores" },
    { name: "Memory", value: bytes(member.memory), note: "" },
    { name: "Partitions", value: count(member.primaries), note: partitionsNote(member) },
    { name: "Runs", value: count(member.executions), note: "" },
    { name: "Failed", value: count(member.failed), note: "" },
  ];
  follow(facts, values, (value) => value.name, () => h("div", {}, h("dt"), h("dd")), (pair, value) => {
    setText(pair.children[0], value.name);
    setText(pair.children[1], value.note ? `${value.value} ${value.note}` : value.value);
  });
  const [cpu, busy, memory] = charts.get(element);
  const { times } = member.history;
  const end = member.ended ? times.at(-1) ?? now : now;
  cpu.update(member.history, end);
  busy.update(member.history, end);
  memory.update({ times, values: { memory: member.history.values.memory.map((value) => value / MIB) } }, end);
  workers.classList.toggle("is-dense", member.workers.length > MANY);
  follow(workers, member.ended ? [] : member.workers, (worker) => worker.index, makeWorker, showWorker);
}

/** What else a member has than primaries. */
function partitionsNote(member) {
  const backups = member.backups ? `+ ${count(member.backups)}` : "";
  return member.copying ? `${backups} getting ${count(member.copying)}`.trim() : backups;
}

function makeWorker() {
  return h(
    "li", { class: "worker" },
    h("p", { class: "worker-name" }, h("strong"), h("span")),
    h("p", { class: "bar-cell" }, h("span", { class: "bar-line" }, h("i")), h("span", { class: "bar-text" })),
    h("p", { class: "worker-facts" }),
  );
}

function showWorker(element, worker) {
  const [name, bar, facts] = element.children;
  setText(name.children[0], `Worker ${worker.index}`);
  setText(name.children[1], worker.core === null ? "not pinned" : `core ${worker.core}`);
  showBar(bar, worker.busy, percent(worker.busy), `busy in the last second; pid ${worker.pid}`);
  setText(facts, `CPU ${percent(worker.cpu)} · ${bytes(worker.memory)} · ${worker.tasklets} tasklet${worker.tasklets === 1 ? "" : "s"}`);
}
