// The DAG as a live picture: a vertex grows and warms with its busy share, an edge widens with its rate, a chip on the
// edge tells the rate and how full its queues are, and the bottleneck wears a tag.

import { s, setAttribute, setProperty, setText } from "./dom.js";
import { bytes, count, percent, rate } from "./format.js";
import { choose, head, middle, path, size } from "./geometry.js";

const CHIP = { width: 68, height: 33 };
const TAG = { width: 82, height: 18 };

export class Graph {
  constructor(container) {
    this.container = container;
    this.built = "";
    this.detail = null;
    new ResizeObserver(() => this.detail && this.update(this.detail)).observe(container);
  }

  update(detail) {
    this.detail = detail;
    const width = this.container.clientWidth;
    if (width === 0) return;
    const layout = choose(detail, width);
    const shape = JSON.stringify([detail.card.id, layout.lying, detail.vertices.map((v) => v.flow.name), detail.edges.length]);
    if (shape !== this.built) this.build(detail, layout);
    this.built = shape;
    const scale = Math.max(0.62, Math.min(1.12, width / layout.width));
    setAttribute(this.svg, "viewBox", `0 0 ${layout.width.toFixed(0)} ${layout.height.toFixed(0)}`);
    setAttribute(this.svg, "width", Math.floor(layout.width * scale));
    setAttribute(this.svg, "height", Math.ceil(layout.height * scale));
    const nodes = new Map(
      detail.vertices.map((vertex) => [
        vertex.flow.name,
        { middle: middle(layout, vertex.place), size: size(vertex.flow.busy) },
      ]),
    );
    detail.vertices.forEach((vertex, i) => this.showVertex(this.vertices[i], vertex.flow, nodes.get(vertex.flow.name), detail));
    const most = Math.max(1, ...detail.edges.map((edge) => edge.flow.rate));
    detail.edges.forEach((edge, i) => this.showEdge(this.edges[i], edge, nodes, layout, most, detail));
    setAttribute(this.svg, "aria-label", describe(detail));
    const scrolls = this.container.scrollWidth > this.container.clientWidth;
    setAttribute(this.container, "tabindex", scrolls ? 0 : null); // so that arrow keys can move it
  }

  build(detail, _layout) {
    this.edges = detail.edges.map((edge) => makeEdge(edge));
    this.vertices = detail.vertices.map((vertex) => makeVertex(vertex.flow.name));
    this.svg = s(
      "svg", { role: "img", class: "graph-picture" },
      s("g", {}, ...this.edges.map((edge) => edge.line)),
      s("g", {}, ...this.vertices.map((vertex) => vertex.group)),
      s("g", {}, ...this.edges.map((edge) => edge.chip)),
    );
    this.container.replaceChildren(this.svg);
  }

  showVertex(parts, flow, place, detail) {
    const { width, height } = place.size;
    const { x, y } = place.middle;
    setAttribute(parts.group, "transform", `translate(${(x - width / 2).toFixed(1)} ${(y - height / 2).toFixed(1)})`);
    for (const rect of [parts.box, parts.clip]) {
      setAttribute(rect, "width", width.toFixed(1));
      setAttribute(rect, "height", height.toFixed(1));
    }
    setAttribute(parts.level, "width", (flow.busy < 0.02 ? 0 : width * flow.busy).toFixed(1));
    setAttribute(parts.level, "y", (height - 5).toFixed(1));
    warm(parts.group, flow.busy);
    const held = detail.bottleneck === flow.name;
    parts.group.classList.toggle("is-bottleneck", held);
    parts.group.classList.toggle("is-failed", detail.failure?.vertex === flow.name);
    setText(parts.name, shorten(flow.name, Math.floor((width - 24) / 8)));
    setText(parts.facts, flow.processors ? `×${flow.processors} · ${percent(flow.busy)} busy` : "not started");
    for (const [text, at] of [[parts.name, height / 2 - 4], [parts.facts, height / 2 + 13]]) {
      setAttribute(text, "x", (width / 2).toFixed(1));
      setAttribute(text, "y", at.toFixed(1));
    }
    setText(parts.tagText, detail.failure?.vertex === flow.name ? "failed here" : "bottleneck");
    setAttribute(parts.tag, "transform", `translate(${((width - TAG.width) / 2).toFixed(1)} ${-TAG.height / 2 - 1})`);
    setText(parts.title, `${flow.name}: ${percent(flow.busy)} busy, its busiest processor ${percent(flow.busiest)}; `
      + `${rate(flow.received_rate)} in and ${rate(flow.emitted_rate)} out per second`);
  }

  showEdge(parts, edge, nodes, layout, most, detail) {
    const { flow } = edge;
    const shifts = { from: shift(detail, edge, "source"), to: shift(detail, edge, "destination") };
    const way = path(layout, nodes.get(flow.source), edge.bends, nodes.get(flow.destination), shifts);
    const width = 1.5 + 7.5 * Math.sqrt(flow.rate / most) * (flow.rate > 0 ? 1 : 0);
    for (const line of [parts.base, parts.flow]) {
      setAttribute(line, "d", way.way);
      setProperty(line, "--width", `${width.toFixed(2)}px`);
    }
    setAttribute(parts.head, "points", head(layout, way.end, width));
    const full = flow.capacity > 0;
    parts.line.classList.toggle("is-flowing", !detail.averaged && flow.rate > 0);
    parts.line.classList.toggle("is-full", !detail.averaged && edge.is_full);
    warm(parts.chip, Math.max(edge.fill, edge.flow.waiting));
    setAttribute(parts.chip, "transform", `translate(${(way.label.x - CHIP.width / 2).toFixed(1)} ${(way.label.y - CHIP.height / 2).toFixed(1)})`);
    setText(parts.label, detail.averaged ? count(flow.received) : `${rate(flow.rate)}/s`);
    parts.chip.classList.toggle("is-local", !full);
    setAttribute(parts.fill, "width", ((CHIP.width - 16) * edge.fill).toFixed(1));
    setText(parts.title, `${flow.source} → ${flow.destination} (${edge.routing}${edge.distributed ? ", distributed" : ""}): `
      + `${count(flow.received)} items; ${full ? `${count(flow.queued)} of ${count(flow.capacity)} places in its queues taken` : "not started"}${flow.waiting > 0.01 ? `; who fills them waits ${percent(flow.waiting)} of the time` : ""}`
      + `${flow.network_bytes ? `; ${count(flow.network_items)} items and ${bytes(flow.network_bytes)} came over the network` : ""}`);
  }
}

function makeVertex(name) {
  const id = `clip-${Math.random().toString(36).slice(2)}`;
  const parts = {
    box: s("rect", { class: "vertex-box", rx: 10 }),
    clip: s("rect", { rx: 10 }),
    level: s("rect", { class: "vertex-level", height: 5, x: 0 }),
    name: s("text", { class: "vertex-name", "text-anchor": "middle" }),
    facts: s("text", { class: "vertex-facts", "text-anchor": "middle" }),
    title: s("title", {}),
    tagText: s("text", { x: TAG.width / 2, y: 12.5, "text-anchor": "middle" }, "bottleneck"),
  };
  parts.tag = s("g", { class: "vertex-tag" }, s("rect", { width: TAG.width, height: TAG.height, rx: 9 }), parts.tagText);
  parts.group = s(
    "g", { class: "vertex", "data-vertex": name },
    parts.title, s("clipPath", { id }, parts.clip), parts.box,
    s("g", { "clip-path": `url(#${id})` }, parts.level), parts.name, parts.facts, parts.tag,
  );
  return parts;
}

function makeEdge(edge) {
  const parts = {
    base: s("path", { class: "edge-base" }),
    flow: s("path", { class: "edge-flow" }),
    head: s("polygon", { class: "edge-head" }),
    label: s("text", { x: CHIP.width / 2, y: 15, "text-anchor": "middle" }),
    fill: s("rect", { class: "gauge-fill", x: 8, y: 22, height: 5, rx: 2.5 }),
    title: s("title", {}),
  };
  parts.line = s("g", { class: `edge${edge.distributed ? " is-distributed" : ""}` }, parts.base, parts.flow, parts.head);
  parts.chip = s(
    "g", { class: "chip", "data-edge": `${edge.flow.source}>${edge.flow.destination}` }, parts.title,
    s("rect", { class: "chip-box", width: CHIP.width, height: CHIP.height, rx: 8 }), parts.label,
    s("rect", { class: "gauge", x: 8, y: 22, width: CHIP.width - 16, height: 5, rx: 2.5 }), parts.fill,
  );
  return parts;
}

/** Where beside the middle of its vertex an edge starts or ends: side by side, in the order of the other ends. */
function shift(detail, edge, side) {
  const places = new Map(detail.vertices.map((vertex) => [vertex.flow.name, vertex.place]));
  const towards = (other) => (side === "source" ? other.bends[0] ?? places.get(other.flow.destination) : other.bends.at(-1) ?? places.get(other.flow.source))[1];
  const sharing = detail.edges.filter((other) => other.flow[side] === edge.flow[side]).sort((a, b) => towards(a) - towards(b));
  return (sharing.indexOf(edge) - (sharing.length - 1) / 2) * Math.min(16, 36 / sharing.length);
}

/** Give an element its heat: cool up to a quarter, warm at six tenths, hot at the whole. */
export function warm(element, share) {
  const part = (from, to) => `${Math.round(Math.min(1, Math.max(0, (share - from) / (to - from))) * 100)}%`;
  setProperty(element, "--warm", part(0.25, 0.6));
  setProperty(element, "--hot", part(0.6, 1));
}

/** Leave the middle of a long name out: what tells similar names apart is mostly at an end. */
function shorten(text, most) {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) * 0.45);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

function describe(detail) {
  const vertices = detail.vertices.map((v) => `${v.flow.name} ${percent(v.flow.busy)} busy`).join(", ");
  const held = detail.bottleneck === null ? "" : ` The bottleneck is ${detail.bottleneck}.`;
  return `Data flow of ${detail.vertices.length} vertices: ${vertices}.${held}`;
}
