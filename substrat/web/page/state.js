// @ts-check
// The page's values, and functions of them. Pure: no function here touches the document or asks the daemon.

import { oneLine, plural, withLocalTimes } from "./text.js";

export const KINDS = [
  "answer",
  "unsafe",
  "unkept",
  "failed",
  "stuck",
  "budget",
  "merge",
  "held",
  "suspended",
  "working",
  "waiting",
  "checking",
  "queued",
  "idle",
  "done",
];

export const COMMANDS = {
  answer: "answer NAME TEXT",
  unsafe: "show NAME, then accept NAME",
  unkept: "exec NAME git status",
  failed: "resume NAME, or accept NAME",
  stuck: "interrupt NAME",
  budget: "budget NAME",
  merge: "merge NAME",
  unlandable: "send NAME TEXT, or accept NAME",
  held: "queue",
  suspended: "resume NAME",
};

export const WARNS =
  /^(network:denied|question:asked|budget:(warned|out)|turn:(waiting|retry|home|fills|output|ran)|state:|session:|mcp:|message:refused|gate:held|check:failed|clone:(not|conflict|setup-failed)|workspace:(touched|un|hidden))/;

const STILL = ["failed", "suspended"]; // states that are told also where they are a lead's to settle

const REFUSED = /; refused \S+: allow \S+ (\S+)$/;
export const agents = new Map(); // by id
export const touched = new Set(); // ids of agents that changed since they were fetched
export const settled = new Map(); // inbox items that were answered here a moment ago, by number
export const drafts = new Map(); // prompts that are being written, by the agent's id
export const unfolded = new Set(); // ids of families whose members have a row each
export const asked = new Set(); // ids of the agents whose urgent attention was told

/**
 * Values that are replaced as wholes.
 *
 * @type {{ token: string | null, cursor: number | null, journal: string | null, all_touched: boolean, is_open: boolean, inbox: any[],
 *   filter: string, as_tree: boolean, view: string, opened: any }}
 */
export const state = {
  token: null,
  cursor: null, // of the last event taken
  journal: null, // the id of its journal
  all_touched: true,
  is_open: false, // the stream
  inbox: [],
  filter: "",
  as_tree: false,
  view: "", // the part of the page that is shown
  opened: null, // the AgentView that is shown
};

export const kindOf = (agent) => agent.attention?.kind ?? "-";
export const isUrgent = (agent) => agent.attention?.level === "urgent";
/** Say whether an agent's turn is frozen because a protected path was replaced: `resume` ends that attention. */
export const isFrozen = (agent) => agent.attention?.frozen === true;
export const isUrgentKind = (kind) => [...agents.values()].some((agent) => isUrgent(agent) && kindOf(agent) === kind);
export const asksFor = (agent) => (item) => item.from === agent.name && item.kind !== "message";

export function weigh(agent) {
  const kind = [...settled.values()].some((item) => item.from === agent.name) ? "answer" : kindOf(agent);
  const place = KINDS.indexOf(kind);
  return place < 0 ? KINDS.length : place;
}

export function byAttention(one, other) {
  return (
    weigh(one) - weigh(other) ||
    String(one.attention?.since).localeCompare(String(other.attention?.since)) ||
    one.name.localeCompare(other.name)
  );
}

/** Say what a family's members do, sorted by weight, then why it needs a person, or what its root does: the same as `ls`. */
export function doingOf(family, root) {
  const words = family.filter((one) => one !== root).map(wordOf);
  const counts = [...new Set(words)].map((word) => {
    const number = words.filter((other) => other === word).length;
    return `${number} ${{ answer: number === 1 ? "asks" : "ask", merge: "to merge" }[word] ?? word}`;
  });
  const first = ["urgent", "action"].includes(family[0].attention?.level) ? family[0] : root;
  const why = kindOf(first) === "waiting" ? "" : doing(first);
  return [counts.join(", "), why && (first === root ? why : `${oneLine(first.name)}: ${why}`)].filter(Boolean).join("; ");
}

function wordOf(agent) {
  const kind = kindOf(agent);
  if (kind !== "idle" && kind !== "done") return kind;
  if (STILL.includes(agent.state)) return agent.state;
  return agent.clone?.work?.in ? `merged into ${oneLine(agent.clone.work.in)}` : kind;
}

/** Say why an agent needs a person or waits, its activity, or the first line of its last words: the same as `ls`. */
export function doing(agent) {
  const kind = kindOf(agent),
    text = withLocalTimes(agent.attention?.text ?? "");
  const refused = /; refused (.*)/s.exec(text)?.[1];
  let words = text;
  if (kind === "working" && agent.activity) words = agent.activity.text;
  else if ((kind === "idle" || kind === "done") && !STILL.includes(agent.state)) words = (agent.last ?? "").trim().split("\n")[0];
  else return oneLine(text);
  return oneLine(refused ? `refused ${refused}; ${words}` : words);
}

/** Say whether an agent's clone has commits that a landing could take along. */
export function canLand(agent) {
  const work = agent.clone?.work;
  return Boolean(work?.commits && !work.landed);
}

export function workOf(agent) {
  const work = agent.clone;
  if (!work) return "";
  const asides = (work.work?.branches.length ?? 0) + (work.work?.stashes ?? 0);
  return [
    work.work?.unkept ? "unkept" : "",
    work.ahead ? (work.landed ? "landed" : work.work?.in ? `in ${work.work.in}` : `+${work.ahead}`) : "",
    work.files ? `~${work.files}` : "",
    asides ? `&${asides}` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

export function matches(agent) {
  if (!state.filter) return true;
  const words = [agent.name, kindOf(agent), agent.workspace, doing(agent), agent.model];
  return KINDS.includes(state.filter)
    ? kindOf(agent) === state.filter
    : words.some((word) => String(word).toLowerCase().includes(state.filter.toLowerCase()));
}

/** Give those below an agent that haven't ended: they end with it. */
function descendants(agent) {
  const children = [...agents.values()].filter((other) => other.parent === agent.id);
  return children.flatMap((child) => [...(child.state === "ended" ? [] : [child]), ...descendants(child)]);
}

/** Give a person's possible acts on an agent; `view` has its merge that is held, and the hosts that were refused. */
export function actionsOf(agent, view) {
  const kind = kindOf(agent),
    state = agent.state,
    host = REFUSED.exec(agent.attention?.text ?? "")?.[1]; // may be the agent's words
  const all = [
    ["failed", "suspended"].includes(state) && { label: "Resume", verb: "resume", is_strong: true },
    canLand(agent) && { label: "Merge", verb: "merge", is_strong: kind === "merge", body: { outcomes: true } },
    view.merge_files.length && {
      label: `Merge: I have looked at ${plural(view.merge_files.length, "file")}`,
      verb: "merge",
      body: { outcomes: true, accept: view.merge_files, at: view.merge_head },
    },
    kind === "unsafe" &&
      agent.findings?.length && {
        label: "Accept",
        verb: "accept",
        is_strong: true,
        body: { what: agent.findings.map((finding) => finding.number) }, // those shown, none that came since
      },
    ["failed", "merge"].includes(kind) && { label: "Accept", verb: "accept" },
    host && view.refused.has(host) && { label: `Allow ${oneLine(host)}`, verb: "allow", body: { allow: [host] } },
    state === "running" && {
      label: "Interrupt",
      verb: "interrupt",
      is_strong: kind === "stuck",
      question: "Stop this turn? Its prompt is given up.",
    },
    !["suspended", "ended"].includes(state) && { label: "Suspend", verb: "suspend" },
    state !== "ended" && {
      label: "End",
      verb: "end",
      body: { family: true },
      question: `End ${[agent, ...descendants(agent)].map((one) => oneLine(one.name)).join(", ")} for good?`,
    },
  ];
  return all.filter(Boolean);
}

/** Order agents below those that spawned them; a family stands where its weightiest agent would. */
export function branches(list) {
  const known = new Map(list.map((agent) => [agent.id, agent])),
    below = new Map();
  for (const agent of list) {
    const parent = known.has(agent.parent) ? agent.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), agent]);
  }
  const first = new Map();
  const lead = (agent) => {
    if (!first.has(agent.id)) {
      first.set(agent.id, agent); // no circle can go on for ever
      first.set(agent.id, [agent, ...(below.get(agent.id) ?? []).map(lead)].sort(byAttention)[0]);
    }
    return first.get(agent.id);
  };
  const walk = (parent, level) =>
    (below.get(parent) ?? [])
      .sort((one, other) => byAttention(lead(one), lead(other)))
      .flatMap((agent) => [[agent, level], ...walk(agent.id, level + 1)]);
  return walk(null, 0);
}

/** Give the list's rows: an agent, its level, and its family, sorted by weight, where the row stands for all of that. */
export function rowsOf(list) {
  if (state.as_tree) return branches(list).map(([agent, level]) => [agent, level, null]);
  const families = new Map();
  for (const agent of list.sort(byAttention)) {
    const key = state.filter ? agent.id : agent.family; // who filters wants to see these agents
    families.set(key, [...(families.get(key) ?? []), agent]);
  }
  return [...families].flatMap(([key, family]) =>
    unfolded.has(key)
      ? branches(family).map(([agent, level]) => [agent, level, level ? null : family])
      : [[family.find((one) => one.id === key) ?? family[0], 0, family]],
  );
}
