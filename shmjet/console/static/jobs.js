// The list of jobs, and all that is shown of the one that is selected.

import { Chart } from "./chart.js";
import { byId, follow, h, setAttribute, setProperty, setText } from "./dom.js";
import { bytes, clock, count, duration, percent, rate } from "./format.js";
import { Graph, warm } from "./graph.js";

const FEW = 12;
const LIVING = ["not_running", "starting", "running", "suspended", "suspended_exporting_snapshot", "completing", "cancelling"];

export const isLiving = (card) => LIVING.includes(card.status);
export const statusText = (status) => status.replaceAll("_", " ");

const ran = (card, now) => duration((card.completed_at ?? now) - card.started_at);

/** The list; `onSelect(id)` is called when one is chosen. */
export class JobList {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.all = false;
    byId("jobs-more").addEventListener("click", () => {
      this.all = true;
      if (this.state) this.update(this.state);
    });
  }

  update(state) {
    this.state = state;
    const chosen = state.selected?.card.id;
    const shown = state.jobs.filter((card, i) => this.all || i < FEW || isLiving(card) || card.id === chosen);
    setText(byId("jobs-count"), state.jobs.length ? String(state.jobs.length) : "");
    byId("jobs-none").hidden = state.jobs.length > 0;
    byId("jobs-more").hidden = shown.length === state.jobs.length;
    setText(byId("jobs-more"), `Show all ${state.jobs.length}`);
    follow(byId("jobs"), shown, (card) => card.id, () => this.make(), (row, card) => {
      row.dataset.status = card.status;
      const button = row.firstElementChild;
      button.dataset.job = card.id;
      setAttribute(button, "aria-current", card.id === chosen ? "true" : null);
      const [dot, name, facts, status] = button.children;
      setAttribute(dot, "data-status", card.status);
      setText(name, card.name);
      setText(facts, isLiving(card) ? `${rate(card.rate)} items/s · ${ran(card, state.time)}` : `${clock(card.started_at)} · ${ran(card, state.time)}`);
      setText(status, statusText(card.status));
    });
  }

  make() {
    const button = h(
      "button", { type: "button", class: "job-row" },
      h("span", { class: "dot" }), h("span", { class: "job-row-name" }),
      h("span", { class: "job-row-facts" }), h("span", { class: "job-row-status" }),
    );
    button.addEventListener("click", () => this.onSelect(button.dataset.job));
    return h("li", {}, button);
  }
}

/** The selected job. */
export class JobView {
  constructor() {
    this.graph = new Graph(byId("graph"));
    this.flow = new Chart("Items per second", [{ name: "in", label: "sources emit" }, { name: "out", label: "sinks receive" }], rate, 1);
    byId("job-charts").append(this.flow.element);
  }

  update(state) {
    const detail = state.selected;
    byId("job").hidden = detail === null;
    if (detail === null) return;
    const { card } = detail;
    setText(byId("job-title"), card.name);
    setText(byId("job-status"), statusText(card.status));
    setAttribute(byId("job-status"), "data-status", card.status);
    const times = card.executions > 1 ? `, the last of ${count(card.executions)} that are remembered` : "";
    setText(byId("job-facts"), `id ${card.id} · started ${clock(card.started_at)} · ${isLiving(card) ? "running for" : "ran"} ${ran(card, state.time)} · execution ${card.execution}${times}${detail.members > 1 ? ` · on ${detail.members} members` : ""}`);
    this.showState(detail, state.time);
    this.showTime(detail);
    this.showFailure(detail);
    this.showTiles(detail, state.time);
    this.graph.update(detail);
    byId("job-charts").hidden = detail.history.times.length === 0;
    this.flow.update(detail.history, isLiving(card) ? state.time : card.completed_at ?? state.time);
    this.showVertices(detail);
  }

  showState(detail, now) {
    const { card, snapshot, suspension } = detail;
    const parts = [];
    if (suspension?.requested_by_user) parts.push("suspended by a user");
    if (detail.waits_for) parts.push(`waits for ${detail.waits_for}`);
    if (card.attempts > 1) parts.push(`attempt ${count(card.attempts)}`);
    if (detail.restart !== null) {
      const { cause, seconds } = detail.restart;
      parts.push(`last restart${seconds === null ? "" : ` took ${duration(seconds)}`}: ${cause}`);
    }
    if (detail.guarantee !== "none") parts.push(detail.guarantee.replaceAll("_", " "));
    if (snapshot !== null) {
      const ago = duration(Math.max(0, now - snapshot.started_at));
      parts.push(`snapshot ${snapshot.id}: ${bytes(snapshot.size)}, ${count(snapshot.keys)} keys, saved in ${duration(snapshot.seconds)}, ${ago} ago`);
    }
    byId("job-state").hidden = parts.length === 0;
    setText(byId("job-state"), parts.join(" · "));
  }

  showTime(detail) {
    byId("event-time").hidden = detail.time.length === 0;
    setText(byId("event-time-text"), detail.time.join("\n"));
  }

  showFailure(detail) {
    const { suspension } = detail;
    const stopped = suspension?.error == null ? null : { error: "Suspended after an error", vertex: null, worker: -1, member: "", text: suspension.error };
    const failure = stopped ?? detail.failure;
    byId("failure").hidden = failure === null;
    if (failure === null) return;
    setText(byId("failure-title"), failure.error);
    const where = failure.vertex === null ? "" : `in vertex ${failure.vertex}${failure.processor >= 0 ? `, processor ${failure.processor}` : ""}, `;
    const process = [failure.worker >= 0 ? `worker ${failure.worker}` : "", failure.member ? `member ${failure.member}` : ""];
    const at = process.filter((text) => text !== "").join(" of ");
    setText(byId("failure-where"), `${where}${at && `on ${at}`}`.replace(/, $/, ""));
    setText(byId("failure-text"), failure.text);
  }

  showTiles(detail, now) {
    const averaged = detail.averaged ? "average" : "items per second";
    const busiest = detail.vertices.reduce((best, v) => (best === null || v.flow.busy > best.flow.busy ? v : best), null);
    const queued = detail.edges.reduce((sum, edge) => sum + edge.flow.queued, 0);
    const fullest = Math.max(0, ...detail.edges.map((edge) => edge.fill));
    const held = detail.bottleneck === null ? busiest : detail.vertices.find((v) => v.flow.name === detail.bottleneck);
    const tiles = [
      { name: "Sources emit", value: rate(detail.source_rate), note: detail.averaged ? averaged : progress(detail) ?? averaged },
      { name: "Sinks receive", value: rate(detail.sink_rate), note: averaged },
      {
        name: detail.bottleneck === null ? "Busiest vertex" : "Bottleneck",
        value: held?.flow.name ?? "–", note: held ? `${percent(held.flow.busy)} busy` : "", hot: detail.bottleneck !== null,
      },
      detail.averaged
        ? { name: "Ran", value: ran(detail.card, now), note: `until ${clock(detail.card.completed_at ?? now)}` }
        : { name: "In queues", value: count(queued), note: `fullest edge ${percent(fullest)}` },
    ];
    follow(byId("tiles"), tiles.map((tile, i) => ({ ...tile, i })), (tile) => tile.i,
      () => h("div", { class: "tile" }, h("dt"), h("dd", { class: "tile-value" }), h("dd", { class: "tile-note" })),
      (element, tile) => {
        const [name, value, note] = element.children;
        setText(name, tile.name);
        setText(value, tile.value);
        setAttribute(value, "title", tile.value);
        setText(note, tile.note);
        element.classList.toggle("is-hot", tile.hot === true);
      });
  }

  showVertices(detail) {
    setText(byId("vertices-hint"), detail.averaged ? "averages of the whole run" : "");
    const crosses = detail.edges.some((edge) => edge.flow.network_bytes > 0);
    byId("network-head").hidden = !crosses;
    const saves = detail.snapshot !== null;
    byId("state-head").hidden = !saves;
    follow(byId("vertices"), detail.vertices, (vertex) => vertex.flow.name, makeVertexRow, (row, vertex) => {
      const { flow } = vertex;
      const [name, busy, received, emitted, receivedAll, emittedAll, queue, waits, network, saved] = row.children;
      const inbound = detail.edges.filter((edge) => edge.flow.destination === flow.name);
      const fill = Math.max(0, ...inbound.map((edge) => edge.fill));
      const [label, size] = name.children;
      setText(label, flow.name);
      setText(size, `×${flow.processors}`);
      row.classList.toggle("is-bottleneck", detail.bottleneck === flow.name);
      showBar(busy, flow.busy, `${percent(flow.busy)}`, `busiest processor ${percent(flow.busiest)}`);
      setText(received, inbound.length ? rate(flow.received_rate) : "–");
      const sends = detail.edges.some((edge) => edge.flow.source === flow.name);
      setText(emitted, sends ? rate(flow.emitted_rate) : "–");
      setText(receivedAll, inbound.length ? count(flow.received) : "–");
      setText(emittedAll, sends ? count(flow.emitted) : "–");
      showBar(queue, fill, inbound.length ? percent(fill) : "–", "the fullest of its inbound edges");
      queue.firstElementChild.hidden = inbound.length === 0;
      setText(waits, sends ? percent(vertex.waiting) : "–");
      const crossing = inbound.filter((edge) => edge.flow.network_bytes > 0);
      network.hidden = !crosses;
      setText(network, crossing.length ? `${bytes(sum(crossing, (edge) => edge.flow.network_rate))}/s` : "–");
      setAttribute(network, "title", crossing.length ? `${bytes(sum(crossing, (edge) => edge.flow.network_bytes))} in all` : null);
      saved.hidden = !saves;
      setText(saved, bytes(vertex.state_bytes));
      setAttribute(saved, "title", `${count(vertex.state_keys)} keys in snapshot ${detail.snapshot?.id}`);
    });
  }
}

function progress(detail) {
  if (detail.is_read) return "all read";
  if (detail.share === null) return null;
  const left = detail.eta === null ? "" : `, ${duration(detail.eta)} left`;
  return `${percent(detail.share)} done${left}`;
}

const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);

function makeVertexRow() {
  const bar = (kind) => h("td", { class: `bar-cell ${kind}` }, h("span", { class: "bar-line" }, h("i")), h("span", { class: "bar-text" }));
  const number = (kind = "") => h("td", { class: `number ${kind}` });
  return h(
    "tr", {},
    h("th", { scope: "row" }, h("span", { class: "vertex-label" }), h("span", { class: "times" })),
    bar(""), number(), number(), number("roomy"), number("roomy"), bar("roomy"), number("roomy"), number("roomy"), number("roomy"),
  );
}

/** Show a share as a bar that warms, with a text beside it. */
export function showBar(cell, share, text, title) {
  const [line, label] = cell.children;
  setProperty(line, "--share", `${(100 * share).toFixed(1)}%`);
  warm(line, share);
  setText(label, text);
  setAttribute(cell, "title", title);
}
