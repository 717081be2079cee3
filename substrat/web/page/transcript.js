// @ts-check
// An agent's transcript, put together from its events.

import { Block, el, mark, put } from "./dom.js";
import { WARNS } from "./state.js";
import { clock, moment, oneLine, plural } from "./text.js";

const SAYS_NOTHING =
  /^(system:|network:allowed|thinking:completed|interaction_query|prompt:queued|turn:started|clone:setup$)/;

/** Puts an agent's events together: speech from its pieces, a tool call from its two ends. */
export class Transcript {
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

/** Find a tool call's output in the program's own line: the words of its result, else its JSON. */
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
