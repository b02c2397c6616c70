// From the layers that the server has laid out to pixels: left to right where there is width, else top to bottom. Pure.

export const WIDTH = 132;
export const HEIGHT = 54;
/** How much larger a vertex is that is busy all the time. */
export const GROWTH = 0.24;

const MARGIN = 18;
const ACROSS_GAP = 22;
const SMALLEST = 0.7;

function plan(detail, lying) {
  const long = lying ? WIDTH : HEIGHT;
  const broad = lying ? HEIGHT : WIDTH;
  const gap = lying ? 84 : 62;
  const pitch = { along: long * (1 + GROWTH) + gap, across: broad * (1 + GROWTH) + ACROSS_GAP };
  const along = (detail.layers - 1) * pitch.along + long * (1 + GROWTH) + 2 * MARGIN;
  const across = Math.max(1, detail.breadth) * pitch.across + 2 * MARGIN;
  return { lying, pitch, long, width: lying ? along : across, height: lying ? across : along };
}

/** Choose the direction in which the picture fits a place of this width better. */
export function choose(detail, width) {
  const lying = plan(detail, true);
  if (lying.width * SMALLEST <= width) return lying;
  const standing = plan(detail, false);
  return width / standing.width > width / lying.width ? standing : lying;
}

/** The middle of a vertex or bend. */
export function middle(layout, [layer, across]) {
  const along = MARGIN + (layout.long * (1 + GROWTH)) / 2 + layer * layout.pitch.along;
  const beside = MARGIN + across * layout.pitch.across;
  return layout.lying ? { x: along, y: beside } : { x: beside, y: along };
}

/** The size of a vertex that is busy for this share of the time. */
export function size(busy) {
  const factor = 1 + GROWTH * busy;
  return { width: WIDTH * factor, height: HEIGHT * factor };
}

/** The way of an edge: from the rim of its source through its bends to the rim of its destination. */
export function path(layout, from, bends, to, shifts) {
  const start = { ...from.middle };
  const end = { ...to.middle };
  if (layout.lying) {
    start.x += from.size.width / 2;
    start.y += shifts.from;
    end.x -= to.size.width / 2 + 9;
    end.y += shifts.to;
  } else {
    start.y += from.size.height / 2;
    start.x += shifts.from;
    end.y -= to.size.height / 2 + 9;
    end.x += shifts.to;
  }
  const points = [start, ...bends.map((place) => middle(layout, place)), end];
  let way = `M${start.x.toFixed(1)},${start.y.toFixed(1)}`;
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = [points[i - 1], points[i]];
    const [c, d] = layout.lying
      ? [{ x: (a.x + b.x) / 2, y: a.y }, { x: (a.x + b.x) / 2, y: b.y }]
      : [{ x: a.x, y: (a.y + b.y) / 2 }, { x: b.x, y: (a.y + b.y) / 2 }];
    way += ` C${[c, d, b].map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ")}`;
  }
  const first = points[1];
  const label = { x: (points[0].x + first.x) / 2, y: (points[0].y + first.y) / 2 };
  return { way, end, label };
}

/** The head of an arrow whose tip touches the vertex. */
export function head(layout, end, width) {
  const half = 4 + width * 0.55;
  const { x, y } = end;
  const points = layout.lying
    ? [[x - 2, y - half], [x + 9, y], [x - 2, y + half]]
    : [[x - half, y - 2], [x, y + 9], [x + half, y - 2]];
  return points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
}
