// The page of `substratctl web`: shows who needs a person, and why, and lets them answer.
//
// How it hangs together
// - One WebSocket brings every event once, in order. `cursor` is the last one taken; after a loss the page asks for
//   the events after it, so nothing is missing or doubled in an open tab.
// - Events don't carry agent objects. An event marks its agent as changed, and marked agents are fetched at most every
//   250 ms: a few agents one by one, many as the list.
// - The DOM is touched where a text differs (`put`) and where an order differs (`keyed`), so 300 busy agents stay cheap and
//   an answer that is being typed stays.
// - Agents are hostile. Their texts become text nodes (never HTML, never links), and `visible` writes out what acts, hides
//   or reorders, as `substrat/visible.py` does for terminals.

import { AgentView } from "./agent.js";
import { agentHref, byId, el, mark, onPress, put, setBusy, show, STEADY_MS } from "./dom.js";
import { journal, render, renderWaits, setFilter } from "./list.js";
import {
  agentPath,
  call,
  Failure,
  heartbeat,
  live,
  lock,
  refreshAgents,
  refreshAll,
  refreshWaits,
  retry,
  store,
  takeToken,
  views,
} from "./net.js";
import { agents, state } from "./state.js";
import { visible } from "./text.js";

const BEAT_MS = 5_000; // between two questions whether the daemon is there
const POLL_MS = 20_000; // an agent gets stuck without an event

// The route

const route = {
  started: false,
  visits: 0,

  /** Show the address's view once agents can be asked for. */
  start() {
    if (this.started) return;
    this.started = true;
    this.go();
  },

  async go() {
    takeToken();
    if (!state.token) return lock();
    const [, view = "", name = ""] = location.hash
      .slice(1)
      .split("/")
      .map((word) => {
        try {
          return decodeURIComponent(word);
        } catch {
          return word;
        }
      });
    state.view = ["agent", "inbox", "waits", "events"].includes(view) ? view : "agents";
    document.body.dataset.view = state.view;
    for (const part of byId("main").children)
      part.hidden = part.id !== state.view && !(part.id === "agents" && state.view === "agent");
    for (const link of document.querySelectorAll("#bar nav a"))
      mark(link, "aria-current", link.dataset.to === state.view ? "page" : null);
    if (state.view === "agent") await this.openAgent(name);
    else state.opened = null;
    if (state.view === "events") journal.open();
    if (state.view === "waits") refreshWaits();
    render();
  },

  async openAgent(name) {
    if (state.opened && agents.get(state.opened.id)?.name === name) return;
    const visit = ++this.visits;
    state.opened?.sizes.disconnect();
    state.opened = null;
    try {
      const agent = await call(agentPath(name));
      agents.set(agent.id, agent);
      if (visit !== this.visits || state.view !== "agent") return; // somewhere else by now
      state.opened = new AgentView(agent);
      state.opened.render();
      state.opened.title.focus({ preventScroll: true });
    } catch (problem) {
      if (!(problem instanceof Failure)) throw problem;
      byId("agent").replaceChildren(el("p", { class: "head", role: "alert" }, visible(problem.message)));
    }
  },
};

// Keys

// The field with the focus, and if an agent's doing took it away, when a key last came that was meant for it.
let field = { part: null, at: null };

const FIELDS = "input:not([type=checkbox]), textarea, select";

/** Note the field that gets the focus, until the person leaves it by Tab, Escape or a press elsewhere. */
function watchField({ type, target, key }) {
  if (type === "focusin" && target.matches(FIELDS)) field = { part: target, at: null };
  else if (type === "pointerdown" ? !target.closest(FIELDS) : key === "Tab" || key === "Escape") field.part = null;
}

/** Say whether a key belongs to a sentence whose field went away: the first one does, and those that follow without a pause. */
function isLost(event) {
  if (event.target !== document.body || !field.part || field.part.offsetParent) return false;
  const is_lost = field.at === null || event.timeStamp - field.at < 2 * STEADY_MS;
  field = { part: is_lost ? field.part : null, at: event.timeStamp };
  return is_lost;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = event.target,
    is_typing = target.matches(FIELDS);
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") return escape(target, is_typing);
  if (is_typing) return;
  const is_lost = isLost(event);
  const option = target.closest("[data-item]")?.querySelector(`[data-option="${CSS.escape(event.key)}"]`);
  const act = option ? () => option.click() : KEYS[event.key];
  // A key that is held down presses once.
  if (is_lost || (event.repeat && (option || target.matches("button")))) return event.preventDefault();
  if (!act) return;
  event.preventDefault();
  act();
}

const KEYS = {
  a: answerFirst,
  j: () => step(1),
  k: () => step(-1),
  s: () => state.opened?.write(),
  t: () => byId("tree").click(),
  n: () => openDialog("spawn"),
  l: () => (location.hash = "#/"),
  i: () => (location.hash = "#/inbox"),
  w: () => (location.hash = "#/waits"),
  e: () => (location.hash = "#/events"),
  "/": () => {
    if (!byId("filter").offsetParent) {
      location.hash = "#/";
      route.go(); // at once: the next keys belong into the filter
    }
    byId("filter").focus();
  },
  "?": () => openDialog("help"),
};

function escape(target, is_typing) {
  const no = document.querySelector("[data-no]");
  if (no) no.click();
  else if (target.id === "filter" && state.filter) setFilter("");
  else if (is_typing) target.blur();
  else if (state.view !== "agents") location.hash = "#/";
}

function answerFirst() {
  const shown = () => [...document.querySelectorAll("[data-item]:not([data-done])")].filter((card) => card.offsetParent);
  const first = shown().find((card) => card.dataset.kind !== "message") ?? shown()[0];
  if (first) {
    first.querySelector("[data-option], input").focus();
    first.scrollIntoView({ block: "nearest" });
  } else if (state.inbox.length && state.view !== "inbox") {
    if (state.filter) setFilter("");
    location.hash = state.inbox.some((item) => item.kind === "question") ? "#/" : "#/inbox";
    route.go(); // at once: the next keys belong to the question
    if (shown().length) answerFirst();
  }
}

function step(by) {
  const places = state.view === "inbox" ? ".card" : state.view === "waits" ? "#waits li" : "#list .row";
  const all = [...document.querySelectorAll(places)].filter((place) => place.offsetParent);
  const now = all.findIndex((place) => place.contains(document.activeElement) || place.querySelector("[aria-current]"));
  const next = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by))];
  next?.querySelector("a")?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function openDialog(id) {
  const dialog = byId(id);
  if (id === "spawn")
    byId("workspaces").replaceChildren(
      ...[...new Set([...agents.values()].map((agent) => agent.workspace))].map((path) => el("option", { value: path })),
    );
  dialog.showModal();
}

async function spawn(event) {
  event.preventDefault();
  const form = byId("spawn-form"),
    wrong = form.querySelector(".wrong");
  const fields = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
  if (fields.clone) fields.clone = true;
  if (form.ariaBusy) return;
  show(wrong, false);
  setBusy(form, true);
  try {
    const agent = await call("/agents", fields);
    byId("spawn").close();
    form.reset();
    location.hash = agentHref(agent.name);
  } catch (problem) {
    put(wrong, visible(problem.message));
    show(wrong, true);
  } finally {
    setBusy(form, false);
  }
}

function begin() {
  state.token = store.getItem("token");
  state.as_tree = store.getItem("tree") === "yes";
  Object.assign(views, {
    render,
    renderWaits,
    start: () => route.start(),
    go: () => route.go(),
    take: (event) => state.view === "events" && journal.take(event),
  });
  takeToken();
  if (!state.token) lock();
  else document.body.dataset.view = "agents";
  window.addEventListener("hashchange", () => {
    const was_locked = !state.token;
    route.go();
    if (was_locked && state.token) live();
  });
  document.addEventListener("keydown", onKey);
  for (const type of ["focusin", "keydown", "pointerdown"]) document.addEventListener(type, watchField);
  document.addEventListener("click", onPress, true);
  document.addEventListener("visibilitychange", () => document.hidden || !state.token || refreshAll());
  byId("filter").addEventListener("input", (event) => setFilter(event.target.value.trim()));
  byId("filter").addEventListener("keydown", (event) => event.key === "Enter" && step(1));
  byId("retry").addEventListener("click", retry);
  byId("keys").addEventListener("click", () => openDialog("help"));
  byId("help-close").addEventListener("click", () => byId("help").close());
  byId("new").addEventListener("click", () => openDialog("spawn"));
  byId("spawn-close").addEventListener("click", () => byId("spawn").close());
  byId("spawn-form").addEventListener("submit", spawn);
  byId("skip").addEventListener("click", () => byId("main").focus());
  byId("tree").addEventListener("click", () => {
    state.as_tree = !state.as_tree;
    store.setItem("tree", state.as_tree ? "yes" : "no");
    mark(byId("tree"), "aria-pressed", String(state.as_tree));
    render();
  });
  mark(byId("tree"), "aria-pressed", String(state.as_tree));
  setInterval(() => {
    if (document.hidden || !state.token) return;
    state.all_touched = true;
    refreshAgents();
  }, POLL_MS);
  setInterval(heartbeat, BEAT_MS);
  setInterval(() => document.hidden || render(), 15_000); // ages
  if (state.token) live();
}

begin();
