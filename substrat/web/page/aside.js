// @ts-check
// The parts beside a transcript: facts, tokens and changes.

import { agentHref, bdi, el, keyed, mark, put } from "./dom.js";
import { agents } from "./state.js";
import { cut, moment, oneLine, plural, tokens, visible, withLocalTimes } from "./text.js";

const MOST_LINES = 400; // of a patch, at first
export const MOST_BARS = 60; // turns in the plot

function budgetOf({ limits, used }) {
  const parts = Object.entries(limits).map(([key, limit]) =>
    key === "running" ? `${limit} running at once` : `${Math.round((used[key] ?? 0) * 100) / 100} of ${limit} ${key.replace("_", " ")}`,
  );
  return parts.join(", ");
}

export function renderFacts(list, agent) {
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
    ["check", agent.check && `${agent.check.state}: ${oneLine(agent.check.text || agent.check.command)}`],
    ["budget", agent.budget && budgetOf(agent.budget)],
    ["program", agent.program],
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
export function plotted(turns) {
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

export function changes(found) {
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
export function patched(patch, most) {
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
