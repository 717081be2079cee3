// @ts-check
// The view of one agent.

import { changes, MOST_BARS, patched, plotted, renderFacts } from "./aside.js";
import { agentHref, bdi, byId, el, keyed, mark, put, setBusy, settle, show } from "./dom.js";
import { renderCards } from "./list.js";
import { agentPath, call, coalesced, Failure, PAGE, readEvents, readNewest, refreshAgents } from "./net.js";
import { actionsOf, agents, asksFor, canLand, COMMANDS, drafts, isFrozen, kindOf, touched } from "./state.js";
import { age, moment, oneLine, visible, withLocalTimes } from "./text.js";
import { Transcript } from "./transcript.js";

const REMEDY = /; substratctl allow \S+ (\S+)$/;
const MOST_STEPS = 3000; // in an open transcript

export class AgentView {
  constructor(agent) {
    this.id = agent.id;
    this.name = agent.name;
    this.waiting = []; // events that came while the history was read
    this.turns = [];
    this.merge_files = [];
    this.refused = new Set(); // hosts that its network refused and the allow-list may let through
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

  // Its transcript: the history up to a cursor, then the events of the stream after it.

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
    const is_frozen = isFrozen(agent);
    const command = COMMANDS[is_frozen ? "suspended" : kind === "merge" && !canLand(agent) ? "unlandable" : kind];
    const whom = agent.attention?.item ?? oneLine(agent.name);
    put(this.hint, command ? `substratctl ${command.replaceAll("NAME", whom)}` : "");
    const asks = renderCards(this.cards, asksFor(agent));
    show(this.why, is_frozen || (!asks && !agent.findings?.length));
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
        ? el("details", { open: true }, el("summary", {}, "changed"), patched(finding.difference, 40))
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
