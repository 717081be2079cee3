// Elements: made of texts, changed where a text or an order differs, and pressed only where they have stood a while.

import { cut, oneLine, size, visible } from "./text.js";

export const STEADY_MS = 500; // as long must a button have stood where it is before it takes a press
export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "hidden" || name === "disabled" || name === "open") node[name] = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Say an agent's text: isolated, so that its direction ends with it. */
export const bdi = (text, name = "") => el("bdi", { dir: "auto", class: name || null }, text);

export function put(node, text) {
  if (node.said === text) return;
  node.said = text;
  node.textContent = text;
}

export function show(node, on) {
  if (node.hidden === on) node.hidden = !on;
}

export function mark(node, name, value) {
  if (node.getAttribute(name) === value) return;
  if (value === null) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

/** Make a container's children those of `items`, in order, and touch only those that differ. */
export function keyed(container, items, keyOf, make, update = () => {}) {
  const known = (container.known ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, node] of known) {
    if (wanted.has(key)) continue;
    node.remove();
    known.delete(key);
  }
  const focused = document.activeElement;
  let at = container.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = known.get(key);
    if (!node) known.set(key, (node = make(item)));
    if (at && at !== node && at.nextElementSibling === node) {
      move(container, at, null); // it comes further down: one move, not one for each row between
      at = node;
    }
    if (at === node) at = at.nextElementSibling;
    else move(container, node, at);
  }
  // Moved first, changed then: Chromium 156 doesn't style elements anew that `moveBefore` moves after a change.
  for (const item of items) update(known.get(keyOf(item)), item);
  if (focused !== document.activeElement && container.contains(focused)) focused.focus({ preventScroll: true });
}

// Agents decide when questions and refusals come and go, and so which button is below a pointer that is about to be pressed.

const PRESSED = ".replies, .buttons button:not([data-no]), .findings button, .decisions button";

/** Hold the parts that have moved since the last call; scrolling is the person's own doing. */
export function settle() {
  for (const part of document.querySelectorAll(PRESSED)) {
    if (!part.offsetParent) continue;
    let { x, y } = part.getBoundingClientRect();
    for (let up = part.parentElement; up; up = up.parentElement) y += up.scrollTop;
    const place = `${Math.round(x)} ${Math.round(y)}`;
    if (part.place !== place) hold(part);
    part.place = place;
  }
}

/** Let a part take no press for a moment. */
export function hold(part) {
  mark(part, "aria-disabled", "true");
  clearTimeout(part.held);
  part.held = setTimeout(() => mark(part, "aria-disabled", null), STEADY_MS);
}

export function onPress(event) {
  settle();
  const button = event.target.closest("button"),
    is_typed = event.detail === 0 && document.activeElement.matches("input"); // Enter in a field presses its form's button
  if (!button?.closest("[aria-disabled]") || is_typed) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}

function move(container, node, before) {
  if (container.moveBefore && node.isConnected)
    container.moveBefore(node, before); // keeps the focus and a text that is being composed
  else container.insertBefore(node, before);
}

/** A text that is shown in part while it is long. */
export class Block {
  constructor(name, most) {
    this.most = most;
    this.text = "";
    this.words = el("span", { dir: "auto" });
    this.more = el("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.all() });
    this.node = el("div", { class: `block ${name}` }, this.words, this.more);
  }

  set(text) {
    this.text = text;
    const is_long = text.length > this.most * 1.25;
    put(this.words, visible(is_long ? cut(text, this.most) : text));
    this.offer(is_long);
    return this;
  }

  add(text) {
    this.text += text;
    if (this.text.length <= this.most)
      this.words.append(visible(text)); // pieces of speech are short and many
    else this.set(this.text);
  }

  offer(is_long) {
    show(this.more, is_long);
    if (is_long) put(this.more, `show all (${size(this.text.length)})`);
  }

  all() {
    this.most = Infinity;
    put(this.words, visible(this.text));
    this.offer(false);
  }
}

export const agentHref = (name) => `#/agent/${encodeURIComponent(name)}`;

/** Mark a part whose request is under way; its buttons keep the focus, and do nothing meanwhile. */
export const setBusy = (part, on) => mark(part, "aria-busy", on ? "true" : null);

export function agentLink(name) {
  return el("a", { href: agentHref(name) }, bdi(oneLine(name)));
}
