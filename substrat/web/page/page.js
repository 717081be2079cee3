// The page of `substratctl web`: shows who needs a person, and why, and lets them answer.
//
// How it hangs together
// - One WebSocket brings every event once, in order. `cursor` is the last one taken; after a loss the page asks for what
//   came after it, so nothing is missing or doubled in an open tab.
// - Events don't carry agent objects. An event marks its agent as changed, and what is marked is fetched at most every
//   250 ms: a few agents one by one, many as the list.
// - The DOM is touched where a text differs (`put`) and where an order differs (`keyed`), so 300 busy agents stay cheap and
//   an answer that is being typed stays.
// - Agents are hostile. Their texts become text nodes (never HTML, never links), and `visible` writes out what acts, hides
//   or reorders, as `substrat/visible.py` does for terminals.

import { changes, MOST_BARS, patched, plotted, renderFacts } from "./aside.js";
import { agentHref, bdi, byId, el, keyed, mark, onPress, put, setBusy, settle, show, STEADY_MS } from "./dom.js";
import { journal, render, renderCards, renderWaits, setFilter } from "./list.js";
import {
  agentPath,
  call,
  coalesced,
  Failure,
  heartbeat,
  live,
  lock,
  PAGE,
  readEvents,
  readNewest,
  refreshAgents,
  refreshAll,
  refreshWaits,
  retry,
  store,
  takeToken,
  views,
} from "./net.js";
import { actionsOf, agents, asksFor, canLand, COMMANDS, drafts, kindOf, state, touched } from "./state.js";
import { age, moment, oneLine, visible, withLocalTimes } from "./text.js";
import { Transcript } from "./transcript.js";

const REMEDY = /; substratctl allow \S+ (\S+)$/;

const BEAT_MS = 5_000; // between two questions whether the daemon is there
const POLL_MS = 20_000; // an agent gets stuck without an event
const MOST_STEPS = 3000; // in an open transcript
// One agent

class AgentView {
  constructor(agent) {
    this.id = agent.id;
    this.name = agent.name;
    this.waiting = []; // events that came while the history was read
    this.turns = [];
    this.merge_files = [];
    this.refused = new Set(); // what its network refused and the allow-list may let through
    this.sure = null; // the action that waits for a second word
    this.build();
    this.transcript = new Transcript(this.steps);
    this.loadNetwork = coalesced(() => this.readNetwork());
    this.load();
  }

  build() {
    const part = (name, title, ...inside) =>
      el("section", { "data-part": name, "aria-label": title }, el("h2", {}, title), ...inside);
    this.title = el("h1", { id: "agent-name", dir: "auto", tabindex: -1 });
    this.kind = el("span", { class: "kind" });
    this.since = el("span", { class: "since" });
    this.why = el("p", { class: "why", dir: "auto" });
    this.hint = el("code", { class: "hint" });
    this.cards = el("div", { class: "cards" });
    this.findings = el("ul", { class: "findings", "aria-label": "Findings" });
    this.buttons = el("div", { class: "buttons", role: "group", "aria-label": "Actions" });
    this.told = el("p", { class: "wrong", role: "alert", hidden: true });
    this.tabs = el("div", { class: "tabs", role: "group", "aria-label": "Parts" });
    this.steps = el("ol", { class: "steps" });
    this.earlier = el(
      "button",
      { type: "button", class: "plain", hidden: true, onclick: () => this.loadEarlier() },
      "earlier",
    );
    this.box = el(
      "div",
      { class: "steps-box", tabindex: 0, role: "region", "aria-label": "Transcript" },
      this.earlier,
      this.steps,
    );
    this.jump = el("button", { type: "button", class: "jump", hidden: true, onclick: () => this.toEnd() }, "↓ newest");
    this.field = el("textarea", {
      rows: 1,
      placeholder: "Write a prompt",
      "aria-label": "Prompt",
      "aria-keyshortcuts": "s",
    });
    this.composer = el(
      "form",
      { class: "composer", onsubmit: (event) => this.send(event) },
      this.field,
      el("button", {}, "Send"),
    );
    this.facts = el("dl", { class: "facts" });
    this.plot = el("div", { class: "plot" });
    this.allowed = el("p", { class: "quiet", dir: "auto" });
    this.network = el("ul", { class: "decisions" });
    this.diff = el("div", { class: "diff" });
    const talk = el(
      "section",
      { "data-part": "transcript", "aria-label": "Transcript and prompt" },
      this.box,
      this.jump,
      this.composer,
    );
    const aside = el(
      "div",
      { class: "aside" },
      part("about", "About", this.facts),
      part("usage", "Tokens", this.plot),
      part("network", "Network", this.allowed, this.network),
      part("changes", "Changes", this.diff),
    );
    const back = el("a", { class: "back", href: "#/", "aria-label": "Back to all agents" }, "←");
    const head = el(
      "header",
      { class: "head" },
      el("div", { class: "title" }, back, this.title, this.kind, this.since, this.hint),
      this.why,
      this.cards,
      this.findings,
      this.buttons,
      this.told,
    );
    for (const [name, title] of [
      ["transcript", "Transcript"],
      ["about", "About"],
      ["usage", "Tokens"],
      ["network", "Network"],
      ["changes", "Changes"],
    ]) {
      this.tabs.append(
        el(
          "button",
          {
            type: "button",
            class: "plain",
            "aria-pressed": String(name === "transcript"),
            onclick: (event) => this.choose(name, event.target),
          },
          title,
        ),
      );
    }
    byId("agent").dataset.part = "transcript";
    byId("agent").replaceChildren(head, this.tabs, talk, aside);
    this.is_pinned = false; // whether the newest step stays in view
    this.top = 0;
    for (const scroller of [this.box, byId("agent")]) scroller.onscroll = () => this.scrolled();
    // Steps get their real heights when they are drawn.
    this.sizes = new ResizeObserver(() => this.is_pinned && this.toEnd());
    this.sizes.observe(this.steps);
    this.field.value = drafts.get(this.id) ?? "";
    this.field.addEventListener("input", () => {
      drafts.set(this.id, this.field.value);
      this.grow();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.composer.requestSubmit();
    });
  }

  choose(name, chosen) {
    byId("agent").dataset.part = name;
    for (const tab of this.tabs.children) mark(tab, "aria-pressed", String(tab === chosen));
  }

  write() {
    this.choose("transcript", this.tabs.firstElementChild);
    this.field.focus();
  }

  grow() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight + 2, 200)}px`;
  }

  // Its transcript: the history up to a cursor, then what the stream brings after it.

  async load() {
    if (this.is_loading) return;
    this.is_loading = true;
    await this.attempt(async () => {
      const history = await readNewest(this.id, PAGE);
      this.first = history.length ? history[0].cursor : Infinity;
      this.last = history.at(-1)?.cursor ?? 0; // the stream may lag behind it
      this.transcript.append([...history, ...this.waiting.filter((event) => event.cursor > this.last)]);
      this.waiting = null;
      show(this.earlier, this.hasEarlier(history));
      if (this.scroller() === this.box) this.toEnd();
      else this.scrolled();
    });
    this.is_loading = false;
    this.loadTurns();
    this.loadDiff();
    this.loadNetwork();
  }

  /** An agent's first event tells that it was spawned. */
  hasEarlier(events) {
    return events.length > 0 && events[0].kind !== "agent:spawned";
  }

  async loadEarlier() {
    if (this.earlier.ariaBusy) return;
    setBusy(this.earlier, true);
    await this.attempt(async () => {
      // There is no way to read backwards from a cursor, only back from the end.
      const all = await readEvents(this.id, -(this.transcript.taken + PAGE), this.first);
      const events = all.filter((event) => event.cursor < this.first);
      const scroller = this.scroller(),
        height = scroller.scrollHeight;
      this.transcript.prepend(events);
      scroller.scrollTop += scroller.scrollHeight - height;
      show(this.earlier, this.hasEarlier(events));
      if (events.length) this.first = events[0].cursor;
    });
    setBusy(this.earlier, false);
  }

  take(event) {
    if (this.waiting) return this.waiting.push(event);
    if (event.cursor <= this.last) return null;
    if (event.kind === "turn:ended") this.loadTurns();
    if (event.kind.startsWith("clone:")) this.loadDiff();
    if (event.kind.startsWith("network:")) this.loadNetwork();
    this.queue ??= [];
    this.queue.push(event);
    if (this.queue.length === 1) setTimeout(() => this.flush(), 50);
  }

  flush() {
    const follows = this.is_pinned;
    this.transcript.append(this.queue);
    this.queue = [];
    // A reader who has scrolled up keeps more, and not without end.
    if (this.transcript.trim(follows ? MOST_STEPS : 4 * MOST_STEPS)) {
      this.first = this.steps.firstElementChild.cursor;
      show(this.earlier, true);
    }
    if (follows) this.toEnd();
    else this.scrolled();
  }

  /** The element that scrolls the transcript: itself, or all of the agent on a narrow screen. */
  scroller() {
    return getComputedStyle(this.box).overflowY === "auto" ? this.box : byId("agent");
  }

  /** A person who scrolls up keeps their place; one who comes back to the end follows again. */
  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller();
    this.is_pinned = scrollHeight - scrollTop - clientHeight < 48 || (this.is_pinned && scrollTop >= this.top);
    this.top = scrollTop;
    if (this.is_pinned) this.toEnd();
    show(this.jump, !this.is_pinned);
  }

  toEnd() {
    const scroller = this.scroller();
    this.is_pinned = true;
    scroller.scrollTop = scroller.scrollHeight;
    this.top = scroller.scrollTop;
    show(this.jump, false);
  }

  async readNetwork() {
    const found = await call(agentPath(this.id, "network"));
    const once = new Map(found.decisions.map((decision) => [`${decision.allowed} ${decision.text}`, decision]));
    const newest = [...once].reverse().slice(0, 100);
    const denied = found.decisions.filter((decision) => !decision.allowed);
    this.refused = new Set(denied.map((decision) => REMEDY.exec(decision.text)?.[1]));
    put(
      this.allowed,
      found.network === "filtered"
        ? `may reach ${oneLine(found.allow.join(", ") || "nothing", 2000)}`
        : `network ${found.network}`,
    );
    keyed(
      this.network,
      newest,
      ([key]) => key,
      ([, decision]) => this.decision(decision),
    );
    this.render();
  }

  decision({ allowed, text, time }) {
    const remedy = REMEDY.exec(text)?.[1],
      [, where, why] = /^(\S+): ?(.*)$/s.exec(text.replace(REMEDY, "")) ?? ["", text, ""];
    const allow =
      remedy && !allowed ? this.button({ label: `allow ${remedy}`, verb: "allow", body: { allow: [remedy] } }) : "";
    const verdict = el("span", { class: "verdict" }, allowed ? "passed" : "refused");
    return el(
      "li",
      { "data-denied": allowed ? null : "yes", title: moment(time) },
      verdict,
      bdi(oneLine(where, 300), "host"),
      allow,
      bdi(oneLine(why, 300), "quiet"),
    );
  }

  async loadTurns() {
    await this.attempt(async () => {
      const known = this.turns.findLast((turn) => turn.outcome)?.number ?? 0;
      const wanted = Math.max(known, (agents.get(this.id)?.turn?.number ?? 0) - MOST_BARS);
      const fresh = await call(agentPath(this.id, `turns?after=${wanted}`));
      const numbers = new Set(fresh.map((turn) => turn.number));
      this.turns = [...this.turns.filter((turn) => !numbers.has(turn.number)), ...fresh];
      this.plot.replaceChildren(...plotted(this.turns));
      this.transcript.number(this.turns);
    });
  }

  async loadDiff() {
    if (!agents.get(this.id)?.clone)
      return this.diff.replaceChildren(
        el("p", { class: "empty" }, "It works in your checkout: git diff shows its changes."),
      );
    try {
      const found = await call(agentPath(this.id, "diff?text=true"));
      this.diff.replaceChildren(...changes(found));
    } catch (problem) {
      this.diff.replaceChildren(el("p", { class: "empty" }, visible(problem.message)));
    }
  }

  // Its head

  render() {
    const agent = agents.get(this.id);
    if (!agent) return this.tell(`${this.name} is gone.`);
    this.follow(agent.name);
    const kind = kindOf(agent);
    put(this.title, oneLine(agent.name));
    put(this.kind, kind);
    mark(byId("agent"), "data-level", agent.attention?.level ?? "info");
    mark(byId("agent"), "data-kind", kind);
    put(this.since, age(agent.attention?.since));
    put(
      this.why,
      oneLine(
        kind === "working" && agent.activity
          ? agent.activity.text
          : agent.turn?.error && kind === "failed"
            ? agent.turn.error
            : withLocalTimes(agent.attention?.text ?? ""),
        1000,
      ),
    );
    const had_focus = this.buttons.contains(document.activeElement);
    const command = COMMANDS[agent.attention?.text?.startsWith("frozen, because ") ? "suspended" : kind === "merge" && !canLand(agent) ? "unlandable" : kind];
    const whom = agent.attention?.item ?? oneLine(agent.name);
    put(this.hint, command ? `substratctl ${command.replaceAll("NAME", whom)}` : "");
    const asks = renderCards(this.cards, asksFor(agent));
    show(this.why, !asks && !agent.findings?.length);
    keyed(
      this.findings,
      agent.findings ?? [],
      (finding) => finding.number,
      (finding) => this.finding(finding),
    );
    keyed(
      this.buttons,
      this.sure ? [this.sure, { ...this.sure, is_no: true }] : actionsOf(agent, this),
      (action) => JSON.stringify([action, Boolean(this.sure)]),
      (action) => (this.sure ? this.second(action) : this.button(action)),
    );
    if (had_focus && !this.buttons.contains(document.activeElement)) this.title.focus({ preventScroll: true });
    show(this.composer, agent.state !== "ended");
    renderFacts(this.facts, agent);
    settle();
  }

  /** Keep the address right after a rename. */
  follow(name) {
    if (this.name === name) return;
    this.name = name;
    history.replaceState(null, "", agentHref(name));
  }

  finding(finding) {
    const accept = this.button({ label: `accept ${finding.number}`, verb: "accept", body: { what: [finding.number] } });
    return el(
      "li",
      {},
      el("p", {}, bdi(oneLine(finding.text, 1000)), " ", accept),
      finding.difference
        ? el("details", { open: true }, el("summary", {}, "difference"), patched(finding.difference, 40))
        : "",
    );
  }

  button(action) {
    const act = () => {
      if (!action.question) return this.act(action);
      this.sure = action;
      this.render();
      this.buttons.querySelector("button")?.focus();
    };
    return el(
      "button",
      {
        type: "button",
        class: action.is_strong ? "strong" : "",
        title: `substratctl ${action.verb} ${oneLine(this.name)}`,
        onclick: act,
      },
      visible(action.label),
    );
  }

  /** The question before something that can't be undone, and its two answers. */
  second(action) {
    const over = () => {
      this.sure = null;
      this.render();
    };
    if (action.is_no) return el("button", { type: "button", class: "plain", "data-no": "yes", onclick: over }, "No");
    return el(
      "span",
      {},
      el("span", { class: "sure" }, `${action.question} `),
      el(
        "button",
        {
          type: "button",
          class: "strong",
          onclick: () => {
            over();
            this.act(action);
          },
        },
        `${action.label} ${oneLine(this.name)}`,
      ),
    );
  }

  async act(action) {
    if (this.buttons.ariaBusy) return;
    setBusy(this.buttons, true);
    this.tell("");
    await this.attempt(async () => {
      const answer = await call(agentPath(this.id, action.verb), action.body ?? {});
      const merged = Array.isArray(answer) ? answer[0] : answer;
      this.merge_files = merged?.outcome === "held" ? merged.files : [];
      this.merge_head = merged?.head;
      if (merged?.outcome) this.tell([merged.text, ...(merged.files ?? []), ...(merged.notes ?? [])].join("\n"));
    });
    setBusy(this.buttons, false);
    touched.add(this.id);
    refreshAgents();
  }

  async send(event) {
    event.preventDefault();
    const prompt = this.field.value;
    if (!prompt.trim() || this.composer.ariaBusy) return;
    this.tell("");
    setBusy(this.composer, true);
    const sent = await this.attempt(() => call(agentPath(this.id, "send"), { prompt }));
    setBusy(this.composer, false);
    if (!sent) return;
    this.field.value = "";
    drafts.delete(this.id);
    this.grow();
  }

  /** Do something and tell why it failed; gives whether it went well. */
  async attempt(work) {
    try {
      await work();
      return true;
    } catch (problem) {
      if (!(problem instanceof Failure)) throw problem;
      this.tell(problem.message);
      return false;
    }
  }

  tell(text) {
    put(this.told, visible(text));
    show(this.told, Boolean(text));
  }
}

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
      route.go(); // at once: what is typed next belongs into the filter
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
    route.go(); // at once: what is typed next belongs to the question
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
