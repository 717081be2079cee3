// The views of all agents: the list, the inbox's cards, the waits and the events.

import { agentHref, agentLink, bdi, Block, byId, el, hold, keyed, mark, put, setBusy, settle, show } from "./dom.js";
import { call, Failure, readNewest, refreshInbox } from "./net.js";
import {
  agents,
  asked,
  asksFor,
  doing,
  doingOf,
  isUrgent,
  isUrgentKind,
  kindOf,
  KINDS,
  matches,
  rowsOf,
  settled,
  state,
  unfolded,
  WARNS,
  weigh,
  workOf,
} from "./state.js";
import { age, clock, moment, oneLine, plural, tokens, visible, withLocalTimes } from "./text.js";

const SETTLED_MS = 1_800; // an answered question stays that long, so that nothing slides under the pointer
const MOST_EVENTS = 500; // in the journal

/** Show the items of the inbox that `wants` takes as cards, those answered a moment ago included; gives their number. */
export function renderCards(container, wants = () => true, tag = "div") {
  const open = new Map([...state.inbox, ...settled.values()].map((item) => [item.id, item]));
  const rank = (item) => (item.kind === "message" ? 1 : 0);
  const items = [...open.values()].filter(wants).sort((one, other) => rank(one) - rank(other) || one.id - other.id);
  keyed(
    container,
    items,
    (item) => item.id,
    (item) => makeCard(item, tag),
    (card, item) => card.update(item),
  );
  return items.length;
}

export function render() {
  const shown = [...agents.values()].filter(matches);
  const rows = rowsOf(shown);
  keyed(
    byId("list"),
    rows,
    ([agent]) => agent.id,
    makeRow,
    (row, [agent, level, family]) => row.update(agent, level, family ?? [agent]),
  );
  const is_empty = !rows.length && !state.all_touched;
  show(byId("no-agents"), is_empty);
  if (is_empty)
    put(
      byId("no-agents"),
      agents.size
        ? `No agent matches "${visible(state.filter)}".`
        : 'No agents yet. "New agent" starts one, as does: substratctl spawn NAME -w DIR "PROMPT"',
    );
  renderCounts();
  show(byId("items").nextElementSibling, renderCards(byId("items"), undefined, "li") === 0);
  const open = state.inbox.filter((item) => item.kind !== "message").length;
  put(byId("unanswered"), String(open));
  show(byId("unanswered"), open > 0);
  if (state.opened) state.opened.render();
  else settle();
  tellUrgent();
}

function makeRow([first]) {
  const name = el("bdi", { dir: "auto" }),
    kind = el("span", { class: "kind" }),
    since = el("span", { class: "since" });
  const used = el("span", { class: "used" }),
    work = el("span", { class: "work" }),
    words = bdi("", "doing"),
    place = bdi("", "place");
  const link = el("a", { class: "name", href: "#/" }, name);
  const cards = el("div", { class: "cards" });
  const fold = el("button", { type: "button", class: "plain fold", hidden: true });
  const row = el("li", { class: "row" }, link, fold, kind, since, used, work, words, cards, place);
  row.update = (agent, level, family) => {
    const is_folded = family.length > 1 && !unfolded.has(agent.family),
      members = is_folded ? family : [agent],
      top = members[0];
    put(name, oneLine(agent.name));
    mark(link, "href", agentHref(agent.name));
    mark(link, "aria-current", members.some((one) => one.id === state.opened?.id) ? "page" : null);
    show(fold, family.length > 1);
    put(fold, `${is_folded ? "+" : "−"}${family.length - 1}`);
    mark(fold, "aria-label", `${family.length - 1} more in the family of ${oneLine(agent.name)}`);
    mark(fold, "aria-expanded", String(!is_folded));
    fold.onclick = () => {
      if (!unfolded.delete(agent.family)) unfolded.add(agent.family);
      render();
    };
    put(kind, kindOf(top));
    mark(row, "data-level", top.attention?.level ?? "info");
    mark(row, "data-kind", kindOf(top));
    put(since, age(top.attention?.since));
    mark(since, "title", `since ${moment(top.attention?.since)}`);
    const total = members.reduce((sum, one) => sum + (one.tokens?.input ?? 0) + (one.tokens?.output ?? 0), 0);
    put(used, total ? tokens(total) : "");
    put(work, workOf(agent));
    put(words, is_folded ? doingOf(family, agent) : doing(agent));
    put(place, oneLine(`${agent.model}  ${agent.workspace}`));
    const asks = renderCards(cards, (item) => members.some((one) => asksFor(one)(item)));
    mark(row, "data-asks", asks && weigh(agent) === 0 && !is_folded ? "yes" : null);
    row.style.setProperty("--level", level);
    mark(row, "data-child", level ? "yes" : null);
    mark(row, "data-family", family.length > 1 ? (is_folded ? "folded" : "unfolded") : null);
  };
  row.update(first, 0, [first]);
  return row;
}

function renderCounts() {
  const counts = new Map();
  for (const agent of agents.values()) counts.set(kindOf(agent), (counts.get(kindOf(agent)) ?? 0) + 1);
  const kinds = KINDS.filter((kind) => counts.has(kind));
  const urgent = [...agents.values()].filter(isUrgent).length;
  document.title = urgent ? `(${urgent}) Substrat` : "Substrat";
  keyed(
    byId("counts"),
    ["", ...kinds],
    (kind) => kind,
    (kind) => el("button", { type: "button", class: "plain", onclick: () => setFilter(state.filter === kind ? "" : kind) }),
    (chip, kind) => {
      put(chip, kind ? `${counts.get(kind)} ${kind}` : plural(agents.size, "agent"));
      mark(chip, "aria-pressed", String(state.filter === kind));
      mark(chip, "data-urgent", isUrgentKind(kind) ? "yes" : null);
    },
  );
}

export function setFilter(text) {
  state.filter = text;
  if (byId("filter").value !== text) byId("filter").value = text;
  render();
}

/** Tell a screen reader who needs the person now. */
function tellUrgent() {
  const fresh = [];
  for (const agent of agents.values()) {
    if (isUrgent(agent) && !asked.has(agent.id)) fresh.push(agent);
    if (isUrgent(agent)) asked.add(agent.id);
    else asked.delete(agent.id);
  }
  if (fresh.length)
    put(
      byId("said"),
      fresh.length > 3
        ? `${fresh.length} more agents need you`
        : fresh.map((agent) => `${oneLine(agent.name)} needs you: ${oneLine(agent.attention.text, 200)}`).join(". "),
    );
}

function makeCard(item, tag) {
  const text = new Block("question-text", 700).set(item.text);
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const done = el("p", { class: "done", role: "status", hidden: true });
  const field = el("input", {
    type: "text",
    placeholder: item.options.length ? "or other words" : item.kind === "message" ? "reply" : "answer",
    "aria-label": `Answer to ${oneLine(item.from)}`,
    autocomplete: "off",
  });
  const form = el(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        if (field.value.trim()) send(field.value);
      },
    },
    field,
    el(
      "button",
      { class: item.options.length || item.kind === "message" ? "" : "strong" },
      item.kind === "message" ? "Reply" : "Answer",
    ),
  );
  const options = el("div", { class: "options", role: "group", "aria-label": `Options for ${oneLine(item.from)}` });
  item.options.forEach((option, at) => {
    options.append(
      el(
        "button",
        { type: "button", "data-option": at + 1, onclick: () => send(option) },
        el("kbd", {}, String(at + 1)),
        bdi(oneLine(option, 300)),
      ),
    );
  });
  const since = el("span", { class: "since" });
  const head = el(
    "p",
    { class: "card-head" },
    el("a", { href: agentHref(item.from) }, bdi(oneLine(item.from))),
    ` ${item.kind === "question" ? "asks" : item.kind === "merge" ? "has work that doesn't land" : "writes"} `,
    since,
  );
  const otherwise =
    item.default === null
      ? ""
      : el(
          "p",
          { class: "quiet" },
          `Without an answer by ${moment(item.deadline)} it takes: ${oneLine(item.default, 200)}`,
        );
  const card = el(
    tag,
    { class: "card", "data-item": item.id, "data-kind": item.kind },
    head,
    text.node,
    otherwise,
    el("div", { class: "replies", role: "group" }, options, form),
    wrong,
    done,
  );
  async function send(words) {
    if (card.ariaBusy) return;
    show(wrong, false);
    setBusy(card, true);
    try {
      await call(`/inbox/${item.id}/answer`, { text: words });
      settled.set(item.id, { ...item, said: words });
      setTimeout(() => {
        settled.delete(item.id);
        render();
      }, SETTLED_MS);
      state.inbox = state.inbox.filter((other) => other.id !== item.id);
      refreshInbox();
      render();
      const next = [...document.querySelectorAll("[data-item]")].find(
        (other) => other !== card && other.offsetParent && !other.dataset.done,
      );
      if (next) hold(next.querySelector(".replies")); // a second press was meant for this question too
      if (card.contains(document.activeElement) || document.activeElement === document.body)
        (next?.querySelector("[data-option], input") ?? byId("main")).focus({ preventScroll: true });
    } catch (problem) {
      put(wrong, problem.message);
      show(wrong, true);
    } finally {
      setBusy(card, false);
    }
  }
  card.update = (now) => {
    put(since, age(now.time) === "now" ? "now" : `${age(now.time)} ago`);
    const answer = settled.get(item.id)?.said;
    mark(card, "data-done", answer === undefined ? null : "yes");
    show(options, answer === undefined && item.options.length > 0);
    show(form, answer === undefined);
    show(done, answer !== undefined);
    if (answer !== undefined) put(done, `answered: ${oneLine(answer, 200)}`);
  };
  card.update(item);
  return card;
}

export function renderWaits(waits, queue) {
  const lists = [byId("open-waits"), byId("queued")];
  lists[0].replaceChildren(
    ...waits.map((wait) => {
      const line = el("li", {}, agentLink(wait.agent), ` waits for ${wait.mode === "any" ? "any" : "all"} of `);
      wait.names.forEach((name, at) =>
        line.append(at ? ", " : "", agentLink(name), wait.done.includes(name) ? " (done)" : ""),
      );
      line.append(
        el(
          "span",
          { class: "quiet" },
          `${wait.deadline ? `, until ${moment(wait.deadline)}` : ""}, for ${age(wait.created_at)}`,
        ),
        wait.note ? el("p", { class: "quiet", dir: "auto" }, visible(wait.note)) : "",
      );
      return line;
    }),
  );
  lists[1].replaceChildren(
    ...queue.map((one) =>
      el(
        "li",
        {},
        agentLink(one.agent),
        ` ${one.priority === "normal" ? "" : `${one.priority} priority, `}for ${age(one.since)}`,
        el("p", { class: "quiet", dir: "auto" }, visible(withLocalTimes(one.reason))),
      ),
    ),
  );
  for (const list of lists) show(list.nextElementSibling, !list.childElementCount);
}

export const journal = {
  waiting: null, // events that came while the newest were read
  last: 0,

  async open() {
    const waiting = (this.waiting = []);
    let events = [];
    try {
      events = await readNewest("", 300);
    } catch (problem) {
      if (!(problem instanceof Failure)) throw problem;
    }
    if (this.waiting !== waiting) return; // it was opened once more
    this.waiting = null;
    this.last = 0;
    byId("journal").replaceChildren();
    for (const event of [...events, ...waiting]) this.take(event);
  },

  take(event) {
    if (this.waiting) return this.waiting.push(event);
    if (event.cursor <= this.last) return null;
    this.last = event.cursor;
    if (/:delta$|^thinking:|^system:init$/.test(event.kind)) return null;
    const agent = agents.get(event.agent),
      list = byId("journal");
    const who = agent ? agentLink(agent.name) : el("span", {}, event.agent.slice(0, 8));
    list.prepend(
      el(
        "li",
        { class: WARNS.test(event.kind) ? "bad" : null },
        el("time", {}, clock(event.time)),
        who,
        el("span", { class: "event-kind" }, visible(event.kind)),
        el("bdi", { dir: "auto", class: "event-text" }, oneLine(event.text, 300)),
      ),
    );
    while (list.childElementCount > MOST_EVENTS) list.lastElementChild.remove();
    return null;
  },
};
