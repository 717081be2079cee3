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

import { agentHref, bdi, Block, byId, el, keyed, mark, onPress, put, setBusy, settle, show, STEADY_MS } from "./dom.js";
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
import { actionsOf, agents, asksFor, canLand, COMMANDS, drafts, kindOf, state, touched, WARNS } from "./state.js";
import { age, clock, cut, moment, oneLine, plural, tokens, visible, withLocalTimes } from "./text.js";

const SAYS_NOTHING =
  /^(system:|network:allowed|thinking:completed|interaction_query|prompt:queued|turn:started|clone:setup$)/;
const REMEDY = /; substratctl allow \S+ (\S+)$/;

const BEAT_MS = 5_000; // between two questions whether the daemon is there
const POLL_MS = 20_000; // an agent gets stuck without an event
const MOST_STEPS = 3000; // in an open transcript
const MOST_LINES = 400; // of a patch, at first
const MOST_BARS = 60; // turns in the plot

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

// A transcript

/** Puts an agent's events together: speech from its pieces, a tool call from its two ends. */
class Transcript {
  constructor(list) {
    this.list = list;
    this.taken = 0;
    this.calls = new Map();
    this.ended = new Set(); // calls whose beginning came before the history that is shown
    this.turn = null;
    this.speech = null; // the passage that is being said, or was said last in this turn
    this.minute = "";
  }

  append(events) {
    this.into = document.createDocumentFragment();
    for (const event of events) this.feed(event);
    this.taken += events.length;
    this.list.append(this.into);
  }

  prepend(events) {
    const older = new Transcript(null);
    older.into = document.createDocumentFragment();
    for (const event of events) older.feed(event);
    for (const [id, step] of older.calls) if (this.ended.has(id)) step.node.remove();
    const first = this.list.firstElementChild;
    if (first?.turn_id && first.turn_id === older.turn) first.remove(); // its heading stands above already
    // A passage that began there stands here whole.
    if (older.speech?.is_whole === false && this.list.querySelector("li:not(.turn)")?.matches(".text"))
      older.speech.step.remove();
    for (const id of older.ended) this.ended.add(id);
    this.list.prepend(older.into);
    this.taken += events.length;
  }

  /** Put turns' numbers into the headings, whose first event may not be shown. */
  number(turns) {
    for (const heading of this.list.querySelectorAll(".turn")) {
      const turn = turns.find((one) => one.id === heading.turn_id);
      if (turn) put(heading.lastChild, `turn ${turn.number}`);
    }
  }

  /** Drop the oldest steps when there are too many; gives whether there were. */
  trim(most) {
    const excess = this.list.childElementCount - most;
    if (excess <= 0) return false;
    for (let left = excess + most / 4; left > 0; left--) this.list.firstElementChild.remove();
    return true;
  }

  feed(event) {
    const { kind, turn } = event,
      text = event.text ?? "";
    this.event = event;
    if (turn && turn !== this.turn) this.begin(turn);
    if (kind === "turn:started") put(this.heading, `turn ${event.data?.number ?? ""}`);
    if (kind === "assistant:delta" || kind === "thinking:delta") return this.piece(kind, text);
    if (kind === "assistant") return this.passage(text);
    if (kind === "text") return this.step("text", new Block("", 2000).set(text).node);
    if (kind === "user") return this.step("prompt", new Block("", 3000).set(text).node);
    if (kind === "tool-call-started") return this.callStarted(text);
    if (kind === "tool-call-completed") return this.callEnded(text);
    if (kind === "result:success") return this.has_spoken ? null : this.passage(text);
    if (SAYS_NOTHING.test(kind)) return null;
    if (kind === "turn:ended")
      for (const { verdict, node } of this.calls.values()) this.judge(node, verdict, "no outcome was seen");
    const words = kind === "turn:ended" ? text : [kind.replace(":", " "), text].filter(Boolean).join(": ");
    const is_bad = WARNS.test(kind) || (kind === "turn:ended" && /^turn \d+ (error|timed_out|lost)/.test(text));
    return this.step(is_bad ? "note bad" : "note", new Block("", 600).set(words).node);
  }

  begin(turn) {
    this.turn = turn;
    this.speech = null;
    this.has_spoken = false;
    this.minute = "";
    this.heading = el("span", {}, "turn");
    this.step("turn", this.heading).turn_id = turn;
  }

  step(name, ...inside) {
    const time = clock(this.event.time),
      minute = time.slice(0, 5);
    const node = el(
      "li",
      { class: `step ${name}` },
      el("time", { title: moment(this.event.time) }, minute === this.minute ? "" : minute),
      ...inside,
    );
    this.minute = minute;
    node.cursor = this.event.cursor;
    this.into.append(node);
    return node;
  }

  piece(kind, text) {
    if (this.speech?.kind !== kind || this.speech.is_whole) this.speak(kind, false);
    this.speech.block.add(text);
  }

  /** A whole passage repeats the pieces before it, or those of them that are shown. */
  passage(text) {
    const said = this.speech;
    const repeats = said?.kind === "assistant:delta" && !said.is_whole && text.includes(said.block.text.trim());
    if (!repeats) this.speak("assistant:delta", true);
    this.speech.is_whole = true;
    this.speech.block.set(text);
  }

  speak(kind, is_whole) {
    const is_thought = kind === "thinking:delta";
    const block = new Block(is_thought ? "thought" : "", is_thought ? 300 : 6000);
    if (!is_thought) this.has_spoken = true;
    this.speech = { kind, block, is_whole, step: this.step(is_thought ? "thinking" : "text", block.node) };
  }

  callStarted(text) {
    if (this.speech?.kind === "thinking:delta") this.speech = null;
    const call = this.tool(text);
    this.calls.set(callId(this.event), call);
  }

  callEnded(text) {
    const id = callId(this.event),
      known = this.calls.get(id);
    this.calls.delete(id);
    if (!known) this.ended.add(id);
    const call = known ?? this.tool("");
    const at = known && text.startsWith(known.text) ? known.text.length : text.lastIndexOf(" → ");
    const verdict = at >= 0 ? text.slice(at).replace(/^ → /, "") : "";
    if (!known) call.summary.set(at >= 0 ? text.slice(0, at) : text);
    const is_bad = this.judge(call.node, call.verdict, verdict),
      output = outputOf(this.event.raw);
    if (output) call.give(output, is_bad);
  }

  judge(node, place, verdict) {
    const is_bad = !/^(exit 0|done|runs|goes on|$)/.test(verdict);
    put(place, oneLine(verdict, 200));
    mark(node, "data-bad", is_bad ? "yes" : null);
    mark(node, "data-open", null);
    return is_bad;
  }

  tool(text) {
    const summary = new Block("", 300).set(text);
    const verdict = el("span", { class: "verdict" }, "");
    const line = el("div", { class: "call" }, summary.node, verdict);
    const node = this.step("tool", line);
    node.dataset.open = "yes";
    const give = (output, is_bad) => {
      const block = new Block("output", 4000);
      const fill = () => block.text || block.set(output);
      const head = el(
        "summary",
        { class: "call" },
        summary.node,
        verdict,
        el("span", { class: "lines" }, plural(output.split("\n").length, "line")),
      );
      const details = el("details", { open: is_bad, ontoggle: fill }, head, block.node);
      if (is_bad) fill();
      line.replaceWith(details);
    };
    return { text, summary, verdict, node, give };
  }
}

const callId = (event) => event.raw?.call_id ?? event.raw?.tool_call?.toolCallId ?? event.raw?.id ?? "";

/** Find a tool call's output in the program's own line: what its result says in words, else its JSON. */
function outputOf(raw) {
  const call = Object.values(raw?.tool_call ?? {}).find((value) => value && typeof value === "object" && value.result);
  const found = Object.values(call?.result ?? {})[0] ?? raw?.result;
  if (typeof found === "string") return found;
  if (!found || typeof found !== "object") return "";
  const isText = (value) => typeof value === "string" && value; // an agent can write any JSON here
  const texts = (isText(found.interleavedOutput) ? [found.interleavedOutput] : [found.stdout, found.stderr]).filter(isText);
  const plain = texts.length
    ? texts.join("\n")
    : [found.diffString, found.content, found.contents, found.output, found.text, found.markdown].find(isText);
  if (plain !== undefined) return plain.replace(/\n+$/, "");
  if ("stdout" in found || !Object.values(found).some((value) => value && typeof value === "object")) return "";
  return JSON.stringify(found, null, 1);
}

// Facts, usage and changes

function renderFacts(list, agent) {
  const work = agent.clone,
    turn = agent.turn,
    use = agent.use;
  const family = [...agents.values()].filter((other) => other.parent === agent.id);
  const rows = [
    ["state", agent.state === "queued" && agent.reason ? `queued: ${withLocalTimes(agent.reason)}` : agent.state],
    ["status", agent.status],
    ["turn", turn && `${turn.number} ${turn.outcome ?? "running"}, since ${moment(turn.started_at)}`],
    [
      "uses",
      use &&
        [
          use.memory && `${Math.round(use.memory / 2 ** 20)} MiB`,
          use.processes && `${use.processes} processes`,
          use.cpu_seconds && `${use.cpu_seconds.toFixed(1)} s of processor`,
        ]
          .filter(Boolean)
          .join(", "),
    ],
    ["git", agent.unfinished?.join("\n")],
    ["workspace", agent.workspace],
    ["branch", work?.branch],
    [
      "work",
      work && `${work.work?.text ?? "nothing yet"}${work.behind ? ` · ${work.behind} behind` : ""}`,
    ],
    ["model", agent.model],
    ["network", agent.network],
    ["waits for", agent.waits ? plural(agent.waits, "open wait") : null],
    ["unread", agent.unread || null],
    [
      "limits",
      agent.time_limit === undefined
        ? null
        : `time ${agent.time_limit ? `${agent.time_limit} s` : "unlimited"}, silence ${agent.silence_limit ? `${agent.silence_limit} s` : "unlimited"}`,
    ],
    ["created", moment(agent.created_at)],
    ["session", agent.session_id],
    ["parent", agents.get(agent.parent)],
    ["children", family.length ? family : null],
  ];
  keyed(
    list,
    rows.filter(([, value]) => value),
    ([name]) => name,
    ([name]) => el("div", {}, el("dt", {}, name), el("dd", {})),
    (line, [, value]) => {
      const relatives = [value].flat();
      if (typeof value !== "object") put(line.lastChild, visible(String(value)));
      else
        keyed(
          line.lastChild,
          relatives,
          (other) => other.id,
          () => el("a", {}),
          (link, other) => {
            put(link, oneLine(other.name));
            mark(link, "href", agentHref(other.name));
          },
        );
    },
  );
}

const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Draw the tokens of an agent's turns, input and output each on its own scale, and say them in a table. */
function plotted(turns) {
  const told = turns.filter((turn) => turn.usage).slice(-MOST_BARS);
  if (!told.length) return [el("p", { class: "empty" }, "No turn has told its tokens yet.")];
  const width = 300,
    height = 44,
    step = width / Math.max(told.length, 12);
  const panels = [
    ["input", "inputTokens"],
    ["output", "outputTokens"],
  ].map(([title, name]) => {
    const most = Math.max(1, ...told.map((turn) => turn.usage[name] ?? 0));
    const bars = told.map((turn, at) => {
      const tall = Math.max(1, ((turn.usage[name] ?? 0) / most) * height);
      return drawn(
        "rect",
        { x: at * step, y: height - tall, width: Math.max(step - 1.5, 0.75), height: tall },
        drawn("title", {}, `turn ${turn.number}: ${turn.usage[name] ?? 0} ${title}`),
      );
    });
    const total = told.reduce((sum, turn) => sum + (turn.usage[name] ?? 0), 0);
    const caption = el(
      "figcaption",
      {},
      el("span", {}, title),
      el("span", {}, `${tokens(total)}, at most ${tokens(most)} a turn`),
    );
    return el(
      "figure",
      {},
      caption,
      drawn("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars),
    );
  });
  const names = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"].filter((name) =>
    told.some((turn) => turn.usage[name]),
  );
  const spaced = (name) => name.replace(/Tokens$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  const head = el("tr", {}, ...["turn", ...names.map(spaced)].map((name) => el("th", { scope: "col" }, name)));
  const rows = told
    .toReversed()
    .map((turn) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, String(turn.number)),
        ...names.map((name) => el("td", {}, (turn.usage[name] ?? 0).toLocaleString("en"))),
      ),
    );
  const table = el(
    "table",
    {},
    el("caption", { class: "unseen" }, "Tokens of each turn"),
    el("thead", {}, head),
    el("tbody", {}, ...rows),
  );
  return [...panels, el("details", {}, el("summary", {}, "as a table"), table)];
}

function changes(found) {
  if (!found.files.length) return [el("p", { class: "empty" }, "No changes as of the end of its last turn.")];
  const most = Math.max(1, ...found.files.map((file) => file.added + file.deleted));
  const patches = (found.text ?? "").split(/\n(?=diff --git )/); // `^` would match after a carriage return in a file too
  const rows = found.files.map((file, at) => {
    const bar = el(
      "span",
      { class: "bar", "aria-hidden": "true" },
      el("i", { class: "added" }),
      el("i", { class: "deleted" }),
    );
    [file.added, file.deleted].forEach((count, side) =>
      bar.children[side].style.setProperty("width", `${(100 * count) / most}%`),
    );
    const name = file.old_path ? `${file.old_path} → ${file.path}` : file.path;
    const head = el(
      "summary",
      {},
      bdi(oneLine(name, 500), "path"),
      el(
        "span",
        { class: "lines" },
        file.binary ? "binary" : `${file.status === "modified" ? "" : `${file.status} `}+${file.added} −${file.deleted}`,
      ),
      bar,
    );
    const details = el(
      "details",
      { ontoggle: () => details.childElementCount < 2 && details.append(patched(patches[at] ?? "", MOST_LINES)) },
      head,
    );
    return el("li", {}, details);
  });
  const cut = found.cut ? `; ${found.cut} bytes of it are not here: substratctl diff ${oneLine(found.agent)}` : "";
  return [
    el(
      "p",
      { class: "quiet" },
      `${plural(found.files.length, "file")}, +${found.added} −${found.deleted}, committed since ${found.from.slice(0, 12)}${cut}`,
    ),
    el("ul", {}, ...rows),
  ];
}

/** Show a file's patch, its beginning first. */
function patched(patch, most) {
  const all = patch.replace(/\n$/, "").split("\n"),
    start = Math.max(
      0,
      all.findIndex((line) => line.startsWith("@@")),
    );
  const lines = all
    .slice(start, start + most)
    .map((line) =>
      el(
        "span",
        { class: { "+": "plus", "-": "minus", "@": "hunk" }[line[0]] ?? null, dir: "auto" },
        `${visible(line.length > 2000 ? cut(line, 2000) : line)}\n`,
      ),
    );
  const block = el("pre", { class: "patch", tabindex: 0 }, ...lines),
    left = all.length - start - most;
  if (left > 0)
    block.append(
      el(
        "button",
        { type: "button", class: "plain", onclick: () => block.replaceWith(patched(patch, Infinity)) },
        `show ${plural(left, "more line")}`,
      ),
    );
  return block;
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
