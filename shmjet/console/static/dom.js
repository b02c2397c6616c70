// Making and changing elements. Texts become nodes by textContent only, so a name is never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Make an HTML element with attributes and children (elements or texts). */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Make an SVG element. */
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

/** Set a text, only if it is another one: what is selected, or read aloud, is not disturbed. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute if it is another one; null removes it. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Set a custom property of CSS (through the object model, which the content-security policy allows). */
export function setProperty(element, name, value) {
  if (element.style.getPropertyValue(name) !== String(value)) element.style.setProperty(name, value);
}

/**
 * Make the children of `parent` follow `items`, keeping the elements of those that stay, and with them the focus.
 * `make(item)` returns an element, `update(element, item)` brings it up to date.
 */
export function follow(parent, items, key, make, update) {
  const keys = new Set(items.map((item) => String(key(item))));
  const known = new Map();
  for (const child of [...parent.children]) {
    if (keys.has(child.dataset.key)) known.set(child.dataset.key, child);
    else child.remove(); // first, so that none of the others has to be moved, which would take the focus from it
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = known.get(name);
    if (element === undefined) {
      element = make(item);
      element.dataset.key = name;
    }
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    update(element, item);
  }
}
